"""Quantizers in C, in each variant for this machine, against their definition in NumPy: bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.exhaustive import in_turn

from camelid.backends.common.quantizers import QUANTIZERS, search
from camelid.backends.common.quantizers.rows import NumpyQuantizer, open_quantizer
from camelid.errors import ModelFormatError
from camelid_native.cpu.api import Library
from camelid_native.cpu.quantizer import CpuQuantizer

Floats = NDArray[np.float32]
COLS = 512
VARIANTS = [name for name, can in Library().variants.items() if can]
SEARCHED = ("q4_0", "q4_1", "q5_0", "q5_1")  # without importance the codec's encoder writes them
ALWAYS = [name for name in QUANTIZERS if name not in SEARCHED]


def importance() -> Floats:
    return (10.0 ** np.random.default_rng(3).uniform(-6, 6, COLS)).astype(np.float32)


def rows_of_models() -> Floats:
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(0, 0.02, (5, COLS)), rng.standard_t(3, (5, COLS)) * 0.03])
    return rows.astype(np.float32)


def rows_of_all_sizes() -> Floats:
    """From the smallest float to the largest."""
    rows = np.random.default_rng(5).normal(0, 1, (44, COLS)) * 10.0 ** np.linspace(-46, 38.2, 44)[:, None]
    return rows.clip(-3.4e38, 3.4e38).astype(np.float32)


def odd_rows() -> Floats:
    """Zeros, constants, one sign, few values, ties, ternary values, wide ranges."""
    rng = np.random.default_rng(6)
    rows = rng.normal(0, 1, (22, COLS))
    rows[0], rows[1], rows[2], rows[3, ::2] = 0, 1, -3.5, 0
    rows[4], rows[5], rows[6] = np.arange(COLS) - 255.5, -np.abs(rows[5]), np.abs(rows[6]) + 2
    rows[7:10] *= rng.random((3, COLS)) < 0.02
    rows[10:13] = rng.integers(-1, 2, (3, COLS)) * 0.3
    rows[13:20] = np.sign(rows[13:20]) * 10.0 ** rng.uniform(-30, 0, (7, COLS))
    rows[20, ::3], rows[21] = -0.0, -0.0
    return rows.astype(np.float32)


CASES = {"models": rows_of_models, "all sizes": rows_of_all_sizes, "odd": odd_rows}


@pytest.mark.parametrize(("name", "variant"), in_turn([*QUANTIZERS], VARIANTS))
def test_bits_are_those_of_numpy(name: str, variant: str) -> None:
    quantizer = CpuQuantizer(variant)
    for case in CASES.values():
        rows = case()
        np.testing.assert_array_equal(
            quantizer.rows(name, rows, importance()), search(name, rows, importance())
        )
        if name in ALWAYS:
            np.testing.assert_array_equal(quantizer.rows(name, rows), search(name, rows, None))


@pytest.mark.parametrize("name", ["q4_k", "iq2_xs", "mxfp4", "nvfp4"])
def test_any_number_of_rows(name: str) -> None:
    """The last batch has empty lanes; results do not depend on the rows beside."""
    quantizer, rows = CpuQuantizer(), rows_of_models()
    whole = quantizer.rows(name, rows, importance())
    for n in (1, 3, 7):
        np.testing.assert_array_equal(
            quantizer.rows(name, rows[:n], importance()), whole[: n * whole.size // 10]
        )


@pytest.mark.parametrize("name", ["f16", "bf16", "q8_0", *SEARCHED])
def test_types_without_a_search_are_those_of_the_codecs(name: str) -> None:
    rows = rows_of_models()
    np.testing.assert_array_equal(CpuQuantizer().rows(name, rows), NumpyQuantizer().rows(name, rows))


def test_importance_reaches_the_kernels() -> None:
    rows = rows_of_models()
    assert (CpuQuantizer().rows("q4_k", rows) != CpuQuantizer().rows("q4_k", rows, importance())).any()


def test_values_that_are_not_finite_are_refused() -> None:
    rows = rows_of_models()
    rows[0, 5] = np.nan
    with pytest.raises(ModelFormatError, match="value 5 is nan"):
        CpuQuantizer().rows("q4_k", rows)


def test_the_library_is_preferred() -> None:
    quantizer, why_slow = open_quantizer()
    assert isinstance(quantizer, CpuQuantizer) and not why_slow
