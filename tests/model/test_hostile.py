"""Well-formed files of impossible models: one clear error each, before memory or time is spent."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import load_case, weights_of, write_hf, write_safetensors
from tests.support.model.file_runs import load_hf
from tests.support.processor_time import within
from tests.support.vision_models import load_vision, write_vision

import camelid
from camelid.errors import CamelidError, ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.formats.gguf_writer import TensorOut, write_gguf
from camelid.formats.source import drive
from camelid.loading.convert_tower import convert_tower
from camelid.model.arch import Model
from camelid.model.checkpoint import checkpoint_of_gguf
from camelid.model.read import read_model
from camelid.model.vision.read import read_tower

MAX_SECONDS, MAX_BYTES = 2.0, 32 << 20
NAN, INF = float("nan"), float("inf")


def bounded(act: Callable[[], object]) -> None:
    """Runs a call within the limits of time and memory."""
    tracemalloc.start()
    try:
        with within(MAX_SECONDS):
            act()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MAX_BYTES


def rewrite(source: Path, target: Path, metadata: dict[str, Any]) -> None:
    """Writes the same tensors with other metadata."""
    header, raw = open_gguf(source), source.read_bytes()
    tensors = [
        TensorOut(t.name, t.type, t.shape, lambda t=t: [raw[t.offset : t.offset + t.n_bytes]])
        for t in header.tensors.values()
    ]
    write_gguf(target, metadata=metadata, kinds=header.kinds, tensors=tensors)


def read_with(path: Path, changes: dict[str, Any]) -> Model:
    """The tiny llama with other metadata."""
    header = open_gguf(path)
    kinds = {key: header.kinds.get(key, "any") for key in (*header.kinds, *changes)}
    changed = replace(header, metadata={**header.metadata, **changes}, kinds=kinds)
    with path.open("rb") as file:
        return drive(read_model(changed), lambda offset, n: (file.seek(offset), file.read(n))[1])


GGUF_ROWS: list[tuple[str, Any, type[CamelidError], str]] = [
    ("block_count", 0, ModelFormatError, "block_count is 0"),
    ("block_count", 2**23, ModelFormatError, "but the file has"),
    ("block_count", 2**40, ModelFormatError, "block_count is 1099511627776"),
    ("block_count", 1, TensorShapeError, "no rule of architecture 'llama' uses it"),
    ("block_count", 3, TensorShapeError, "blk.2.attn_norm.weight: found nothing"),
    ("embedding_length", 0, ModelFormatError, "embedding_length is 0"),
    ("embedding_length", 128, TensorShapeError, "expected shape"),
    ("attention.head_count", 0, ModelFormatError, "head_count is 0"),
    ("attention.head_count", [4, 2], UnsupportedModelError, "differs from layer to layer"),
    ("attention.head_count", [], UnsupportedModelError, "differs from layer to layer"),
    ("attention.head_count_kv", 3, ModelFormatError, "multiple of n_kv_heads"),
    ("attention.head_count_kv", -1, ModelFormatError, "head_count_kv is -1"),
    ("attention.key_length", 2**30, ModelFormatError, "key_length is"),
    ("attention.key_length", 2**14, ModelFormatError, "head_dim must be at most 8192"),
    ("attention.value_length", 32, ModelFormatError, "the same size"),
    ("feed_forward_length", 2**24 - 1, TensorShapeError, "expected shape"),
    ("context_length", 0, ModelFormatError, "context_length is 0"),
    ("context_length", 2**60, ModelFormatError, "context_length is"),
    ("attention.layer_norm_rms_epsilon", NAN, ModelFormatError, "expected a finite number"),
    ("attention.layer_norm_rms_epsilon", INF, ModelFormatError, "expected a finite number"),
    ("attention.layer_norm_rms_epsilon", -1e-5, ModelFormatError, "epsilon must be finite and positive"),
    ("attention.layer_norm_rms_epsilon", 1, ModelFormatError, "is expected"),
    ("attention.scale", NAN, ModelFormatError, "expected a finite number"),
    ("attn_logit_softcapping", -5.0, ModelFormatError, "softcaps must not be negative"),
    ("rope.freq_base", NAN, ModelFormatError, "expected a finite number"),
    ("rope.freq_base", 0.0, ModelFormatError, "theta must be finite and more than 1"),
    ("rope.freq_base", -5.0, ModelFormatError, "theta must be finite and more than 1"),
    ("rope.dimension_count", 66, ModelFormatError, "at most head_dim"),
    ("rope.dimension_count", 7, ModelFormatError, "even number"),
    ("rope.scaling.type", "magic", UnsupportedModelError, "'magic'; supported: none, linear"),
    ("rope.scaling.yarn_attn_factor", 1.5, UnsupportedModelError, "is 1.5, which is not supported"),
    ("rope.scaling.yarn_log_multiplier", 0.1, UnsupportedModelError, "yarn_log_multiplier is 0.1"),
    ("rope.scaling.yarn_ext_factor", 0.5, UnsupportedModelError, "yarn_ext_factor is 0.5"),
    ("rope.scaling.factor", NAN, ModelFormatError, "expected a finite number"),
    ("rope.scaling.factor", -2.0, ModelFormatError, "scaling must be positive"),
    ("rope.dimension_sections", [1, 2], UnsupportedModelError, "dimension_sections is"),
    ("rope.layers", [True], ModelFormatError, "has 1 items for 2 layers"),
    ("expert_gating_func", 9, UnsupportedModelError, "expert_gating_func is 9"),
    ("expert_used_count", 8, ModelFormatError, "is 8, but there are 4 experts"),
    ("expert_used_count", 0, ModelFormatError, "expert_used_count is 0"),
    ("experts_per_group", 3, ModelFormatError, "is 3, no divisor of 4 experts"),
    ("expert_group_count", 3, ModelFormatError, "is 3, no divisor of 4 experts"),
    ("expert_group_used_count", 2, ModelFormatError, "is 2, but there are 1 groups"),
    ("expert_group_count", 4, TensorShapeError, "ffn_gate_inp.weight: found nothing"),
    ("expert_used_count", 2, TensorShapeError, "ffn_gate_inp.weight: found nothing"),
    ("attention.sliding_window", -3, ModelFormatError, "sliding_window is -3"),
    ("hidden_activation", "swish9", ModelFormatError, "'swish9'; known: silu"),
    ("attention.causal", False, UnsupportedModelError, "causal is False"),
    ("pooling_type", 5, ModelFormatError, "pooling_type is 5, expected 0 to 4: 0 none, 1 mean"),
    ("pooling_type", -1, ModelFormatError, "pooling_type is -1"),
    ("pooling_type", "mean", ModelFormatError, "pooling_type"),
    ("pooling_type", 4, ModelFormatError, "but cls.output has 0 rows"),
    ("logit_scale", INF, ModelFormatError, "expected a finite number"),
]


@pytest.mark.parametrize(
    ("key", "value", "error", "words"), GGUF_ROWS, ids=[f"{row[0]}={row[1]}" for row in GGUF_ROWS]
)
def test_impossible_metadata(
    key: str, value: Any, error: type[CamelidError], words: str, tmp_path: Path
) -> None:
    write_tiny_llama(tmp_path / "m.gguf", seed=1)
    experts = {"llama.expert_count": 4, "llama.expert_used_count": 2} if key.startswith("expert") else {}
    yarn = {"llama.rope.scaling.type": "yarn"} if key.startswith("rope.scaling.yarn") else {}
    changes = {**experts, **yarn, f"llama.{key}": value}
    with pytest.raises(error, match=words):
        bounded(lambda: read_with(tmp_path / "m.gguf", changes))


class Counted(list[int]):
    """A list that counts the items that are read from it."""

    n_read = 0

    def __iter__(self) -> Iterator[int]:
        for item in super().__iter__():
            self.n_read += 1
            yield item

    def __getitem__(self, index: Any) -> Any:
        self.n_read += 1
        return super().__getitem__(index)


def test_a_list_of_the_layers_is_read_once(tmp_path: Path) -> None:
    """Reading it once per layer would take 2^30 list items for 2^15 layers."""
    write_tiny_llama(tmp_path / "m.gguf", seed=1)
    header, n = open_gguf(tmp_path / "m.gguf"), 1 << 15
    names = [*header.tensors, *map(str, range(n))]
    one = header.tensors["output_norm.weight"]
    tensors = {name: header.tensors.get(name, replace(one, name=name)) for name in names}
    windows = Counted([8] * n)
    changes: dict[str, Any] = {"llama.block_count": n, "llama.attention.sliding_window": windows}
    kinds = {**header.kinds, **dict.fromkeys(changes, "any")}
    changed = replace(header, metadata={**header.metadata, **changes}, kinds=kinds, tensors=tensors)
    with pytest.raises(TensorShapeError, match=r"blk\.2\.attn_norm\.weight: found nothing"):
        drive(read_model(changed), lambda *_: b"")
    assert n <= windows.n_read <= 4 * n


def test_a_table_of_rope_factors_has_a_limit(tmp_path: Path) -> None:
    path, numbers = tmp_path / "m.gguf", b"\0\0\x80?" * (1 << 21)
    write_tiny_llama(path, seed=1)
    header, raw = open_gguf(path), path.read_bytes()
    tensors = [
        TensorOut(t.name, t.type, t.shape, lambda t=t: [raw[t.offset : t.offset + t.n_bytes]])
        for t in header.tensors.values()
    ]
    factors = TensorOut("rope_freqs.weight", "f32", (1 << 21,), lambda: [numbers])
    write_gguf(path, metadata=header.metadata, kinds=header.kinds, tensors=[*tensors, factors])
    with pytest.raises(TensorShapeError, match=r"rope_freqs\.weight: shape .* at most 65536 numbers"):
        bounded(lambda: read_with(path, {}))


HF_ROWS: list[tuple[str, Any, type[CamelidError], str]] = [
    ("model_type", "llama9", UnsupportedModelError, "'llama9' is not supported; supported: "),
    ("model_type", "[" * 9999, UnsupportedModelError, r"model_type '\[{79} is not supported"),
    ("num_hidden_layers", 2**31 - 1, ModelFormatError, "num_hidden_layers is 2147483647"),
    ("num_hidden_layers", 10**30, ModelFormatError, "num_hidden_layers is"),
    ("num_hidden_layers", 0, ModelFormatError, "num_hidden_layers is 0"),
    ("num_hidden_layers", 1, TensorShapeError, "no rule of model_type 'mixtral' uses it"),
    ("num_attention_heads", 0, ModelFormatError, "num_attention_heads is 0"),
    ("num_attention_heads", 2**30, ModelFormatError, "head_count is"),
    ("num_key_value_heads", 3, ModelFormatError, "multiple of n_kv_heads"),
    ("hidden_size", 2**31 - 1, ModelFormatError, "embedding_length is"),
    ("head_dim", 2**30, ModelFormatError, "head_dim is"),
    ("vocab_size", "many", ModelFormatError, "vocab_size is"),
    ("vocab_size", 97, TensorShapeError, "vocab_size is 97, but the embedding has 96 rows"),
    ("rms_norm_eps", 2.0, ModelFormatError, "epsilon must be finite and positive"),
    ("rope_theta", 1e-300, ModelFormatError, "rope_theta is"),
    ("rope_theta", "big", ModelFormatError, "rope_theta is"),
    ("rope_scaling", {"type": "ntk", "factor": 2.0}, UnsupportedModelError, "'ntk'"),
    ("rope_scaling", {"type": "dynamic", "alpha": 9.0}, UnsupportedModelError, "alpha is 9.0"),
    ("rope_scaling", {"type": "linear", "factor": 0.0}, ModelFormatError, "factor is 0.0"),
    ("rope_scaling", {"type": "longrope", "long_factor": [0.0]}, ModelFormatError, "one per pair"),
    ("rope_scaling", [1], ModelFormatError, "rope_scaling is"),
    ("num_local_experts", 10**9, ModelFormatError, "num_local_experts is"),
    ("num_local_experts", 30, ModelFormatError, "num_local_experts is 30"),
    ("num_local_experts", 3, TensorShapeError, "uses it|expected shape"),
    ("num_local_experts", 5, TensorShapeError, "expected 5 of one type and shape"),
    ("num_experts_per_tok", 5, ModelFormatError, "is 5, but there are 4 experts"),
    ("hidden_act", "mish", UnsupportedModelError, "hidden_act is 'mish'"),
    ("sliding_window", -1, ModelFormatError, "sliding_window is -1"),
    ("tie_word_embeddings", 1, ModelFormatError, "tie_word_embeddings is 1"),
    ("quantization_config", {"quant_method": "gptq"}, UnsupportedModelError, "quantization_config is .gptq."),
]


@pytest.mark.parametrize(
    ("key", "value", "error", "words"), HF_ROWS, ids=[f"{row[0]}={str(row[1])[:20]}" for row in HF_ROWS]
)
def test_impossible_settings(
    key: str, value: Any, error: type[CamelidError], words: str, tmp_path: Path
) -> None:
    folder = write_hf(tmp_path / "m", load_case("mixtral"), config_changes={key: value})
    with pytest.raises(error, match=words):
        bounded(lambda: load_hf(folder))


def test_unused_or_missing_tensors_are_refused(tmp_path: Path) -> None:
    case = load_case("qwen2")
    folder = write_hf(tmp_path / "m", case)
    weights = weights_of(case)
    write_safetensors(
        folder / "model.safetensors", {**weights, "model.layers.0.extra.weight": weights["model.norm.weight"]}
    )
    with pytest.raises(TensorShapeError, match=r"model\.layers\.0\.extra\.weight: no rule"):
        load_hf(folder)
    weights.pop("model.layers.1.mlp.up_proj.weight")
    write_safetensors(folder / "model.safetensors", weights)
    with pytest.raises(TensorShapeError, match=r"blk\.1\.ffn_up\.weight: found nothing"):
        load_hf(folder)


def test_files_beside_the_weights_may_be_empty(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", load_case("qwen2"))
    (folder / "notes.txt").touch()
    with camelid.load(folder, backend="reference") as llm:
        assert len(llm.generate([1, 2, 3], max_tokens=2).token_ids) == 2


def test_weights_deleted_before_the_read_are_an_error(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", load_case("qwen2"))

    def empty(what: str, stage: int, of: int) -> None:
        if what == "loading weights":
            (folder / "model.safetensors").write_bytes(b"")

    with pytest.raises(ModelFormatError, match=r"model\.safetensors: cannot be read"):
        camelid.load(folder, backend="reference", progress=empty)


def test_nan_weights_end_the_answer_with_an_error(tmp_path: Path) -> None:
    """A NaN weight reaches the logits; generation stops with an error instead of an arbitrary token."""
    case = load_case("qwen2")
    folder = write_hf(tmp_path / "m", case)
    weights = weights_of(case)
    weights["model.norm.weight"] = weights["model.norm.weight"] * float("nan")
    write_safetensors(folder / "model.safetensors", weights)
    with (
        camelid.load(folder, backend="reference") as llm,
        pytest.raises(CamelidError, match="are not a number"),
    ):
        llm.generate([1, 2, 3], max_tokens=2)


def test_a_tokenizer_of_mismatched_size_is_refused(tmp_path: Path) -> None:
    """The model could otherwise sample an id without text in the middle of an answer."""
    write_tiny_llama(tmp_path / "m.gguf", seed=1, vocab=320)
    header = open_gguf(tmp_path / "m.gguf")
    for n in (300, 330):
        metadata = dict(header.metadata)
        for key, filler in (("tokens", "<{}>"), ("token_type", 1)):
            items: list[Any] = header.get(f"tokenizer.ggml.{key}", list[type(filler)])  # type: ignore[misc]
            more = [str(filler).format(i) if isinstance(filler, str) else filler for i in range(10)]
            metadata[f"tokenizer.ggml.{key}"] = [*items, *more][:n]
        rewrite(tmp_path / "m.gguf", tmp_path / f"{n}.gguf", metadata)
        with pytest.raises(ModelFormatError, match=f"{n} tokens, but"):
            camelid.load(tmp_path / f"{n}.gguf", backend="reference")


def test_unmerged_experts_are_refused_by_name(tmp_path: Path) -> None:
    """Mixtral files of early 2024 store each expert as a separate tensor."""
    write_tiny_llama(tmp_path / "m.gguf", seed=1)
    raw = (tmp_path / "m.gguf").read_bytes()
    old = raw.replace(b"blk.0.ffn_gate.weight", b"blk.0.ffn_up.0.weight")
    (tmp_path / "old.gguf").write_bytes(old)
    with pytest.raises(UnsupportedModelError, match=r"one tensor for each expert.*convert the model again"):
        camelid.load(tmp_path / "old.gguf")


TOWER_ROWS: list[tuple[str, str, Any, str]] = [
    ("gemma3", "clip.projector_type", "mlp", "projector 'mlp' is not supported; supported: gemma3"),
    ("gemma3", "general.architecture", "llama", "expected 'clip', as mmproj files have"),
    ("gemma3", "clip.use_gelu", False, "neither clip.use_gelu nor clip.use_silu"),
    ("gemma3", "clip.vision.image_size", 33, "expected patches of 4 pixels"),
    ("gemma3", "clip.vision.image_size", 2**20, "expected patches of 4 pixels"),
    ("gemma3", "clip.vision.image_size", 64, "position_embd.weight: found"),
    ("gemma3", "clip.vision.patch_size", 0, "patch_size is 0"),
    ("gemma3", "clip.vision.block_count", 2**20, "but the file has"),
    ("gemma3", "clip.vision.block_count", 1, "no rule of projector 'gemma3' uses it"),
    ("gemma3", "clip.vision.attention.head_count", 5, "which 5 heads do not divide"),
    ("gemma3", "clip.vision.projector.scale_factor", 3, "are not whole squares"),
    ("gemma3", "clip.vision.image_mean", [0.5], "expected 3 numbers"),
    ("gemma3", "clip.vision.image_std", [0.5, 0.0, 0.5], "expected 3 numbers"),
    ("gemma3", "clip.vision.image_mean", [NAN, 0.5, 0.5], "expected 3 numbers"),
    ("gemma3", "clip.vision.attention.layer_norm_epsilon", NAN, "expected a finite number"),
    ("qwen2_5_vl", "clip.vision.n_wa_pattern", -1, "n_wa_pattern is -1"),
    ("qwen2_5_vl", "clip.vision.window_size", 1, "window_size is 1"),
    ("qwen2_5_vl", "clip.vision.spatial_merge_size", 2**20, "makes squares of"),
    ("qwen2_5_vl", "clip.vision.image_max_pixels", 2**40, "image_max_pixels 1099511627776"),
    ("qwen2_5_vl", "clip.vision.image_min_pixels", -5, "image_min_pixels is -5"),
    ("qwen3_vl", "clip.vision.image_size", 2**9, "makes 16384 positions"),
    ("qwen3_vl", "clip.vision.is_deepstack_layers", [True] * 4, "taps the last layer"),
    ("qwen3_vl", "clip.vision.is_deepstack_layers", [True], "has 1 items for 4 layers"),
    ("qwen3_vl", "clip.vision.is_deepstack_layers", [True, False, False, False], "no rule of projector"),
]


@pytest.mark.parametrize(
    ("case", "key", "value", "words"), TOWER_ROWS, ids=[f"{row[1]}={row[2]}" for row in TOWER_ROWS]
)
def test_impossible_towers(case: str, key: str, value: Any, words: str, tmp_path: Path) -> None:
    convert_tower(write_vision(tmp_path / "m", load_vision(case)), tmp_path / "tower.gguf")
    header = open_gguf(tmp_path / "tower.gguf")
    changed = replace(header, metadata={**header.metadata, key: value}, kinds={**header.kinds, key: "any"})
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=words):
        bounded(lambda: read_tower(checkpoint_of_gguf(changed)))
