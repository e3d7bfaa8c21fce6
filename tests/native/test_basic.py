"""Norms, elementwise ops, rope, routers, streams and recurrent ops: against the reference, and equal bits for
any view placement, batch and number of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.exhaustive import share_of
from tests.support.native.cases_basic import own_cases
from tests.support.native.kernels import VARIANTS
from tests.support.parity.cases import OP_CASES, case_id
from tests.support.parity.compare import TOLERANCE, nmse, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid_native.cpu.backend import open_backend

OPS = {
    "add", "add_norm", "affine", "bonus_rwkv7", "clamp", "combine", "concat", "conv1d", "cutoff", "glu",
    "length", "mix", "mul", "norm", "rope", "router", "scale", "scan_delta", "scan_mamba2", "scan_rwkv6",
    "scan_rwkv7", "softcap", "temperature", "token_shift", "unary", "xielu",
}  # fmt: skip
STATEFUL = set(SLOT_TENSORS)
CASES = [case for case in OP_CASES if case.op in OPS and case.margins == (0, 0)] + own_cases()
# Views amid others, so that none starts at a vector boundary, and with rows beyond the step's.
PLACED = [replace(case, margins=(3, 2), spare=2) for case in CASES]
LEFT, RIGHT = PLACED[0].margins


def run(variant: str, threads: int, cases: Sequence[OpCase]) -> list[OpResult]:
    return asyncio.run(run_on(open_backend(), OpenSpec(adapter=variant, threads=threads), list(cases)))


@pytest.fixture(scope="module")
def wanted() -> list[OpResult]:
    return [reference_result(case) for case in CASES]


@pytest.fixture(scope="module", params=share_of(dict.fromkeys((VARIANTS[-1], *VARIANTS))))
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def alone(variant: str) -> list[OpResult]:
    """Results with one thread."""
    return run(variant, 1, CASES)


def same(a: OpResult, b: OpResult) -> bool:
    views = all(np.array_equal(a.views[role], b.views[role], equal_nan=True) for role in b.views)
    return views and all(np.array_equal(a.state[name], b.state[name], equal_nan=True) for name in b.state)


def label(i: int) -> str:
    return f"{i}-{case_id(CASES[i])}-{dict(CASES[i].attrs)}"


def test_every_op_has_a_case() -> None:
    assert {case.op for case in CASES} == OPS


def test_each_op_matches_the_reference(alone: list[OpResult], wanted: list[OpResult]) -> None:
    off: dict[str, float] = {}
    for i, (got, want) in enumerate(zip(alone, wanted, strict=True)):
        found = [nmse(got.views[role], want.views[role]) for role in want.views]
        found += [nmse(got.state[name], want.state[name]) for name in want.state]
        off[label(i)] = max(found)
    assert {name: error for name, error in off.items() if error > TOLERANCE} == {}


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(variant: str, alone: list[OpResult], threads: int) -> None:
    shared = run(variant, threads, CASES)
    assert [label(i) for i in range(len(CASES)) if not same(shared[i], alone[i])] == []


def test_view_placement_changes_no_bit(variant: str, alone: list[OpResult]) -> None:
    """Also, no byte outside a view is written."""
    placed = run(variant, 2, PLACED)
    for i, (got, want) in enumerate(zip(placed, alone, strict=True)):
        inner = {role: view[:, LEFT:-RIGHT] for role, view in got.views.items()}
        assert same(replace(got, views=inner), want), label(i)
        for role in CASES[i].views.keys() & got.views.keys():
            margins = np.concatenate([got.views[role][:, :LEFT], got.views[role][:, -RIGHT:]], axis=1)
            assert len(np.unique(margins)) == 1, label(i)


def row_of(case: OpCase, t: int) -> OpCase:
    views = {role: view[t : t + 1] for role, view in case.views.items()}
    return replace(case, views=views, positions=case.positions[t : t + 1])


def test_rows_are_independent(variant: str, alone: list[OpResult]) -> None:
    chosen = [i for i, case in enumerate(CASES) if case.op not in STATEFUL]
    places = [(i, t) for i in chosen for t in range(len(next(iter(CASES[i].views.values()))))]
    single = run(variant, 1, [row_of(CASES[i], t) for i, t in places])
    for (i, t), got in zip(places, single, strict=True):
        cut = replace(alone[i], views={role: view[t : t + 1] for role, view in alone[i].views.items()})
        assert same(got, cut), label(i)


def part_of(case: OpCase, start: int, end: int, slots: Any) -> OpCase:
    views = {role: view[start:end] for role, view in case.views.items()}
    positions = case.positions[start:end]
    return replace(case, views=views, positions=positions, lengths=[end - start], slots=slots)


def test_chunks_of_a_sequence_change_no_bit(variant: str) -> None:
    """Each row in a separate step, from the state of the previous step."""
    longest = [case for case in CASES if case.op in STATEFUL and len(case.lengths) == 3]
    assert {case.op for case in longest} == STATEFUL
    for case in longest:
        assert case.slots is not None
        start, end = sum(case.lengths[:2]), sum(case.lengths)
        whole, *_ = run(variant, 1, [part_of(case, start, end, case.slots[:1])])
        slots: Any = case.slots[:1]
        for t in range(start, end):
            one, *_ = run(variant, 1, [part_of(case, t, t + 1, slots)])
            assert np.array_equal(one.views["y"][0], whole.views["y"][t - start]), case.op
            slots = one.state[SLOT_TENSORS[case.op]]
        assert np.array_equal(slots, whole.state[SLOT_TENSORS[case.op]])


@pytest.mark.parametrize("gate", ["softmax", "sigmoid", "topk_softmax"])
@pytest.mark.parametrize("n_groups", [1, 4])
def test_broken_logits_select_existing_experts(variant: str, gate: str, n_groups: int) -> None:
    logits = np.full((4, 20), np.nan, np.float32)
    logits[1, 3:], logits[2], logits[3] = 1.0, -np.inf, np.inf
    views = {"ids": np.zeros((4, 5), np.float32), "probs": np.zeros((4, 5), np.float32), "logits": logits}
    attrs = {"gate": gate, "n_groups": n_groups, "n_groups_used": 1}
    result, *_ = run(variant, 1, [OpCase(op="router", views=views, attrs=attrs)])
    for ids in result.views["ids"].tolist():
        assert len(set(ids)) == 5
        assert set(ids) <= set(range(20))
