"""Latent attention in older GGUF files, and layers of multi-token prediction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize
from tests.support.hf_models import load_case, nmse, weights_of, write_hf, write_safetensors
from tests.support.model.file_runs import load_gguf, load_hf, reference_logits, run

from camelid.errors import CamelidError
from camelid.loading.convert import convert
from camelid_native.cpu.backend import open_backend

CASE = load_case("deepseek_v3")
H, NOPE, ROPE, VALUE = (CASE.config[key] for key in (
    "num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"
))  # fmt: skip
# As converters of before April 2025 wrote them.
OLD_KEYS = {
    "attention.head_count_kv": H,
    "attention.key_length": NOPE + ROPE,
    "attention.value_length": VALUE,
    "attention.key_length_mla": None,
    "attention.value_length_mla": None,
}


def rewritten(source: Path, target: Path, keys: dict[str, Any], tensors: dict[str, Any]) -> None:
    """A copy with other values; None leaves a key or tensor out."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "deepseek2")
    own = {f"deepseek2.{name}": value for name, value in keys.items()}
    kept = {name: f.contents() for name, f in reader.fields.items() if name.startswith("deepseek2.")}
    for name, value in (kept | own).items():
        if value is not None:
            add = {bool: writer.add_bool, float: writer.add_float32, str: writer.add_string}
            add.get(type(value), writer.add_uint32)(name, value)
    for name, data in ({t.name: t.data for t in reader.tensors} | tensors).items():
        if isinstance(data, tuple):
            writer.add_tensor(name, data[0], raw_dtype=data[1])
        elif data is not None:
            writer.add_tensor(name, np.asarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("latent")
    convert(write_hf(folder / "hf", CASE), folder / "m.gguf", to="f32")
    return folder / "m.gguf"


def old(file: Path, target: Path, kind: str) -> Path:
    """The file of 2024: one matrix expands the latent."""
    raw_type = gguf.GGMLQuantizationType[kind.upper()]
    tensors: dict[str, Any] = {}
    for i in range(3):
        kv_b = weights_of(CASE)[f"model.layers.{i}.self_attn.kv_b_proj.weight"]
        tensors |= {f"blk.{i}.attn_k_b.weight": None, f"blk.{i}.attn_v_b.weight": None}
        tensors[f"blk.{i}.attn_kv_b.weight"] = quantize(kv_b, raw_type), raw_type
    rewritten(file, target, OLD_KEYS, tensors)
    return target


@pytest.mark.parametrize(("kind", "most"), [("f32", 1e-10), ("f16", 1e-10), ("q8_0", 1e-3)])
def test_a_file_with_one_expanding_matrix(kind: str, most: float, file: Path, tmp_path: Path) -> None:
    loaded = load_gguf(old(file, tmp_path / "old.gguf", kind))
    want = reference_logits(loaded, CASE.token_ids, context=64)
    assert nmse(want, CASE.logits) <= most
    got = asyncio.run(run(open_backend(), loaded, CASE.token_ids, 13, context=64))
    assert nmse(got, want) <= (1e-3 if kind == "q8_0" else 1e-10)  # cpu rounds activations of 8-bit weights


def test_layers_of_multi_token_prediction_are_left_out(file: Path, tmp_path: Path) -> None:
    more = {
        t.name.replace("blk.2.", "blk.3."): np.asarray(t.data)
        for t in gguf.GGUFReader(file).tensors
        if t.name.startswith("blk.2.")
    }
    keys = {"block_count": 4, "nextn_predict_layers": 1}
    rewritten(file, tmp_path / "m.gguf", keys, {**more, "blk.3.nextn.enorm.weight": np.ones(64, np.float32)})
    got = reference_logits(load_gguf(tmp_path / "m.gguf"), CASE.token_ids, context=64)
    assert nmse(got, CASE.logits) <= 1e-10
    rewritten(file, tmp_path / "n.gguf", keys | {"nextn_predict_layers": 4}, more)
    with pytest.raises(CamelidError, match="nextn_predict_layers is 4, but block_count is 4"):
        load_gguf(tmp_path / "n.gguf")


def test_a_directorys_layers_of_multi_token_prediction_are_left_out(tmp_path: Path) -> None:
    folder, weights = write_hf(tmp_path / "m", CASE), weights_of(CASE)
    more = {n.replace("layers.2.", "layers.3."): w for n, w in weights.items() if ".layers.2." in n}
    write_safetensors(folder / "model.safetensors", {**weights, **more})
    assert nmse(reference_logits(load_hf(folder), CASE.token_ids, context=64), CASE.logits) <= 1e-10
    write_hf(folder, CASE, config_changes={"num_nextn_predict_layers": 0})
    write_safetensors(folder / "model.safetensors", {**weights, **more})
    with pytest.raises(CamelidError, match=r"model\.layers\.3\."):
        load_hf(folder)


def test_keys_of_layers_that_share_them_are_left_out(tmp_path: Path) -> None:
    """Published Gemma 3n directories and GGUF files have tensors of keys and values in every layer."""
    case = load_case("gemma3n")
    folder, weights = write_hf(tmp_path / "m", case), weights_of(case)
    more = {n.replace("layers.1.", "layers.4."): w for n, w in weights.items() if ".1.self_attn." in n}
    assert len({*more} - {*weights}) == 3
    write_safetensors(folder / "model.safetensors", more | weights)
    assert nmse(reference_logits(load_hf(folder), case.token_ids, context=64), case.logits) <= 1e-10
    convert(folder, tmp_path / "m.gguf")
    assert "blk.4.attn_k.weight" in {t.name for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    got = reference_logits(load_gguf(tmp_path / "m.gguf"), case.token_ids, context=64)
    assert nmse(got, case.logits) <= 1e-10
