"""Quantizers of MLX's modes: their errors beside those of mlx.core.quantize, and exact values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden.mlx_cases import BITS, GROUPS, MODES

from camelid.backends.common.quantize_groups import E2M1, E4M3, E8M0, SmallFloat, quantize_groups
from camelid.errors import ModelFormatError
from camelid.formats.mlx_quant import Groups

COMBINATIONS = [
    *(("affine", bits, group, dtype) for bits in BITS for group in GROUPS for dtype in ("bf16", "f16")),
    *((mode, bits, group, "bf16") for mode, (group, bits) in MODES.items()),
]
ROWS, COLS = 256, 1024


def in_mlx(mx: Any, planes: tuple[bytes, ...], groups: Groups, dtype: str) -> list[Any]:
    """The planes as arrays of MLX, scales and biases in float32."""
    words, *scales = (np.frombuffer(plane, np.uint8).reshape(ROWS, -1) for plane in planes)
    if groups.mode != "affine":
        return [mx.array(words.view("<u4")), mx.array(scales[0])]
    types = {"bf16": mx.bfloat16, "f16": mx.float16}
    wide = (mx.view(mx.array(plane.view("<u2")), types[dtype]).astype(mx.float32) for plane in scales)
    return [mx.array(words.view("<u4")), *wide]


@pytest.mark.parametrize(("mode", "bits", "group", "dtype"), COMBINATIONS)
def test_errors_are_at_most_those_of_mlx(mode: str, bits: int, group: int, dtype: str) -> None:
    mx: Any = pytest.importorskip("mlx.core", reason="no mlx on this system")
    groups, setting = Groups(mode, bits, group), {"mode": mode, "bits": bits, "group_size": group}
    random = np.random.default_rng(bits * group).standard_normal((ROWS, COLS)) * 0.02
    weights = mx.array(random).astype({"bf16": mx.bfloat16, "f16": mx.float16}[dtype])
    values = np.array(weights.astype(mx.float32))

    def error(*planes: Any) -> float:
        wide = [p.astype(mx.float32) if p.dtype in (mx.bfloat16, mx.float16) else p for p in planes]
        decoded = np.array(mx.dequantize(*wide, **setting).astype(mx.float32))
        return float(np.square(decoded - values).sum())

    ours = error(*in_mlx(mx, quantize_groups(values, groups, parameters=dtype), groups, dtype))
    assert ours <= 1.02 * error(*mx.quantize(weights, **setting))


@pytest.mark.parametrize("row", [E2M1, E4M3, E8M0], ids=["e2m1", "e4m3", "e8m0"])
def test_every_code_of_a_small_float_is_its_own_nearest(row: SmallFloat) -> None:
    codes = np.arange(1 if row is E8M0 else 0, row.top + 1).astype(np.uint8)
    values = row.values(codes)
    for up_from in (0.5, 1):
        np.testing.assert_array_equal(row.codes(values, up_from=up_from), codes)
    assert (np.diff(values) > 0).all()
    middles = (values[:-1] + (values[1:] - values[:-1]) * 0.49).astype(np.float32)
    if row is not E8M0:  # whose codes are found by floor alone
        np.testing.assert_array_equal(row.codes(middles), codes[:-1])
    np.testing.assert_array_equal(row.codes(middles, up_from=1), codes[:-1])


def affine(values: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """Values of one group after quantization, by the formula of the mode, scales in f16."""
    words, *scales = quantize_groups(values, Groups("affine", bits, values.size), parameters="f16")
    d, m = (np.frombuffer(plane, "<f2").astype(np.float32) for plane in scales)
    each = np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little").reshape(-1, bits)
    return (each * (1 << np.arange(bits))).sum(axis=1).astype(np.float32) * d + m


@pytest.mark.parametrize("bits", BITS)
def test_the_farther_edge_is_exact_and_0_but_for_the_rounding_of_the_scale(bits: int) -> None:
    values = np.linspace(-0.5, 0.375, 32, dtype=np.float32).reshape(1, -1)
    values[0, 7] = 0
    for sign in (1, -1):
        after = affine(sign * values, bits)
        assert after[0] == sign * -0.5 and abs(after[7]) <= 0.5 * 2**-11


@pytest.mark.parametrize("bits", BITS)
def test_integers_are_the_nearest_to_scales_as_stored(bits: int) -> None:
    """No value within the range of the integers is farther than half a step."""
    values = np.random.default_rng(bits).standard_normal((64, 64)).astype(np.float32)
    groups = Groups("affine", bits, 64)
    words, *scales = quantize_groups(values, groups, parameters="bf16")
    d, m = (
        (np.frombuffer(plane, "<u2").astype(np.uint32) << 16).view(np.float32)[:, None] for plane in scales
    )
    each = np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little").reshape(-1, bits)
    q = (each * (1 << np.arange(bits))).sum(axis=1).reshape(64, 64)
    is_inner = (q > 0) & (q < (1 << bits) - 1)
    assert (np.abs(q * d + m - values) <= np.abs(d) * 0.5001)[is_inner].all()


@pytest.mark.parametrize("value", [0.0, 0.25, -3.0, 1e-9, 6e-8])
@pytest.mark.parametrize("mode", ["affine", "mxfp4", "mxfp8", "nvfp4"])
def test_groups_of_equal_values(value: float, mode: str) -> None:
    values = np.full((1, 64), value, np.float32)
    if mode == "affine":
        np.testing.assert_allclose(affine(values, 4), values[0], atol=2**-24)
    else:
        planes = quantize_groups(values, Groups(mode, 8 if mode == "mxfp8" else 4, 16), parameters="bf16")
        assert len(set(planes[0])) == 1 and len(set(planes[1])) == 1


def test_scales_of_bf16_fit_a_float16() -> None:
    """Blocks of q4_1 have float16 for them; 2**-20 is among its subnormal numbers."""
    values = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32) * np.float32(2**-18)
    for plane in quantize_groups(values, Groups("affine", 4, 64), parameters="bf16")[1:]:
        wide = (np.frombuffer(plane, "<u2").astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(wide, wide.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", ["affine", "mxfp8"])
def test_values_that_are_not_finite_are_refused(value: float, mode: str) -> None:
    values = np.zeros((2, 64), np.float32)
    values[1, 3] = value
    with pytest.raises(ModelFormatError, match="only finite values can be quantized"):
        quantize_groups(values, Groups(mode, 8, 32), parameters="bf16")


def test_a_scale_beyond_the_type_is_refused() -> None:
    values = np.array([[-3e38, 3e38] * 16], np.float32)
    with pytest.raises(ModelFormatError, match=r"is -?inf: only finite"):
        quantize_groups(values, Groups("affine", 2, 32), parameters="f16")
