"""Quantizers in NumPy: their weighted errors beside llama.cpp's, and blocks at the ends of the range."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from numpy.typing import NDArray

from camelid.backends.common import quantizers
from camelid.backends.common.codecs import decode
from camelid.backends.common.quantizers import QUANTIZERS, fit, grid_types, k_types, search
from camelid.backends.common.quantizers.rows import NumpyQuantizer, relative_importance
from camelid.errors import ModelFormatError
from camelid.formats.quants import QUANTS, quant

Floats = NDArray[np.float32]
COLS = 512
RNG = np.random.default_rng(26)
ROWS: Floats = (RNG.standard_t(5, (24, COLS)) * 0.03).astype(np.float32)
IMPORTANCE: Floats = np.exp(RNG.normal(0, 1, COLS)).astype(np.float32)
ALLOWED = 1.02
# Type -> weighted squared error of `ggml_quantize_chunk` (llama.cpp of llama-cpp-python 0.3.36) on ROWS, as
# a share of the weighted squares: without and with IMPORTANCE. 0: it does not write the type without.
LLAMA_CPP: dict[str, tuple[float, float]] = {
    "q4_0": (0.01159, 0.01081),
    "q4_1": (0.007995, 0.005854),
    "q5_0": (0.002928, 0.002783),
    "q5_1": (0.001866, 0.001382),
    "q2_k": (0.1074, 0.07332),
    "q3_k": (0.03168, 0.02764),
    "q4_k": (0.006899, 0.006114),
    "q5_k": (0.001721, 0.001611),
    "q6_k": (0.0004839, 0.0004435),
    "iq2_xxs": (0, 0.1232),
    "iq2_xs": (0, 0.08952),
    "iq3_xxs": (0.06159, 0.03069),
    "iq1_s": (0, 0.2634),
    "iq4_nl": (0.007727, 0.00706),
    "iq4_xs": (0.007898, 0.007271),
    "iq3_s": (0.03732, 0.02085),
    "iq2_s": (0.1024, 0.07388),
    "iq1_m": (0.3527, 0.1932),
    "tq1_0": (0.7338, 0.7654),
    "tq2_0": (0.7338, 0.7654),
    "mxfp4": (0.01608, 0.01652),
    "nvfp4": (0.009043, 0.01008),
    "q1_0": (0.4636, 0.453),
    "q2_0": (0.5424, 0.565),
}  # fmt: skip


def error(name: str, raw: NDArray[np.uint8], importance: Floats | None) -> float:
    """Weighted squared error of encoded ROWS, as a share of the weighted squares, in float64."""
    weights = np.ones(COLS) if importance is None else importance.astype(np.float64)
    values = decode(name, raw.tobytes(), ROWS.size).reshape(ROWS.shape)
    miss = ROWS.astype(np.float64) - values
    return float((weights * miss * miss).sum() / (weights * ROWS.astype(np.float64) ** 2).sum())


def test_every_quantizer_has_a_figure_of_llama_cpp() -> None:
    assert LLAMA_CPP.keys() == QUANTIZERS.keys()


@pytest.mark.parametrize("name", QUANTIZERS)
def test_errors_are_at_most_those_of_llama_cpp(name: str) -> None:
    for importance, theirs in zip((None, IMPORTANCE), LLAMA_CPP[name], strict=True):
        if theirs:
            assert error(name, search(name, ROWS, importance), importance) <= ALLOWED * theirs


@pytest.mark.parametrize("name", QUANTIZERS)
def test_importance_lowers_the_weighted_error(name: str) -> None:
    plain, weighted = (error(name, search(name, ROWS, each), IMPORTANCE) for each in (None, IMPORTANCE))
    assert weighted < plain


PLANTED = {
    "codes are cut, not rounded": (fit, "np.rint", np.floor, "q4_k"),
    "the last refinement is missing": (k_types, "_minimum", lambda x, w, q, scale, sw: x[0] * 0, "q4_k"),
    "scales are not fitted": (grid_types, "_fit", lambda group, top: fit.Line(top / 9, top), "iq2_xs"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_planted_errors_exceed_the_bound(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, place, wrong, name = PLANTED[what]
    if place == "np.rint":
        monkeypatch.setattr(module, "whole", whole_by_floor)
        monkeypatch.setattr(k_types, "whole", whole_by_floor)
    else:
        monkeypatch.setattr(module, place, wrong)
    assert error(name, search(name, ROWS, IMPORTANCE), IMPORTANCE) > ALLOWED * LLAMA_CPP[name][1]


def whole_by_floor(low: int, high: int) -> fit.Nearest:
    return lambda x: np.floor(np.minimum(np.maximum(x, np.float32(low)), np.float32(high)))


@pytest.mark.parametrize("name", QUANTIZERS)
def test_zeros_and_constants(name: str) -> None:
    block = quant(name).block
    rows = np.zeros((4, 4 * block), np.float32)
    rows[1], rows[2], rows[3, ::2] = 0.5, -0.25, -0.0
    got = decode(name, search(name, rows, None), rows.size).reshape(rows.shape)
    assert np.isfinite(got).all()
    if name not in ("q1_0", "iq1_s", "iq1_m"):  # the codes of these lack 0
        assert not got[0].any() and not got[3].any()
    if name in ("q4_0", "q4_1", "q5_1", "q4_k", "q5_k", "q6_k", "tq1_0", "tq2_0", "q2_0"):
        assert np.abs(got[1:3] - rows[1:3]).max() < 2e-3


@pytest.mark.parametrize("name", QUANTIZERS)
def test_rows_of_all_sizes_stay_near(name: str) -> None:
    """From the smallest float16 scale to the largest: the error does not depend on the size."""
    sizes = np.float32(10) ** np.arange(-2, 4, dtype=np.float32)
    rows = (np.tile(ROWS[:1], (6, 1)) * sizes[:, None]).astype(np.float32)
    if name == "nvfp4":  # its scales end at 448
        rows = rows[2:4]
    got = decode(name, search(name, rows, None), rows.size).reshape(rows.shape)
    errors = ((got - rows).astype(np.float64) ** 2).sum(axis=1) / (rows.astype(np.float64) ** 2).sum(axis=1)
    assert errors.max() < 1.5 * errors.min() + 1e-6


def test_chunks_do_not_change_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = search("q3_k", ROWS, IMPORTANCE)
    monkeypatch.setattr(quantizers, "CHUNK", 3)
    np.testing.assert_array_equal(search("q3_k", ROWS, IMPORTANCE), whole)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    rows = ROWS.copy()
    rows[1, 3] = value
    with pytest.raises(ModelFormatError, match=rf"value {COLS + 3} is {value}: only finite values"):
        NumpyQuantizer().rows("q4_k", rows)


def test_types_without_a_search_are_those_of_the_codecs() -> None:
    for name in ("f16", "bf16", "q8_0", "q4_0"):
        raw = NumpyQuantizer().rows(name, ROWS)
        assert raw.size == ROWS.size // QUANTS[name].block * QUANTS[name].block_bytes


def test_relative_importance_is_bounded() -> None:
    got = relative_importance(array("f", [0, 0, 1, 3, 0, 1e30, 0, 0]), 2)
    np.testing.assert_allclose(got, [[1, 1], [0.5, 1.5], [2**-20, 2], [1, 1]], rtol=1e-6)
