"""Matrix products and lookups of cuda: codecs bit for bit, equal bits for any number of rows, edges."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cuda.rig import open_rig
from tests.golden.quant_oracle import FILE, random_blocks
from tests.support.exhaustive import in_turn
from tests.support.parity.case_tools import array, empty, weight
from tests.support.parity.compare import reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.codecs import CODECS, decode
from camelid.backends.common.op_runner import OpCase, Quantized
from camelid.backends.proof.compare import nmse, rounded, settled
from camelid.formats.quants import QUANTS
from camelid_native.cuda.types import EXACT_TYPES, WEIGHT_TYPES

F32 = NDArray[np.float32]
BLOCK = 32  # columns of activations with one scale
GOLDEN = json.loads(FILE.read_text())
# Both kinds of activations, one and two scales per block, with and without zeros.
SAMPLE = ("f16", "q4_0", "q2_k", "q6_k", "q5_1")
COUNTS = (1, 2, 3, 4, 5, 8, 9, 17)  # rows: each size of a tile, and a part of the second and third


def results(cases: list[OpCase]) -> list[F32]:
    """The first written view of each case."""
    return [next(iter(r.views.values())) for r in asyncio.run(run_on(open_rig(), OpenSpec(), cases))]


def looked_up(type_: str, raw: bytes) -> F32:
    """All values of stored blocks, by an embedding of rows of at least 32 columns."""
    quant = QUANTS[type_]
    cols = max(quant.block, BLOCK)
    n_rows = len(raw) // quant.block_bytes * quant.block // cols
    table = Quantized(type_, (n_rows, cols), raw[: n_rows * cols // quant.block * quant.block_bytes])
    case = OpCase(
        op="embed",
        views={"y": empty(n_rows, cols)},
        weights={"weight": table},
        token_ids=list(range(n_rows)),
    )
    return results([case])[0].reshape(-1)


def test_every_codec_has_kernels() -> None:
    assert set(CODECS) == WEIGHT_TYPES


@pytest.mark.parametrize("type_", sorted(WEIGHT_TYPES))
def test_golden_blocks_have_their_values(type_: str) -> None:
    want = np.frombuffer(base64.b64decode(GOLDEN[type_]["values"]), "<f4")
    got = looked_up(type_, base64.b64decode(GOLDEN[type_]["blocks"]))
    np.testing.assert_array_equal(got, want[: got.size])


@pytest.mark.parametrize("type_", sorted(WEIGHT_TYPES))
def test_any_bytes_have_the_values_of_the_codec(type_: str) -> None:
    raw = random_blocks(type_, 3, n=128, finite=False).tobytes()
    got = looked_up(type_, raw)
    with np.errstate(all="ignore"):
        want = decode(type_, raw, 128 * QUANTS[type_].block)[: got.size]
    np.testing.assert_array_equal(got, want)


def product(type_: str, n_rows: int, cols: int, op: str = "linear") -> OpCase:
    """A product whose rows are the first of those with more rows."""
    n_out = 40 if op == "linear_glu" else 20
    shape = (2, n_out, cols) if op == "linear_experts" else (n_out, cols)
    ids = {"ids": (np.arange(20, dtype=np.float32) % 2)[:n_rows, None]} if op == "linear_experts" else {}
    return OpCase(
        op=op,
        views={"y": empty(n_rows, 20), "x": array(5, 20, cols)[:n_rows], **ids},
        weights={"weight": weight(type_, 6, *shape)},
        attrs={"act": "silu"} if op == "linear_glu" else {},
    )


@pytest.mark.parametrize(("type_", "op"), in_turn(SAMPLE, ["linear", "linear_glu", "linear_experts"]))
def test_a_row_has_the_same_bits_among_any_rows(type_: str, op: str) -> None:
    cases = [product(type_, n, 768, op) for n in COUNTS]
    cases += [replace(product(type_, n, 768, op), spare=spare) for n, spare in ((1, 16), (2, 3), (5, 1))]
    *others, whole, _, _, _ = found = results(cases)
    for rows in (*others, *found[len(COUNTS) :]):
        np.testing.assert_array_equal(rows, whole[: len(rows)])


@pytest.mark.parametrize("type_", SAMPLE)
def test_experts_have_the_bits_of_a_matrix(type_: str) -> None:
    """Two kernels, one order of sums."""
    case = product(type_, 6, 512, "linear_experts")
    stack = case.weights["weight"]
    half = len(stack.raw) // 2
    ids, whole = case.views["ids"][:, 0], results([case])[0]
    for expert in (0, 1):
        one = Quantized(type_, stack.shape[1:], stack.raw[expert * half :][:half])
        alone = replace(product(type_, 6, 512), weights={"weight": one})
        np.testing.assert_array_equal(whole[ids == expert], results([alone])[0][ids == expert])


@pytest.mark.parametrize("cols", [1, 8, 20, 33, 260])
@pytest.mark.parametrize("type_", sorted(name for name in EXACT_TYPES if QUANTS[name].block == 1))
def test_floats_have_any_number_of_columns(type_: str, cols: int) -> None:
    """Rows of weights and views of activations at any address."""
    cases = [replace(product(type_, n, cols), margins=margins) for n, margins in ((1, (0, 0)), (3, (3, 2)))]
    for case, got in zip(cases, results(cases), strict=True):
        assert nmse(got, reference_result(case).views["y"]) < 1e-10


@pytest.mark.parametrize("op", ["linear", "linear_glu", "linear_experts"])
def test_views_of_rounded_activations_have_any_address(op: str) -> None:
    case = replace(settled(product("q8_0", 3, 64, op)), margins=(3, 2))
    assert nmse(results([case])[0], reference_result(rounded(case)).views["y"]) < 1e-10


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("type_", SAMPLE)
def test_a_value_that_is_not_finite_spoils_its_row(type_: str, value: float) -> None:
    case = product(type_, 4, 512)
    x = case.views["x"].copy()
    x[1, 70], x[3, 511] = value, value
    got = results([replace(case, views={**case.views, "x": x})])[0]
    assert not np.isfinite(got[[1, 3]]).any()
    np.testing.assert_array_equal(got[[0, 2]], results([case])[0][[0, 2]])


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-37, 1e-30, 1e30])
def test_activations_of_any_size(size: float) -> None:
    """A block that is too small for 8-bit codes counts as zeros."""
    case = product("q8_0", 2, 64)
    x = np.zeros_like(case.views["x"])
    x[:, 5], x[:, 40] = size, -size / 127
    case = replace(case, views={**case.views, "x": x})
    got, want = results([case])[0], reference_result(case).views["y"]
    if size < 1e-36:
        want = np.zeros_like(want)
    np.testing.assert_allclose(got, want, rtol=1e-5)
