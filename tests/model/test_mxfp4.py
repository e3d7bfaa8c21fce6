"""gpt-oss as published: stacks of experts in MXFP4, as blocks and scales."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.hf_models import Weights, load_case, nmse, weights_of, write_hf, write_safetensors
from tests.support.model.file_runs import load_gguf, load_hf, reference_logits, run

from camelid.errors import CamelidError, TensorShapeError, UnsupportedModelError
from camelid.loading.convert import convert
from camelid_native.cpu.backend import open_backend

E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # magnitudes by code; bit 3 is the sign
CASE = load_case("gpt_oss")


def packed(stack: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Blocks, scales and the rounded values of a stack [experts, in, out]."""
    groups = stack.swapaxes(1, 2).reshape(stack.shape[0], stack.shape[2], -1, 32)  # [E, out, in / 32, 32]
    exponents = np.floor(np.log2(np.abs(groups).max(-1))) - 2
    scaled = groups / 2.0 ** exponents[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - E2M1).argmin(-1)
    values = np.sign(scaled) * E2M1[codes] * 2.0 ** exponents[..., None]
    codes = (codes + 8 * (scaled < 0)).astype(np.uint8)
    blocks = codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)
    rounded = values.reshape(*groups.shape[:2], -1).swapaxes(1, 2).astype(np.float32)
    return blocks, (exponents + 127).astype(np.uint8), rounded


def both() -> tuple[Weights, dict[str, NDArray[Any]]]:
    """The model's weights rounded to MXFP4, dense and as published."""
    dense, published = weights_of(CASE), dict[str, NDArray[Any]]()
    for name, value in dense.items():
        if name.endswith(("gate_up_proj", "down_proj")):
            blocks, scales, dense[name] = packed(value)
            published |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        else:
            published[name] = value
    return dense, published


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Directories of the dense and of the published form."""
    made = tmp_path_factory.mktemp("gpt_oss")
    method = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    for name, weights, changes in zip(("dense", "published"), both(), ({}, method), strict=True):
        write_hf(made / name, CASE, config_changes=changes)
        write_safetensors(made / name / "model.safetensors", weights, dtype="bf16" if changes else "f32")
    return made / "dense", made / "published"


def logits(folder: Path) -> list[Any]:
    return reference_logits(load_hf(folder), CASE.token_ids, context=64)


def test_published_blocks_have_the_bits_of_their_values(folders: tuple[Path, Path]) -> None:
    dense, published = (logits(folder) for folder in folders)
    assert all(np.array_equal(a, b) for a, b in zip(dense, published, strict=True))
    assert 1e-4 < nmse(dense, CASE.logits) < 1.0  # rounded, and still this model


def test_the_cpu_runs_blocks_of_mxfp4(folders: tuple[Path, Path]) -> None:
    loaded = load_hf(folders[1])
    assert loaded.model.weights["blk.0.ffn_up_exps"].type == "mxfp4"
    got = asyncio.run(run(open_backend(), loaded, CASE.token_ids, 13, context=64))
    rows = [
        nmse([g], [w])
        for run_, want in zip(got, logits(folders[0]), strict=True)
        for g, w in zip(run_[:, None], want[:, None], strict=True)
    ]
    assert np.median(rows) <= 2e-3  # the type rounds activations to 8 bits: a few rows use other experts


def test_a_converted_file_keeps_mxfp4(folders: tuple[Path, Path], tmp_path: Path) -> None:
    convert(folders[1], tmp_path / "m.gguf")
    stored = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    gate_up = both()[0]["model.layers.1.mlp.experts.gate_up_proj"].swapaxes(1, 2)
    for name, want in (("gate", gate_up[:, 0::2]), ("up", gate_up[:, 1::2])):
        tensor = stored[f"blk.1.ffn_{name}_exps.weight"]
        assert tensor.tensor_type.name == "MXFP4"
        assert np.array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), want)
    got = reference_logits(load_gguf(tmp_path / "m.gguf"), CASE.token_ids, context=64)
    assert nmse(got, logits(folders[0])) <= 1e-10


BLOCKS, SCALES = (f"model.layers.0.mlp.experts.down_proj{end}" for end in ("_blocks", "_scales"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({SCALES: None}, "expected u8 beside scales"),
        ({SCALES: np.zeros((6, 64, 2), np.uint8)}, r"expected u8 \[6, 64, 2, 16\]"),
        ({SCALES: np.zeros((6, 64, 1), np.float32)}, "expected u8"),
        ({SCALES: np.zeros((), np.uint8)}, "expected u8"),
        (
            {SCALES: np.zeros((6, 64, 0), np.uint8), BLOCKS: np.zeros((6, 64, 0, 16), np.uint8)},
            r"found \(6, 64, 0\)",
        ),
        ({BLOCKS: None}, "down_proj"),
    ],
)
def test_blocks_that_do_not_fit(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    weights = {name: v for name, v in (both()[1] | change).items() if v is not None}
    write_hf(tmp_path / "m", CASE, config_changes={"quantization_config": {"quant_method": "mxfp4"}})
    write_safetensors(tmp_path / "m" / "model.safetensors", weights)
    with pytest.raises((TensorShapeError, CamelidError), match=words):
        load_hf(tmp_path / "m")


def test_other_methods_are_refused(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, CASE, config_changes={"quantization_config": {"quant_method": "gptq"}})
    assert json.loads((folder / "config.json").read_text())["quantization_config"]
    with pytest.raises(UnsupportedModelError, match="gptq"):
        load_hf(folder)
