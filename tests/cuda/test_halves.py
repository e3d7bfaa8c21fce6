"""Products of bf16 and f16 weights by matrix instructions: x is whole, whatever the order of their sums."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cuda.rig import open_rig
from tests.cuda.test_many import ROWS, case_of
from tests.parity.test_batch import MATRICES
from tests.support.exhaustive import share_of
from tests.support.parity.case_tools import array, empty
from tests.support.parity.compare import errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, Quantized
from camelid_native.cuda.matrix_units import multiplies_halves
from camelid_native.cuda.types import HALF_TYPES

pytestmark = pytest.mark.parity

F32 = NDArray[np.float32]
KINDS = sorted(HALF_TYPES)
COLS = 96


@pytest.fixture(params=["0", "1"], ids=["ascending", "cut"])
def sums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order and rounding of an instruction's sums in the emulator, and two instructions in a wave."""
    monkeypatch.setenv("EMU_SUMS", request.param)
    monkeypatch.setenv("EMU_WAVE", "64" if request.param == "1" else "32")


def stored(kind: str, values: F32) -> Quantized:
    """Weights that the type holds exactly."""
    bits = (
        values.astype("<f2").tobytes()
        if kind == "f16"
        else (values.view("<u4") >> 16).astype("<u2").tobytes()
    )
    return Quantized(kind, values.shape, bits)


def product(kind: str, x: F32, weights: F32) -> F32:
    case = OpCase(
        op="linear",
        views={"y": empty(len(x), len(weights)), "x": x},
        weights={"weight": stored(kind, weights)},
    )
    return asyncio.run(run_on(open_rig(), OpenSpec(), [case]))[0].views["y"]


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_one_weight_takes_a_column_bit_for_bit(kind: str, rows: int) -> None:
    """All 24 bits of x, of any size and sign, from every column."""
    x = array(1, rows, COLS) * np.float32(10.0) ** array(2, rows, COLS).round().clip(-9, 9)
    for scale in map(np.float32, (1.0, -(2.0**-14), 2.0**15)):
        np.testing.assert_array_equal(product(kind, x, scale * np.eye(COLS, dtype=np.float32)), scale * x)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("kind", KINDS)
def test_all_bits_of_a_weight_count(kind: str) -> None:
    bits = 10 if kind == "f16" else 7
    weights = np.diag(1 + np.arange(1, COLS + 1, dtype=np.float32) % 2**bits / 2**bits).astype(np.float32)
    x = array(3, 5, COLS).round(1).clip(-3, 3).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(product(kind, x, weights), x * weights.diagonal())


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", share_of(MATRICES, 3))
def test_sums_are_those_of_float32(op: str, kind: str) -> None:
    cases = [case_of(op, kind, rows) for rows in (1, ROWS)]
    for case, got in zip(cases, asyncio.run(run_on(open_rig(), OpenSpec(), cases)), strict=True):
        assert max(errors(got, reference_result(case))) < 1e-12


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_among_any_rows(kind: str) -> None:
    whole = case_of("linear", kind)
    few = [replace(whole, views={"y": whole.views["y"][:n], "x": whole.views["x"][:n]}) for n in (1, 8, 9)]
    *found, want = [
        result.views["y"] for result in asyncio.run(run_on(open_rig(), OpenSpec(), [*few, whole]))
    ]
    for rows in found:
        np.testing.assert_array_equal(rows, want[: len(rows)])


def test_architectures_with_the_instruction() -> None:
    assert all(map(multiplies_halves, ("sm_80", "sm_86", "sm_90", "sm_100", "sm_120")))
    assert not any(map(multiplies_halves, ("sm_75", "gfx90a", "gfx1201")))
