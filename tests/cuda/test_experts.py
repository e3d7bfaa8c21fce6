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
from tests.support.model.file_runs import Loaded, run
from tests.support.parity.case_tools import array, empty, f32, weight
from tests.support.parity.cases_experts import fused_cases
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult, case_plan
from camelid.backends.proof.gate import inputs_of
from camelid.formats.quants import quant
from camelid.model.arch import Model
from camelid.model.archs import ARCHS
from camelid.model.spec import ExpertsSpec, LayerSpec, ModelSpec, RopeSpec
from camelid.model.tensors import tensor_shapes
from camelid.plan.weights import Weight, inline_part
from camelid_native.cuda import backend, kernels_experts, lower
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.kernels_experts import most_tiles, tile_pairs
from camelid_native.cuda.types import EXACT_TYPES

pytestmark = pytest.mark.parity

ROWS, SLOTS, N_OUT = 37, 3, 38  # a part of a block of outputs
# Number of experts -> pairs of a tile by matrix instructions.
TILES = {60: 16, 8: 32, 3: 64}
OPS = ("linear_experts", "linear_experts_glu", "linear_experts_sum")


def choice(n_experts: int, rows: int) -> Any:
    """Distinct experts of a row: half of the rows choose expert 1 first."""
    drawn = np.random.default_rng(7).permuted(np.tile(np.arange(n_experts), (rows, 1)), axis=1)
    for ids in drawn[::2]:
        ids[np.flatnonzero(ids == 1)], ids[0] = ids[0], 1
    return drawn[:, :SLOTS].astype(np.float32)


def case_of(
    kind: str, n_experts: int = 8, rows: int = ROWS, parts: int = 1, op: str = "linear_experts"
) -> OpCase:
    n_in = 288 if quant(kind).block <= 32 else 768
    n_out = 96 if op == "linear_experts_glu" else N_OUT  # whole blocks of columns, for a rounded twin
    weights = {"weight": weight(kind, 1, n_experts, n_out, n_in), "bias": f32(array(2, n_experts, n_out))}
    views = {"x": array(3, rows, parts * n_in), "ids": choice(n_experts, rows)}
    attrs = {"act": "swiglu_oai"} if op == "linear_experts_glu" else {}
    if op == "linear_experts_glu":
        weights |= {
            "up_weight": weight(kind, 4, n_experts, n_out, n_in),
            "up_bias": f32(array(5, n_experts, n_out)),
        }
    if op == "linear_experts_sum":
        views["probs"] = array(6, rows, SLOTS)
    y = empty(rows, n_out if op == "linear_experts_sum" else SLOTS * n_out)
    return OpCase(op=op, views={"y": y, **views}, weights=weights, attrs=attrs)


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


def plain(cases: list[OpCase]) -> list[OpResult]:
    """The results pair by pair, by dot products."""
    return results(cases, most=0, many=False)


def check(cases: list[OpCase], **how: Any) -> None:
    for case, got, want in zip(cases, results(cases, **how), plain(cases), strict=True):
        np.testing.assert_array_equal(got.views["y"], want.views["y"], case.weights["weight"].type)
        assert np.isfinite(want.views["y"]).all() and want.views["y"].any(axis=1).all()


@pytest.mark.parametrize("kind", share_of(["q4_k", *sorted({*ROUNDED, *EXACT_TYPES} - {"q4_k"})]))
def test_every_type(kind: str) -> None:
    cases = [case_of(kind, op=op) for op in OPS]
    check(cases)
    check(cases, many=False)


@pytest.mark.parametrize("n_experts", share_of(TILES))
def test_every_size_of_a_tile(n_experts: int) -> None:
    cases = [
        case_of(kind, n_experts, parts=parts) for kind in ("q4_0", "q6_k", "f16") for parts in (1, SLOTS)
    ]
    plan, _ = case_plan(cases[0])
    assert tile_pairs(plan.ops[-1], Context(plan, {}, has_matrix=True)) == TILES[n_experts]
    check(cases)


@pytest.mark.parametrize(("order", "wave"), share_of([("7", "32"), ("3", "64"), ("1", "32")]))
def test_order_of_threads_changes_no_bit(order: str, wave: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case_of("q4_0"), case_of("q4_0", 60, 200)]
    want = plain(cases)
    monkeypatch.setenv("EMU_ORDER", order)
    monkeypatch.setenv("EMU_WAVE", wave)
    for got, one in zip(results(cases, many=wave == "32"), want, strict=True):  # NVIDIA's waves have 32 lanes
        np.testing.assert_array_equal(got.views["y"], one.views["y"])


def test_capacity_and_places_of_views_change_no_bit() -> None:
    """Also ids beyond the experts, which count as the nearest one, and rows that all choose one expert."""
    cases = [case_of("q8_0", parts=SLOTS), case_of("q8_0", rows=9), case_of("f16", parts=SLOTS)]
    cases += [case_of("q8_0", op=op) for op in OPS[1:]]
    placed = [
        replace(case, margins=(3, 2), spare=spare)
        for case, spare in zip(cases, (90, 1, 7, 3, 3), strict=True)
    ]
    for got, want in zip(results(placed), plain(cases), strict=True):
        np.testing.assert_array_equal(got.views["y"][:, 3:-2], want.views["y"])
    for ids in (-4.0, 3.0, 99.0):
        odd = replace(cases[0], views={**cases[0].views, "ids": np.full((ROWS, SLOTS), ids, np.float32)})
        check([odd])


def test_fused_ops_match_the_reference() -> None:
    can, cases = open_rig().capabilities(), list(fused_cases())
    tested, expected = zip(*(inputs_of(case, can) for case in cases), strict=True)
    for case, got, want in zip(cases, results(list(tested)), map(reference_result, expected), strict=True):
        assert max(errors(got, want)) <= TOLERANCE, (case.op, case.weights["weight"].type)


def model() -> Loaded:
    """Two layers of experts with random weights in q8_0."""
    spec = ModelSpec(
        arch="qwen3moe", name="tiny", n_layers=2, n_heads=4, n_kv_heads=2, head_dim=32, hidden_size=64,
        ffn_size=96, vocab_size=50, context_length=64, norm_eps=1e-6, layers=(LayerSpec(mlp="experts"),) * 2,
        is_tied=False, ropes={"rope": RopeSpec(theta=1e4, dim=32, style="neox")}, attention_scale=0.2,
        experts=ExpertsSpec(n_experts=6, n_used=SLOTS, ffn_size=96, gate="softmax", normalize=True),
    )  # fmt: skip
    weights: dict[str, Weight] = {}
    for seed, (name, shape) in enumerate(tensor_shapes(spec, ARCHS[spec.arch], ("output.weight",)).items()):
        kind = "q8_0" if len(shape) > 1 else "f32"
        part, short = inline_part(weight(kind, seed, *shape).raw), name.removesuffix(".weight")
        weights[short] = Weight(name=short, type=kind, shape=shape, parts=(part,))
    return Loaded(Model(spec, weights), {})


@pytest.mark.parametrize("chunk", share_of([13, 1]))
def test_fused_ops_and_twins_change_no_bit(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by tiles, and rows alone."""
    fused, loaded = open_rig().capabilities().fused, model()
    ids = [[i * 7 % 50 for i in range(30)]]

    def logits(known: frozenset[str]) -> list[list[bytes]]:
        found = asyncio.run(run(open_rig(), loaded, ids, chunk, context=32, fused=known))
        assert all(np.isfinite(row).all() for rows in found for row in rows)
        return [list(map(bytes, rows)) for rows in found]

    want = logits(fused)
    assert logits(fused - {"experts"}) == want
    monkeypatch.setattr(lower, "twins_of", lambda ops: [])
    assert logits(fused) == want


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
