"""Hugging Face folders of tiny random models with logits computed by transformers (golden/archs/).

A case holds a config, tensor names and shapes, token ids and logits. Weights are not stored: exact integer
steps generate them with the same bits on every machine.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.formats.settings import Config
from camelid.model.archs import HF_ROWS, row_name
from camelid.model.hf_rows import HfRow

Weights = dict[str, NDArray[np.float32]]
Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "golden" / "archs"
# By name: output spread of a matrix for inputs of spread 1. Scores and logits spread by about 2,
# routers have clear preferences, and layers outweigh the embedding: every part shows in the logits.
GAINS = {
    "q_proj": 1.4,
    "k_proj": 1.4,
    "qkv_proj": 1.4,
    "c_attn": 1.4,
    "wqkv": 1.4,
    "Wqkv": 1.4,
    "W_pack": 1.4,
    "query_key_value": 1.4,
    "query": 1.4,
    "key": 1.4,
    "q": 0.3,  # T5 does not scale scores
    "classifier": 1.4,
    "embed_out": 2.0,
    "lm_head": 2.0,
    "output_layer": 2.0,
    "output": 2.0,
    "gate": 1.5,  # a router
    "primary_router": 1.5,
    "layer": 1.5,  # Granite's
}
STEEP = {"relative_attention_bias": 1.0}  # spread, whatever the width: a bias is added to scores
ROUTER = ".router.proj.weight"  # of Gemma 4, which reads rows of length 1: its spread is that of the logits
# Mamba's, with decays from slow to fast; the scores of attention sinks; xIELU's
VECTORS = {"A_log": 1.5, "dt_bias": 1.0, "D": 1.0, "sinks": 1.5, "alpha_p": 1.0, "alpha_n": 2.0, "eps": 1.0}
STACKS = {"gate_up_proj": 3.5, "down_proj": 0.3}  # of gpt-oss, whose gates are clamped at 7
AROUND_0 = "gemma(?!3n|4).*|qwen3_next|qwen3_5.*|nemotron|plamo2"  # families whose norms are stored less 1
AROUND_1 = (
    ".linear_attn.",
    "vision_tower.",
    ".mixer.",
)  # parts with norms that are stored whole
GAINS_ALONE = (".layer_scalar", ".scale", ".per_expert_scale")  # without the ending of a norm's gain
NORMS = ("norm.weight", "mixer.q_weight", "mixer.k_weight")
EMBEDDINGS = (
    "embed_tokens",
    "shared",
    "embed_in",
    "embed_positions",
    "wte",
    "wpe",
    "tok_embeddings",
    "word_embeddings",
    "token_embeddings",
    "position_embeddings",
    "token_type_embeddings",
)
EMBEDDING_SPREAD = 0.25  # standard deviation: a tied head of 64 inputs then gives logits of spread 2
GENERATES, RANKS, ENCODES = ("ForCausalLM", "ForSequenceClassification", "Model")
TRANSDUCES, ENCODER = ("ForConditionalGeneration", "EncoderModel")  # of an encoder and a decoder
HEADS = (GENERATES, RANKS, TRANSDUCES, ENCODER, ENCODES)
TYPES = {"f32": ("F32", "float32"), "f16": ("F16", "float16"), "bf16": ("BF16", "bfloat16")}


@dataclass(frozen=True, slots=True, kw_only=True)
class HfCase:
    """One golden model. `logits` holds an array for each sequence of `token_ids`: logits [T, V] of a causal
    model, hidden states [T, C] of an encoder, scores [1, L] of a ranking model. The first three quarters of a
    sequence are the encoder's if the model has an encoder and a decoder, whose logits [T, V] are stored.
    """

    name: str
    config: Json
    seed: int
    tensors: dict[str, list[int]]
    token_ids: list[list[int]]
    logits: list[NDArray[np.float32]]
    weights_crc32: int
    pooling: str = ""
    dense: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def model_type(self) -> str:
        return self.config["model_type"]

    @property
    def row(self) -> HfRow:
        return HF_ROWS[row_name(Config(self.config))]

    @property
    def head(self) -> str:
        """The kind of output, by the class of the config."""
        return head_of(self.config["architectures"][0])

    def token_types(self, ids: Sequence[int]) -> list[int]:
        """The types of a sequence's tokens: in a ranking model with two types, the last third is a second
        text.
        """
        has_two = self.head == RANKS and self.config.get("type_vocab_size", 1) > 1
        return [int(has_two and 3 * i >= 2 * len(ids)) for i in range(len(ids))]


def head_of(name: str) -> str:
    """The kind of output of a class of transformers."""
    is_decoder = name.endswith(("LMHeadModel", "ChatGLMModel"))  # decoders not named ForCausalLM
    return GENERATES if is_decoder else next(head for head in HEADS if name.endswith(head))


def halves(ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The tokens of an encoder and of the decoder behind it."""
    at = 3 * len(ids) // 4
    return ids[:at], ids[at:]


def n_rows(architecture: str, ids: Sequence[int], *, is_pooled: bool) -> int:
    """Rows of a sequence's output."""
    if architecture.endswith(TRANSDUCES):
        return len(halves(ids)[1])
    return 1 if architecture.endswith(RANKS) or is_pooled else len(ids)


def load_cases() -> list[HfCase]:
    return [load_case(path.stem) for path in sorted(FOLDER.glob("*.json"))]


def decoders() -> list[HfCase]:
    """The cases with logits of every row."""
    return [case for case in load_cases() if case.head == GENERATES]


def load_case(name: str) -> HfCase:
    raw: Json = json.loads((FOLDER / f"{name}.json").read_text())
    packed = [np.frombuffer(base64.b64decode(text), "<f4") for text in raw.pop("logits")]
    name_of_class, is_pooled = raw["config"]["architectures"][0], bool(raw.get("pooling"))
    counts = [n_rows(name_of_class, ids, is_pooled=is_pooled) for ids in raw["token_ids"]]
    logits = [flat.reshape(n, -1) for flat, n in zip(packed, counts, strict=True)]  # [T, V]
    dense = tuple((rows, cols) for rows, cols in raw.pop("dense", ()))
    return HfCase(name=name, logits=logits, dense=dense, **raw)


def weights_of(case: HfCase, *, neutral: Iterable[str] = ()) -> Weights:
    """Every tensor of the model, float32 values that float16 and bfloat16 represent exactly.

    Tensors whose names end in one of `neutral` have no effect: biases are 0, norms keep the scale.
    """
    endings = tuple(neutral)
    return {
        name: (_neutral if endings and name.endswith(endings) else _random)(case, name)
        for name in case.tensors
    }


def weights_crc32(case: HfCase) -> int:
    crc = 0
    for value in weights_of(case).values():
        crc = zlib.crc32(value.astype("<f4").tobytes(), crc)
    return crc


def write_hf(
    directory: str | PathLike[str],
    case: HfCase,
    *,
    dtype: str = "f32",
    n_shards: int = 1,
    config_changes: Mapping[str, Any] | None = None,
    neutral: Iterable[str] = (),
) -> Path:
    """Writes the model as a published repository in f32, f16 or bf16; its weights are equal in all three."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    _write_configs(folder, {**case.config, **(config_changes or {})}, TYPES[dtype][1])
    weights = weights_of(case, neutral=neutral)
    if n_shards == 1:
        write_safetensors(folder / "model.safetensors", weights, dtype=dtype)
    else:
        _write_shards(folder, weights, dtype, n_shards)
    _write_modules(folder, case, dtype)
    return folder


def dense_of(case: HfCase) -> list[NDArray[np.float32]]:
    """The matrices after the pooling."""
    named = {f"dense_{i}.weight": list(shape) for i, shape in enumerate(case.dense)}
    return list(weights_of(replace(case, tensors=named)).values())


def _write_modules(folder: Path, case: HfCase, dtype: str) -> None:
    """The settings of sentence-transformers, of a case with a pooling."""
    if not case.pooling:
        return
    kinds = ["Transformer", "Pooling", *("Dense" for _ in case.dense)]
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds[1:], 1))]
    modules = [{"path": path, "type": f"x.{kind}"} for path, kind in zip(paths, kinds, strict=True)]
    (folder / "modules.json").write_text(json.dumps(modules))
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)
    mode = {"last": "lasttoken"}.get(case.pooling, case.pooling)
    (folder / paths[1] / "config.json").write_text(json.dumps({"pooling_mode": mode}))
    for path, matrix in zip(paths[2:], dense_of(case), strict=True):
        (folder / path / "config.json").write_text(json.dumps({"bias": False}))
        write_safetensors(folder / path / "model.safetensors", {"linear.weight": matrix}, dtype=dtype)


def write_safetensors(path: Path, weights: Mapping[str, NDArray[Any]], *, dtype: str = "f32") -> None:
    """Writes a safetensors file without the safetensors package, which has no bfloat16 for NumPy. Bytes stay
    bytes.
    """
    blobs = {name: _packed(value, dtype) for name, value in weights.items()}
    header: Json = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, blob in blobs.items():
        begin, end = end, end + len(blob)
        shape = list(weights[name].shape)
        kind = "U8" if weights[name].dtype == np.uint8 else TYPES[dtype][0]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs.values()))


def nmse(got: Sequence[NDArray[Any]], want: Sequence[NDArray[Any]]) -> float:
    """Squared error over squared spread around each row's mean, summed over all sequences."""
    pairs = [(np.asarray(g, "f8"), np.asarray(w, "f8")) for g, w in zip(got, want, strict=True)]
    spread = sum(float(np.square(w - w.mean(-1, keepdims=True)).sum()) for _, w in pairs)
    return sum(float(np.square(g - w).sum()) for g, w in pairs) / spread


def _write_configs(folder: Path, config: Json, type_name: str) -> None:
    key = "dtype" if "dtype" in config else "torch_dtype"
    stated = ("bos_token_id", "eos_token_id", "transformers_version")
    generation = {name: config[name] for name in stated if name in config}
    generation["_from_model_config"] = True
    (folder / "config.json").write_text(json.dumps({**config, key: type_name}, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def _write_shards(folder: Path, weights: Weights, dtype: str, n_shards: int) -> None:
    names = list(weights)
    files: dict[str, str] = {}
    for i in range(n_shards):
        part = names[len(names) * i // n_shards : len(names) * (i + 1) // n_shards]
        file = f"model-{i + 1:05d}-of-{n_shards:05d}.safetensors"
        files |= dict.fromkeys(part, file)
        write_safetensors(folder / file, {name: weights[name] for name in part}, dtype=dtype)
    total = sum(len(_packed(value, dtype)) for value in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _packed(value: NDArray[Any], dtype: str) -> bytes:
    if value.dtype == np.uint8:
        return value.tobytes()
    if dtype == "bf16":  # the upper half of a float32, exact: the lower half is zero
        return (value.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return value.astype({"f32": "<f4", "f16": "<f2"}[dtype]).tobytes()


def _random(case: HfCase, name: str) -> NDArray[np.float32]:
    shape = case.tensors[name]
    if _is_causal_mask(name, shape):
        return np.tril(np.ones(shape, np.float32))
    values = _bell(zlib.crc32(f"{case.seed}/{name}".encode()), int(np.prod(shape))).reshape(shape)
    return _in_8_bits(_middle(case, name) + values * _spread(case, name))


def _neutral(case: HfCase, name: str) -> NDArray[np.float32]:
    return np.full(case.tensors[name], _middle(case, name), np.float32)


def _middle(case: HfCase, name: str) -> float:
    """Norms scale by about 1; some families store the difference from 1."""
    is_norm = name.endswith("weight") and (len(case.tensors[name]) == 1 or name.endswith(NORMS))
    is_norm = is_norm or name.endswith(GAINS_ALONE)
    is_around_0 = re.fullmatch(AROUND_0, case.config["model_type"]) and not any(
        part in name for part in AROUND_1
    )
    return 1.0 if is_norm and not is_around_0 else 0.0


def _spread(case: HfCase, name: str) -> float:
    shape = case.tensors[name]
    part, last = name.split(".")[-2:]
    if len(shape) < 2 or part.endswith("norm"):
        return VECTORS.get(last, 0.2)
    if part in EMBEDDINGS:
        return EMBEDDING_SPREAD
    if name.endswith(ROUTER):
        return 1.5
    if part in STEEP:
        return STEEP[part]
    if last in STACKS:  # [experts, in, out]
        return STACKS[last] / float(np.sqrt(shape[-2]))
    fan_in = shape[0] if case.config["model_type"] in ("gpt2", "jais") else shape[-1]  # gpt2 stores [in, out]
    return GAINS.get(part, 1.0) / float(np.sqrt(fan_in))


def _is_causal_mask(name: str, shape: list[int]) -> bool:
    """True for the causal mask that published gpt2 files hold in each layer."""
    return name.endswith("attn.bias") and len(shape) == 4


def _bell(seed: int, n: int) -> NDArray[np.float64]:
    """Bell-shaped, spread 1, within 3.5: a sum of four 16-bit integers, equal on every libm and release."""
    raw = np.random.PCG64(seed).random_raw(n)
    total = sum((raw >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    return (np.asarray(total, np.float64) - 2 * 65535) * float(np.sqrt(3.0)) / 65536


def _in_8_bits(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The nearest bfloat16; small values are multiples of 2**-16, which float16 represents."""
    bits = values.astype(np.float32).view(np.uint32)
    short = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
    return (np.round(short * np.float32(65536)) / np.float32(65536)).astype(np.float32)
