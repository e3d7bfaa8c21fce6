"""convert and quantize: exact folds, the gguf package's bytes; invalid inputs leave no file behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize
from numpy.typing import NDArray
from tests.support.exhaustive import every
from tests.support.gguf_files import write_tiny_llama
from tests.support.hf_models import (
    HfCase,
    load_case,
    load_cases,
    nmse,
    weights_of,
    write_hf,
    write_safetensors,
)
from tests.support.model.file_runs import load_gguf, load_hf, reference_logits

from camelid.errors import CamelidError, ModelFormatError, RequestError
from camelid.loading.convert import convert

CASES = load_cases()
STATED = {"bitnet"}  # transformers squares a ReLU, llama.cpp's files without the key gate by SiLU


def tensors_of(path: Path) -> dict[str, Any]:
    """Every tensor by name, read by the gguf package."""
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def values_of(tensor: Any) -> NDArray[np.float32]:
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])


@pytest.mark.parametrize("case", every(3, CASES), ids=str)
def test_a_converted_models_logits_equal_those_of_transformers(case: HfCase, tmp_path: Path) -> None:
    convert(write_hf(tmp_path / "hf", case, dtype="bf16"), tmp_path / "m.gguf")
    loaded = load_gguf(tmp_path / "m.gguf")
    got = [
        reference_logits(loaded, [ids], context=len(ids), types=[case.token_types(ids)])[0]
        for ids in case.token_ids
    ]
    assert nmse(got, case.logits) <= 1e-10
    # Other converters omit it, so the row must contain the published model's value.
    keys = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert any(key.endswith("hidden_activation") for key in keys) == (case.name in STATED)


def turned(values: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Moves row i + j * half of each published head to row 2i + j, spelled out."""
    out = np.empty_like(values)
    head_dim = len(values) // n_heads
    for h in range(n_heads):
        for i in range(head_dim // 2):
            for j in range(2):
                out[h * head_dim + 2 * i + j] = values[h * head_dim + i + j * head_dim // 2]
    return out


def test_folds_are_exact(tmp_path: Path) -> None:
    llama, gemma, gpt2 = (load_case(name) for name in ("llama31", "gemma2", "gpt2"))
    for case in (llama, gemma, gpt2):
        convert(write_hf(tmp_path / case.name, case), tmp_path / f"{case.name}.gguf", to="f32")
    weights, tensors = weights_of(llama), tensors_of(tmp_path / "llama31.gguf")
    for name, n_heads in (("q", 4), ("k", 2)):
        want = turned(weights[f"model.layers.1.self_attn.{name}_proj.weight"], n_heads)
        assert np.array_equal(values_of(tensors[f"blk.1.attn_{name}.weight"]), want)
    norm = weights_of(gemma)["model.layers.0.input_layernorm.weight"]
    assert np.array_equal(values_of(tensors_of(tmp_path / "gemma2.gguf")["blk.0.attn_norm.weight"]), norm + 1)
    qkv = weights_of(gpt2)["transformer.h.0.attn.c_attn.weight"]
    assert np.array_equal(values_of(tensors_of(tmp_path / "gpt2.gguf")["blk.0.attn_qkv.weight"]), qkv.T)


def test_query_heads_of_plamo_follow_their_key_heads(tmp_path: Path) -> None:
    """Published head 2 i + k reads key head k; in GGUF, head 4 k + i does."""
    case = load_case("plamo")
    convert(write_hf(tmp_path / "hf", case), tmp_path / "m.gguf", to="f32")
    weights, tensors = weights_of(case), tensors_of(tmp_path / "m.gguf")
    attention = "model.layers.layers.1.self_attn."
    q = weights[f"{attention}q_proj.weight"].reshape(4, 2, 8, 64)  # [i, k, head_dim, in]
    o = weights[f"{attention}o_proj.weight"].reshape(64, 4, 2, 8)  # [out, i, k, head_dim]
    got = [values_of(tensors[f"blk.1.attn_{name}.weight"]) for name in ("q", "output")]
    assert np.array_equal(got[0], q.swapaxes(0, 1).reshape(64, 64))
    assert np.array_equal(got[1], o.swapaxes(1, 2).reshape(64, 64))


def test_a_hybrid_has_the_layout_of_gguf(tmp_path: Path) -> None:
    """Names and shapes are those of llama.cpp's granitehybrid; what a scan takes stays float32."""
    case = load_case("granitemoehybrid")
    convert(write_hf(tmp_path / "hf", case), tmp_path / "m.gguf", to="q8_0")
    tensors, blk = tensors_of(tmp_path / "m.gguf"), "model.layers.0."
    weights = {n.removeprefix(blk): w for n, w in weights_of(case).items() if n.startswith(blk)}
    gate_up = weights["block_sparse_moe.input_linear.weight"]
    want = {
        "ssm_a": -np.exp(weights["mamba.A_log"])[:, None],
        "ssm_d": weights["mamba.D"][:, None],
        "ssm_dt.bias": weights["mamba.dt_bias"],
        "ssm_conv1d.weight": weights["mamba.conv1d.weight"][:, 0],
        "ssm_norm.weight": weights["mamba.norm.weight"].reshape(2, 64),
    }
    for name, values in want.items():
        assert tensors[f"blk.0.{name}"].tensor_type.name == "F32"
        assert np.allclose(values_of(tensors[f"blk.0.{name}"]), values, rtol=1e-6, atol=0.0)
    for name, values in (("gate", gate_up[:, :96]), ("up", gate_up[:, 96:])):
        got = tensors[f"blk.0.ffn_{name}_exps.weight"]
        assert np.asarray(got.data).tobytes() == quantize(values, got.tensor_type).tobytes()
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert fields["granitehybrid.attention.head_count_kv"].contents() == [0, 2, 0]


def test_value_heads_are_in_ggufs_order(tmp_path: Path) -> None:
    """qwen35: the first value head of each key head, then the second of each, and so on."""
    case = load_case("qwen3_5")
    convert(write_hf(tmp_path / "hf", case), tmp_path / "m.gguf", to="f32")
    tensors, blk = tensors_of(tmp_path / "m.gguf"), "model.layers.0.linear_attn."
    weights = {n.removeprefix(blk): w for n, w in weights_of(case).items() if n.startswith(blk)}
    heads = [0, 3, 1, 4, 2, 5]  # of 2 key heads
    rows = np.concatenate([np.arange(32 * head, 32 * head + 32) for head in heads])
    behind = np.concatenate([np.arange(128), 128 + rows])  # keys and queries come first
    want = {
        "ssm_a": -np.exp(weights["A_log"][heads]),
        "ssm_dt.bias": weights["dt_bias"][heads],
        "ssm_beta.weight": weights["in_proj_b.weight"][heads],
        "ssm_alpha.weight": weights["in_proj_a.weight"][heads],
        "attn_gate.weight": weights["in_proj_z.weight"][rows],
        "attn_qkv.weight": weights["in_proj_qkv.weight"][behind],
        "ssm_conv1d.weight": weights["conv1d.weight"][behind, 0],
        "ssm_out.weight": weights["out_proj.weight"][:, rows],
    }
    for name, values in want.items():
        assert np.allclose(values_of(tensors[f"blk.0.{name}"]), values, rtol=1e-6, atol=0.0), name
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert fields["qwen35.rope.dimension_sections"].contents() == [2, 1, 1, 0]


@pytest.mark.parametrize("to", ["f16", "bf16", "q8_0"])
def test_converted_bytes_equal_those_of_the_gguf_package(to: str, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", load_case("mixtral"), dtype="f32", n_shards=3)
    convert(folder, tmp_path / "m.f32.gguf", to="f32")
    convert(folder, tmp_path / "m.gguf", to=to)
    check_types(tensors_of(tmp_path / "m.gguf"), tensors_of(tmp_path / "m.f32.gguf"), to)


def check_types(after: dict[str, Any], before: dict[str, Any], to: str) -> None:
    """Matrices have the type and its bytes; vectors and routers are unchanged."""
    assert after.keys() == before.keys()
    for name, tensor in after.items():
        values = values_of(before[name])
        kind = "f32" if values.ndim == 1 or "ffn_gate_inp" in name else to
        assert tensor.tensor_type.name.lower() == kind, name
        want = quantize(values, gguf.GGMLQuantizationType[kind.upper()])
        assert np.asarray(tensor.data).tobytes() == want.tobytes(), name


def test_rows_with_partial_blocks_become_f16_with_a_note(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "m.gguf", seed=3, type="f32", ffn=72)
    written = convert(tmp_path / "m.gguf", tmp_path / "q.gguf", to="q4_0")
    assert written.types["f16"] == 2
    assert any("2 tensors are f16, as q4_0 blocks do not divide" in note for note in written.notes)


def test_requantizing_is_reported(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "m.gguf", seed=3, type="q8_0")
    written = convert(tmp_path / "m.gguf", tmp_path / "q.gguf", to="q4_0")
    assert any(note.startswith("from q8_0: more is lost") for note in written.notes)


def test_metadata_and_tokenizer_survive(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "m.gguf", seed=3, type="f32")
    convert(tmp_path / "m.gguf", tmp_path / "q.gguf", to="q8_0")
    before, after = (gguf.GGUFReader(tmp_path / name).fields for name in ("m.gguf", "q.gguf"))
    for key, field in before.items():
        if not key.startswith("GGUF.") and key != "general.file_type":
            assert after[key].contents() == field.contents(), key
            assert after[key].types == field.types, key


def broken(tmp_path: Path, value: float) -> Path:
    """A directory whose last matrix has one invalid value."""
    case = load_case("qwen2")
    folder = write_hf(tmp_path / "hf", case)
    weights = weights_of(case)
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name] = weights[name].copy()
    weights[name][3, 5] = value
    write_safetensors(folder / "model.safetensors", weights)
    return folder


@pytest.mark.parametrize(
    ("value", "to", "words"),
    [
        (float("nan"), "q8_0", "blk.1.ffn_up.weight: value .* is nan"),
        (float("inf"), "f16", "blk.1.ffn_up.weight: value .* is inf"),
        (1e6, "f16", "blk.1.ffn_up.weight: values up to 1e.06 overflow f16; convert to bf16"),
    ],
)
def test_values_that_a_type_cannot_hold(value: float, to: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=words):
        convert(broken(tmp_path, value), tmp_path / "m.gguf", to=to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"], "a failed conversion left a file"


def test_invalid_targets_and_types_are_refused(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "m.gguf", seed=3, type="f32")
    before = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "link.gguf").symlink_to(tmp_path / "m.gguf")
    for target, to, words in (
        ("m.gguf", "q8_0", "the target is the source"),
        ("link.gguf", "q8_0", "the target is the source"),
        (".", "q8_0", "is a directory"),
        ("q.gguf", "q4_k", "'q4_k' cannot be written; known: f32"),
    ):
        with pytest.raises(RequestError, match=words):
            convert(tmp_path / "m.gguf", tmp_path / target, to=to)
    with pytest.raises(CamelidError, match="no/such/place"):
        convert(tmp_path / "m.gguf", tmp_path / "no/such/place/q.gguf", to="q8_0")
    assert (tmp_path / "m.gguf").read_bytes() == before


def test_a_model_directory_is_never_written_to(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", load_case("qwen3"))
    with pytest.raises(RequestError, match="the target is the source"):
        convert(folder, folder / "model.safetensors", to="f16")
    assert load_hf(folder).model.spec.arch == "qwen3"
