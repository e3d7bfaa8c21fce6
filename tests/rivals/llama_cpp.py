"""llama.cpp beside Camelid on the same converted files, and the files that the two interpret differently.

make rivals          builds llama.cpp once (about six minutes), then prints the table; `python -m
                     tests.rivals.llama_cpp f32 lfm2` selects types and cases by the beginnings of names

Keys and values are float32 on both sides, so that only arithmetic differs: llama.cpp sums in float32, the
reference in float64.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden.cases import mixtures
from tests.support.hf_models import decoders, load_case, nmse, write_hf
from tests.support.model.file_runs import Loaded, Logits, load_gguf, reference_logits

from camelid.loading.convert import convert

F32 = 0  # GGML_TYPE_F32
TYPES = ("f32", "f16", "q8_0", "q4_0")
LEAST_CONTEXT = 256  # llama.cpp rounds a context up to this


@dataclass(frozen=True, slots=True)
class Reading:
    """A difference in interpretation: the config that llama.cpp assumes instead of the file's, the endings of
    tensors without whose effect logits can agree, and the number of rows whose logits can agree.
    """

    why: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rows: int | None = None
    neutral: tuple[str, ...] = ()


NO_WINDOW = "llama.cpp has no window for the architectures llama and starcoder2"
SCALE = "llama.cpp derives the attention scale, and which layers are full, from the size of the model"
BETAS = "llama.cpp's deepseek2 has YaRN's published betas, and one magnitude"
YARN = {
    "type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64,
}  # fmt: skip
READINGS: Mapping[str, Reading] = {
    "smallthinker": Reading("llama.cpp's window is of 4096 rows, whatever the file states", rows=12),
    "llama4": Reading(
        "llama.cpp has chunks of 8192 rows and no rotation in each fourth layer, always",
        {"attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 0], "floor_scale": 8192},
    ),
    "minicpm3": Reading("llama.cpp has one epsilon for all norms", {"rms_norm_eps": 1e-6}),
    "mistral": Reading(NO_WINDOW, rows=12),
    "plamo2": Reading("llama.cpp has no window for plamo2", rows=10),
    "mixtral_window": Reading(NO_WINDOW, rows=12),
    "starcoder2": Reading(NO_WINDOW, rows=12),
    "falcon_mamba": Reading("llama.cpp has one epsilon for all norms", {"mixer_rms_eps": 1e-5}),
    "gemma2": Reading(SCALE, {"query_pre_attn_scalar": 32, "layer_types": None}),
    "gemma3": Reading(SCALE, {"query_pre_attn_scalar": 32, "sliding_window_pattern": 6}),
    "gemma3_rope_parameters": Reading(SCALE, {"query_pre_attn_scalar": 32}),
    "lfm2_moe": Reading("llama.cpp has no scale of lfm2moe's experts", {"routed_scaling_factor": 1.0}),
    "qwen3_moe_raw_probs": Reading("llama.cpp always normalizes qwen3moe", {"norm_topk_prob": True}),
    "ministral": Reading(NO_WINDOW, rows=12),
    "exaone4": Reading(SCALE, {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "bitnet": Reading("llama.cpp gates bitnet by SiLU", {"hidden_act": "silu"}),
    "grove_moe": Reading(
        "llama.cpp gives the experts of chunks the output of the others", neutral=mixtures.CHUNKS
    ),
    "afmoe": Reading(
        "llama.cpp's afmoe has its own pattern of windows", {"layer_types": ["sliding_attention"] * 3}
    ),
    "grok": Reading(
        "llama.cpp normalizes the probs of grok and does not bound its router's logits",
        {"norm_topk_prob": True, "router_logit_softcapping": None},
    ),
    "gpt_oss": Reading("llama.cpp has YaRN's published betas, and rounds its ramp", {"rope_scaling": None}),
    "deepseek_v2": Reading(BETAS, {"rope_scaling": YARN}),
    "deepseek_v3": Reading(BETAS, {"rope_scaling": YARN}),
}
PLAIN = Reading("")
NOT_COMPARED: Mapping[str, str] = {
    **dict.fromkeys(
        ("jina_bert", "jina_bert_ranking", "xlm_roberta_flash", "xlm_roberta_flash_ranking"),
        "no logits: tests.rivals.encoders compares embeddings",
    ),
    **dict.fromkeys(
        ("afmoe_global", "cohere2_global", "exaone4_global", "exaone_moe_global"),
        "llama.cpp reads no key of layers without rotation",
    ),
    "gemma4": "llama.cpp shares keys in the published order of layers alone, and aborts with another",
}
UNREAD: Mapping[str, str] = {
    "nomic_bert_moe": "llama.cpp does not open a nomic-bert-moe with a bias of its experts' sum",
    "lfm2_old": "llama.cpp does not open an lfm2 with biases",
    "mamba_bias": "llama.cpp does not open a mamba with biases of projections",
    "mamba2_bias": "llama.cpp does not open a mamba2 without a bias of the convolution",
    "nemotron_h_bias": "llama.cpp does not open a nemotron_h with biases of mamba2 layers",
    "nemotron_h_moe": "llama.cpp does not open a nemotron_h_moe with biases of shared experts",
    "arcee_bias": "llama.cpp does not open an arcee with biases",
    "cogvlm2": "llama.cpp opens a cogvlm with as many heads of keys as of queries alone",
    "cohere_plus": "llama.cpp reads norms of heads of command-r from 64 layers on",
    "ernie4_5_bias": "llama.cpp does not open an ernie4_5 with biases of its MLP",
    "falcon_rw": "llama.cpp has no ALiBi for falcon",
    "gpt_neox_sequential": "llama.cpp does not open a gptneox without biases of attention",
    "gptj": "llama.cpp has no graph for gptj",
    "hunyuan_v1_dense_bias": "llama.cpp does not open a hunyuan-dense with biases",
    "olmo_bias": "llama.cpp does not open an olmo with biases",
    "opt": "the name opt is ours",
    "refact": "llama.cpp has RMS norms for refact",
    "phimoe": "llama.cpp has a softmax in place of phimoe's sparse mixer, and RMS norms",
    "seed_oss_bias": "llama.cpp does not open a seed_oss with biases of its MLP",
    "internlm2_bias": "llama.cpp does not open an internlm2 with biases",
    "deepseek_v3_plain": "llama.cpp does not open a deepseek2 with biases of attention",
    "dots1": "llama.cpp opens a dots1 with as many heads of keys as of queries alone",
    "ernie4_5_moe": "llama.cpp does not open an ernie4_5-moe with a last dense layer",
    "exaone_moe": "llama.cpp opens an exaone-moe with one shared expert alone",
    "gemma3n": "llama.cpp opens a gemma3n with four streams alone",
    "hunyuan_v1_moe": "llama.cpp does not open a hunyuan-moe with biases",
    "olmoe": "llama.cpp opens an olmoe with as many heads of keys as of queries alone",
    "qwen2_moe": "llama.cpp does not open a qwen2moe with a dense layer",
    "starcoder2_bare": "llama.cpp does not open a starcoder2 without biases",
}


def convert_case(name: str, folder: Path, to: str) -> Path:
    """The golden model as a GGUF that both interpret alike."""
    reading = READINGS.get(name, PLAIN)
    changes = {"config_changes": reading.config, "neutral": reading.neutral}
    target = folder / f"{name}.{to}.gguf"
    convert(write_hf(folder / name, load_case(name), **changes), target, to=to)
    return target


def llama_logits(path: Path, sequences: Sequence[Sequence[int]], *, adapter: Path | None = None) -> Logits:
    """llama.cpp's logits of every row, perhaps with an adapter; sequences run separately."""
    rival: Any = import_module("llama_cpp")  # installed by `make rivals`
    rows: Logits = []
    for ids in sequences:
        n_rows = -(-len(ids) // LEAST_CONTEXT) * LEAST_CONTEXT
        sizes = {"n_ctx": n_rows, "n_batch": n_rows, "n_threads": 1, "n_threads_batch": 1}
        model = rival.Llama(
            str(path), logits_all=True, verbose=False, type_k=F32, type_v=F32, swa_full=True, **sizes,
            lora_path=str(adapter) if adapter else None,
        )  # fmt: skip
        model.eval(list(ids))
        rows.append(np.array(model.scores[: len(ids)]))
        model.close()
    return rows


def compare(name: str, folder: Path, to: str) -> float:
    """NMSE of Camelid's logits against llama.cpp's on one file, over the rows that can agree."""
    path, ids = convert_case(name, folder, to), load_case(name).token_ids
    loaded: Loaded = load_gguf(path)
    context = max(LEAST_CONTEXT, *map(len, ids))
    ours = reference_logits(loaded, ids, context=min(context, loaded.model.spec.context_length))
    rows = READINGS.get(name, PLAIN).rows
    cut: Callable[[NDArray[Any]], NDArray[Any]] = lambda logits: logits[:rows]  # noqa: E731
    return nmse([cut(row) for row in ours], [cut(row) for row in llama_logits(path, ids)])


def main(words: Sequence[str]) -> None:
    """The table for the given types and the cases whose names begin with another word; by default all."""
    types = [word for word in words if word in TYPES] or TYPES
    begun = tuple(word for word in words if word not in TYPES) or ("",)
    for case in (case for case in decoders() if case.name.startswith(begun)):
        if why := {**UNREAD, **NOT_COMPARED}.get(case.name):
            print(f"{case.name:<26}({why})")
            continue
        with tempfile.TemporaryDirectory() as folder:
            figures = [f"{to} {compare(case.name, Path(folder), to):.1e}" for to in types]
        why = READINGS.get(case.name, PLAIN).why
        print(f"{case.name:<26}{'  '.join(figures)}{'  (' + why + ')' if why else ''}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
