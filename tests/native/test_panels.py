"""Panels store a matrix exactly: each value unpacks to the gguf package's bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.golden.quant_oracle import oracle_decode, random_blocks
from tests.support.native.kernels import U8, VARIANTS, pack, panel_bytes

from camelid.formats.quants import QUANTS, row_bytes

ROWS, COLS = 37, 512  # three panels, the last one partial
# Panels of the file's size, and the bytes of 256 columns of a row for other types: six-bit scales in bytes,
# grid points with four bits per coordinate, ternary digits and single bits with two bits.
EXACT = (
    *("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q6_k"),
    *("iq4_nl", "mxfp4", "nvfp4", "tq2_0", "q2_0", "affine2", "affine3", "affine6", "affine8"),
)
POINTS = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s")
LARGER = {"q3_k": 114, "q4_k": 148, "q5_k": 180, "iq4_xs": 138, "tq1_0": 66, "q1_0": 68}
LARGER |= dict.fromkeys(POINTS, 146)
TYPES = (*EXACT, *LARGER)
NONE = sorted({*QUANTS} - {*TYPES})


def matrix(type_name: str, rows: int, seed: int = 1) -> U8:
    """[rows, row_bytes] of random finite blocks."""
    blocks = random_blocks(type_name, seed, n=rows * COLS // QUANTS[type_name].block, finite=True)
    return blocks.reshape(rows, row_bytes(type_name, COLS))


def values(type_name: str, stored: U8) -> np.ndarray:
    blocks = stored.reshape(-1, QUANTS[type_name].block_bytes)
    return oracle_decode(type_name, blocks).reshape(len(stored), -1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type_name", TYPES)
def test_rows_unpack_exactly(type_name: str, variant: str) -> None:
    stored = matrix(type_name, ROWS)
    panels = pack(variant, type_name, stored, COLS)
    got = np.stack([panels.row(i) for i in range(ROWS)])
    assert len(np.unique(got)) > 100
    np.testing.assert_array_equal(got, values(type_name, stored))


@pytest.mark.parametrize("type_name", TYPES)
def test_rows_beyond_the_last_are_zeros(type_name: str) -> None:
    panels = pack(VARIANTS[-1], type_name, matrix(type_name, ROWS), COLS)
    beyond = np.stack([panels.row(i) for i in range(ROWS, 48)])
    assert not beyond.any()


@pytest.mark.parametrize("type_name", ["q4_0", "q6_k", "f16", "iq3_s"])
def test_rows_in_another_order(type_name: str) -> None:
    stored = matrix(type_name, ROWS)
    order = [int(i) for i in np.random.default_rng(2).permutation(ROWS)] + [5, 5, 0]
    panels = pack(VARIANTS[-1], type_name, stored, COLS, order)
    got = np.stack([panels.row(i) for i in range(len(order))])
    np.testing.assert_array_equal(got, values(type_name, stored)[order])


@pytest.mark.parametrize("type_name", TYPES)
def test_variants_have_the_same_panels(type_name: str) -> None:
    stored = matrix(type_name, ROWS)
    first, *others = (pack(variant, type_name, stored, COLS).data for variant in VARIANTS)
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("variant", VARIANTS)
def test_size_of_panels(variant: str) -> None:
    sizes = {name: panel_bytes(variant, name, 48, 256) / 48 for name in TYPES}
    assert sizes == {name: row_bytes(name, 256) for name in EXACT} | LARGER
    assert panel_bytes(variant, "f32", 33, 7) == 48 * 7 * 4  # any number of columns


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("type_name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("cols", [1, 7, 8, 15, 16, 17, 33])  # eight words of a row are packed at once
def test_floats_of_any_number_of_columns(cols: int, type_name: str, variant: str) -> None:
    each = QUANTS[type_name].block_bytes
    for rows in (1, 15, 16, ROWS):
        stored = random_blocks(type_name, cols, n=rows * cols, finite=True).reshape(rows, each * cols)
        panels = pack(variant, type_name, stored, cols)
        got = np.stack([panels.row(i) for i in range(rows)])
        np.testing.assert_array_equal(got, values(type_name, stored))


@pytest.mark.parametrize("type_name", NONE)
def test_types_without_panels(type_name: str) -> None:
    assert panel_bytes(VARIANTS[-1], type_name, 16, 256) == 0


@pytest.mark.parametrize("type_name", [name for name in TYPES if QUANTS[name].block > 1])
def test_partial_blocks_are_refused(type_name: str) -> None:
    block = QUANTS[type_name].block
    assert panel_bytes(VARIANTS[-1], type_name, 16, block) > 0
    assert panel_bytes(VARIANTS[-1], type_name, 16, block + block // 2) == 0


def test_halves_that_are_not_finite_are_kept() -> None:
    stored = matrix("q8_0", 16)
    stored.reshape(-1, 34)[::3, :2] = np.frombuffer(np.array([np.inf], np.float16).tobytes(), np.uint8)
    got = pack(VARIANTS[-1], "q8_0", stored, COLS).row(0)
    with np.errstate(invalid="ignore"):
        want = values("q8_0", stored)[0]
    np.testing.assert_array_equal(got, want)
    assert np.isinf(got).any()
