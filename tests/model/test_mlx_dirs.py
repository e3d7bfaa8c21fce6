"""Directories that mlx-lm wrote: logits beside mlx-lm's, values bit for bit, refusals."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.mlx_cases import BITS, COMMITTED, DTYPES, GROUPS, MODES
from tests.support.exhaustive import share_of
from tests.support.hf_models import nmse
from tests.support.mlx_dirs import (
    FOLDER,
    logits_of,
    matrices,
    stored_ids,
    stored_logits,
    values_of,
    weight_of,
)
from tests.support.model.file_runs import load_hf, run
from tests.support.rounding_reference import RoundingReference

import camelid
from camelid.backends.common.part_reader import PartReader
from camelid.backends.common.stored_rows import stored_rows
from camelid.errors import (
    CamelidError,
    ModelFormatError,
    RequestError,
    TensorShapeError,
    UnsupportedModelError,
)
from camelid.loading.convert import convert
from camelid_native.cpu.backend import open_backend

NAMES = [row.name for row in COMMITTED]
Tensors = dict[str, tuple[str, list[int], bytes]]  # name -> dtype, shape, data


def test_every_committed_directory_is_a_row() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_logits_equal_those_of_mlx_lm(name: str) -> None:
    assert nmse(logits_of(FOLDER / name, stored_ids(name)), stored_logits(name)) < 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_that_rounds_equals_the_reference_that_rounds(name: str) -> None:
    """Single tokens and pairs: a code at a tie changes its own sequence alone, and few are at ties."""
    loaded, ids = (
        load_hf(FOLDER / name),
        [ids[i : i + 2] for ids in stored_ids(name) for i in range(0, len(ids), 2)],
    )
    backend = open_backend()
    want = asyncio.run(run(RoundingReference.of(backend.capabilities()), loaded, ids))
    got = asyncio.run(run(backend, loaded, ids))
    errors = [nmse([g], [w]) for g, w in zip(got, want, strict=True)]
    assert np.mean([error < 1e-6 for error in errors]) > 0.8 and max(errors) < 0.1


@pytest.mark.parametrize("backend", share_of(["cpu", "webgpu"]))
def test_weights_are_the_same_on_backends_that_load_blocks(backend: str) -> None:
    """Activations of webgpu are float32, so its logits are mlx-lm's; cpu's within the rounding of x."""
    for name in ("affine", "nvfp4"):
        error = nmse(logits_of(FOLDER / name, stored_ids(name), backend=backend), stored_logits(name))
        assert error < (1e-10 if backend == "webgpu" else 1e-2), name


# ---- Every combination of bits, group and type, against mx.dequantize

COMBINATIONS = [
    *(("affine", bits, group, dtype) for bits in BITS for group in GROUPS for dtype in DTYPES),
    *((mode, bits, group, "bf16") for mode, (group, bits) in MODES.items()),
]
ROWS, COLS = 24, 384


def write_directory(folder: Path, tensors: Tensors, config: dict[str, Any]) -> Path:
    """A directory of tensors and a config.json."""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    body = b"".join(data for _, _, data in tensors.values())
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def quantization(mode: str, bits: int, group: int) -> dict[str, Any]:
    return {"quantization": {"mode": mode, "bits": bits, "group_size": group}}


@pytest.mark.parametrize(("mode", "bits", "group", "dtype"), COMBINATIONS)
def test_values_are_those_of_mx_dequantize(
    mode: str, bits: int, group: int, dtype: str, tmp_path: Path
) -> None:
    mx: Any = pytest.importorskip("mlx.core", reason="not on this platform: mlx")
    types = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}
    random = np.random.default_rng(bits * group).standard_normal((ROWS, COLS)) * 0.02
    random[3, :group] = 0.25  # a group of equal values
    planes = mx.quantize(mx.array(random).astype(types[dtype]), group_size=group, bits=bits, mode=mode)
    named = dict(zip(("x.weight", "x.scales", "x.biases"), planes, strict=False))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), named)
    (tmp_path / "config.json").write_text(json.dumps(quantization(mode, bits, group)))
    wide = [p.astype(mx.float32) if p.dtype in (mx.bfloat16, mx.float16) else p for p in planes]
    want = np.array(mx.dequantize(*wide, group_size=group, bits=bits, mode=mode).astype(mx.float32))
    for got in values_of(matrices(tmp_path)["x.weight"], tmp_path):
        np.testing.assert_array_equal(got.reshape(ROWS, COLS), want)


# ---- Scales that no f16 holds


def bfloats(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (np.asarray(values, "<f4").view("<u4") >> 16).astype("<u2")


def directory_of_scale(folder: Path, scale: float, bias: float = 0.0, word: int = 0) -> Path:
    """A matrix [1, 64] of 4 bits in bf16, its first group with this scale, bias and word of integers."""
    words = np.full((1, 8), word, "<u4")
    planes = {
        "x.weight": ("U32", words),
        "x.scales": ("BF16", bfloats(np.array([[scale, 0.5]]))),
        "x.biases": ("BF16", bfloats(np.array([[bias, -1.0]]))),
    }
    tensors = {name: (kind, list(plane.shape), plane.tobytes()) for name, (kind, plane) in planes.items()}
    return write_directory(folder, tensors, quantization("affine", 4, 32))


def blocks_of(folder: Path) -> NDArray[np.uint8]:
    weight = weight_of(matrices(folder)["x.weight"])
    with PartReader({"model.safetensors": folder / "model.safetensors"}) as reader:
        return stored_rows(weight, reader.read)(0, 1)


@pytest.mark.parametrize(
    ("scale", "bias", "word"), [(2.0**-17, 0, 1), (65024.0, -65024.0, 1), (1e-7, 0.25, 0)]
)
def test_scales_of_f16_and_of_unused_groups_are_exact(
    scale: float, bias: float, word: int, tmp_path: Path
) -> None:
    folder = directory_of_scale(tmp_path, scale, bias, word)
    values, decoded = values_of(matrices(folder)["x.weight"], folder)
    np.testing.assert_array_equal(decoded.ravel(), values.ravel())


@pytest.mark.parametrize(
    ("scale", "bias", "words"), [(1e-7, 0, "scale"), (1e5, 0, "scale"), (0.5, 1e5, "bias")]
)
def test_other_scales_are_refused_with_the_way_out(
    scale: float, bias: float, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFormatError, match=rf"x\.weight: the {words} .* does not fit q4_1.*--type f32"):
        blocks_of(directory_of_scale(tmp_path, scale, bias, word=1))


@pytest.mark.parametrize(
    ("mode", "group", "code"), [("mxfp4", 32, 255), ("nvfp4", 16, 127), ("nvfp4", 16, 129)]
)
def test_scale_codes_that_are_no_numbers_are_refused(
    mode: str, group: int, code: int, tmp_path: Path
) -> None:
    scales = np.full((1, 64 // group), code, np.uint8)
    tensors = {"x.weight": ("U32", [1, 8], bytes(32)), "x.scales": ("U8", [*scales.shape], scales.tobytes())}
    folder = write_directory(tmp_path, tensors, quantization(mode, 4, group))
    with pytest.raises(ModelFormatError, match=rf"x\.weight: the scale of code {code} is no positive number"):
        blocks_of(folder)


# ---- Refusals

Edit = Callable[[dict[str, Any], dict[str, Any]], None]  # of config.json, and of the header of tensors


def edited(name: str, tmp_path: Path, edit: Edit) -> Path:
    folder = Path(shutil.copytree(FOLDER / name, tmp_path / name))
    config = json.loads((folder / "config.json").read_text())
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    edit(config, header)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def in_both(**changes: Any) -> Edit:
    return lambda config, _: (
        config["quantization"].update(changes),
        config["quantization_config"].update(changes),
    )[0]


def dropped(*keys: str) -> Edit:
    return lambda config, _: config.update(dict.fromkeys(keys))  # null counts as absent


def renamed(old: str, new: str) -> Edit:
    return lambda _, header: header.update({new: header.pop(old)})


def another_library(config: dict[str, Any], _: Any) -> None:
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    del config["quantization"]


Q = "model.layers.0.self_attn.q_proj"
OTHER_WIDTH = {Q: {"bits": 8, "group_size": 32}}
BOTH = ("quantization", "quantization_config")
Refusal = tuple[Edit, type[CamelidError], str]
REFUSALS: dict[str, Refusal] = {
    "mode": (in_both(mode="int4"), UnsupportedModelError, "quantization.mode is 'int4'.*affine, mxfp4"),
    "bits": (in_both(bits=7), UnsupportedModelError, "bits of affine is 7.*supported: 4, 2, 3, 5, 6, 8"),
    "group": (in_both(group_size=48), UnsupportedModelError, "group_size of affine is 48.*64, 32, 128"),
    "text": (in_both(bits="four"), ModelFormatError, "quantization.bits is .four., but a whole number"),
    "override": (in_both(**{Q: 4}), ModelFormatError, "q_proj is 4, but an object is expected"),
    "false": (in_both(**{Q: False}), UnsupportedModelError, f"{Q}.scales: .*{Q} is not quantized"),
    "another width": (in_both(**OTHER_WIDTH), TensorShapeError, "8 bits in groups of 32"),
    "no setting": (dropped(*BOTH), UnsupportedModelError, "states no quantization"),
    "another library": (another_library, UnsupportedModelError, "quantization_config is 'gptq'.*MLX's"),
    "no words": (renamed(f"{Q}.weight", f"{Q}.w"), TensorShapeError, f"{Q}: found scales alone"),
    "no biases": (renamed(f"{Q}.biases", f"{Q}.b"), TensorShapeError, "biases in mode affine alone"),
    "global": (renamed(f"{Q}.biases", f"{Q}.global_scale"), UnsupportedModelError, "scales of a whole"),
}  # fmt: skip


@pytest.mark.parametrize("row", REFUSALS.values(), ids=REFUSALS)
def test_refusals_name_the_way_out(row: Refusal, tmp_path: Path) -> None:
    edit, error, words = row
    with pytest.raises(error, match=words):
        camelid.load(edited("affine", tmp_path, edit), backend="reference")


@pytest.mark.parametrize(
    ("words", "scales"),
    [([1, 8], []), ([], [1, 1]), ([], []), ([1, 0], [1, 0]), ([1, 8], [1, 0]), ([1, 0], [1, 1]), ([0], [0])],
)
def test_planes_without_columns_are_refused(words: list[int], scales: list[int], tmp_path: Path) -> None:
    tensors = {
        "x.weight": ("U32", words, bytes(4 * math.prod(words))),
        "x.scales": ("U8", scales, bytes(math.prod(scales))),
    }
    folder = write_directory(tmp_path, tensors, quantization("mxfp4", 4, 32))
    with pytest.raises(TensorShapeError, match=r"x: found shapes .* expected at least one column"):
        matrices(folder)


def test_one_key_of_the_two_is_enough(tmp_path: Path) -> None:
    ids = stored_ids("affine")[:1]
    want = logits_of(FOLDER / "affine", ids)
    for key in ("quantization", "quantization_config"):
        folder = edited("affine", tmp_path / key, dropped(key))
        np.testing.assert_array_equal(logits_of(folder, ids), want)


# ---- Conversion to GGUF


@pytest.mark.parametrize("name", ["mxfp4", "granitemoehybrid_dense", "gpt2"])
def test_a_gguf_of_the_same_types_has_the_same_logits(name: str, tmp_path: Path) -> None:
    """4-bit matrices keep their bits, also where their rows are permuted."""
    path, ids = tmp_path / "same.gguf", stored_ids(name)
    folder = FOLDER / name
    assert set(convert(folder, path).types) <= {"f32", "f16", "bf16", "q4_1", "mxfp4"}
    assert nmse(logits_of(path, ids), logits_of(folder, ids)) < 1e-12  # multipliers are float32 in GGUF


def test_types_that_gguf_lacks_are_converted_if_a_type_is_given(tmp_path: Path) -> None:
    folder, path, ids = FOLDER / "affine", tmp_path / "made.gguf", stored_ids("affine")
    with pytest.raises(RequestError, match=r"cannot store affine2, affine3, affine6, affine8; .*--type f32"):
        convert(folder, path)
    assert not path.exists()
    assert set(convert(folder, path, to="f32").types) == {"f32"}
    np.testing.assert_array_equal(
        np.concatenate(logits_of(path, ids)), np.concatenate(logits_of(folder, ids))
    )
