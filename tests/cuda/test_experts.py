"""Products of experts over tiles of sorted pairs have the bits of those that read an expert for each pair."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import open_rig
from tests.cuda.test_many import ROUNDED
from tests.support.exhaustive import share_of
from tests.support.parity.case_tools import array, empty, f32, weight
from tests.support.parity.compare import run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult, case_plan
from camelid.formats.quants import quant
from camelid_native.cuda import backend, kernels_experts
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.kernels_experts import most_tiles, tile_pairs
from camelid_native.cuda.types import EXACT_TYPES

pytestmark = pytest.mark.parity

ROWS, SLOTS, N_OUT = 37, 3, 38  # a part of a block of outputs
# Number of experts -> pairs of a tile by matrix instructions.
TILES = {60: 8, 16: 16, 8: 32, 3: 64}


def choice(n_experts: int, rows: int) -> Any:
    """Distinct experts of a row: half of the rows choose expert 1 first."""
    drawn = np.random.default_rng(7).permuted(np.tile(np.arange(n_experts), (rows, 1)), axis=1)
    for ids in drawn[::2]:
        ids[np.flatnonzero(ids == 1)], ids[0] = ids[0], 1
    return drawn[:, :SLOTS].astype(np.float32)


def case_of(kind: str, n_experts: int = 8, rows: int = ROWS, parts: int = 1) -> OpCase:
    n_in = 288 if quant(kind).block <= 32 else 768
    weights = {"weight": weight(kind, 1, n_experts, N_OUT, n_in), "bias": f32(array(2, n_experts, N_OUT))}
    views = {"x": array(3, rows, parts * n_in), "ids": choice(n_experts, rows)}
    return OpCase(op="linear_experts", views={"y": empty(rows, SLOTS * N_OUT), **views}, weights=weights)


def results(
    cases: list[OpCase], *, most: int = kernels_experts.MOST_EXPERTS, many: bool = True
) -> list[OpResult]:
    """The results by tiles for up to `most` experts, with matrix instructions or without."""

    class Opened(backend.Opened):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            self.has_matrix = many

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "Opened", Opened)
        patch.setattr(kernels_experts, "MOST_EXPERTS", most)
        return asyncio.run(run_on(open_rig(), OpenSpec(), cases))


def check(cases: list[OpCase], **how: Any) -> None:
    for case, got, want in zip(cases, results(cases, **how), results(cases, most=0), strict=True):
        np.testing.assert_array_equal(got.views["y"], want.views["y"], case.weights["weight"].type)
        assert np.isfinite(want.views["y"]).all() and want.views["y"].any(axis=1).all()


@pytest.mark.parametrize("kind", share_of([*ROUNDED, *sorted(EXACT_TYPES)], 2))
def test_every_type(kind: str) -> None:
    check([case_of(kind)])
    check([case_of(kind)], many=False)


@pytest.mark.parametrize("n_experts", TILES)
def test_every_size_of_a_tile(n_experts: int) -> None:
    cases = [
        case_of(kind, n_experts, parts=parts) for kind in ("q4_0", "q6_k", "f16") for parts in (1, SLOTS)
    ]
    plan, _ = case_plan(cases[0])
    assert tile_pairs(plan.ops[-1], Context(plan, {}, has_matrix=True)) == TILES[n_experts]
    check(cases)


@pytest.mark.parametrize(("order", "wave"), share_of([("7", "32"), ("3", "64"), ("1", "32")], 2))
def test_order_of_threads_changes_no_bit(order: str, wave: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case_of("q4_0"), case_of("q4_0", 60, 200)]
    want = results(cases, most=0)
    monkeypatch.setenv("EMU_ORDER", order)
    monkeypatch.setenv("EMU_WAVE", wave)
    for got, one in zip(results(cases, many=wave == "32"), want, strict=True):  # NVIDIA's waves have 32 lanes
        np.testing.assert_array_equal(got.views["y"], one.views["y"])


def test_capacity_and_places_of_views_change_no_bit() -> None:
    """Also ids beyond the experts, which count as the nearest one, and rows that all choose one expert."""
    cases = [case_of("q8_0", parts=SLOTS), case_of("q8_0", rows=9), case_of("f16", parts=SLOTS)]
    placed = [
        replace(case, margins=(3, 2), spare=spare) for case, spare in zip(cases, (90, 1, 7), strict=True)
    ]
    for got, want in zip(results(placed), results(cases, most=0), strict=True):
        np.testing.assert_array_equal(got.views["y"][:, 3:-2], want.views["y"])
    for ids in (-4.0, 3.0, 99.0):
        odd = replace(cases[0], views={**cases[0].views, "ids": np.full((ROWS, SLOTS), ids, np.float32)})
        check([odd])


def test_tiles_hold_any_choice() -> None:
    """The grid has a block for each tile of an even choice, and of one pair for all experts but one."""
    for n_experts in TILES:
        plan, _ = case_plan(case_of("q4_0", n_experts))
        op, context = plan.ops[-1], Context(plan, {}, has_matrix=True)
        each, left = divmod(ROWS * SLOTS, n_experts)
        size = tile_pairs(op, context)
        even = [each + (i < left) for i in range(n_experts)]
        worst = [1] * (n_experts - 1) + [ROWS * SLOTS - n_experts + 1]
        for counts in (even, worst):
            assert sum(-(-n // size) for n in counts) <= most_tiles(op, context) <= ROWS * SLOTS
