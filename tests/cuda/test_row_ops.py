"""Ops that are neither products nor attention over the KV cache: the reference's results, and equal bits for
any view placement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.cuda.rig import open_rig
from tests.support.exhaustive import share_of
from tests.support.native.cases_basic import delta_case, mamba2_case, own_cases, rwkv6_case, rwkv7_case
from tests.support.parity.case_tools import array, empty
from tests.support.parity.cases_encoder import encoder_cases, places
from tests.support.parity.cases_sampling import LARGE, case, limited
from tests.support.parity.cases_streams import stream_cases
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.ops import OPS


def wide_cases() -> Iterator[OpCase]:
    """State matrices with more columns than the narrow form of a scan holds."""
    for width in (130, 512):
        yield mamba2_case(4, width, 9, 2, 1, places((3, 1)))
        yield delta_case(4, width, 9, 2, 1, places((3, 1)))
    yield rwkv6_case(4, 256, 1, 1, places((3, 1)))
    yield rwkv6_case(4, 130, 2, 1, places((3, 1)), u=False)
    yield rwkv7_case(4, 256, 1, places((3, 1)))


def broken_cases() -> Iterator[OpCase]:
    x = array(11, 2, 70)
    x[1, 40] = np.nan
    views = {r: empty(2, 5) for r in ("ids", "probs")} | {"logits": x}
    for groups in ({}, {"n_groups": 7, "n_groups_used": 2}):
        yield OpCase(op="router", views=views, attrs={"gate": "sigmoid", **groups})


def draw_cases() -> Iterator[OpCase]:
    """The largest noise, of id 561, does not win; a penalty lowers a logit below 0; many equal logits in the
    share of few threads.
    """
    far = np.full((1, 1024), -1e3, np.float32)
    far[0, [561, 541]] = -18.9, 1.0
    yield case(far, limited(temperature=1.0, seed=332))
    low = np.full((1, 60), -9.0, np.float32)
    low[0, [3, 50]] = -1.0, -2.0
    how = limited(temperature=0.0, repeat_penalty=3.0, penalty_last_n=4)
    yield case(low, how, history=[3, 4, 5, 6], first_output=4)
    tied = np.full((1, LARGE), -9.0, np.float32)
    tied[0, np.arange(LARGE) % 256 < 3] = 5.0
    yield case(tied, limited(top_k=230))


WIDE = list(wide_cases())
CASES = [*own_cases(), *stream_cases(), *encoder_cases(), *WIDE, *broken_cases(), *draw_cases()]
CASES = [one for one in CASES if one.op != "rope"]
LEFT, RIGHT = 3, 2


def run(cases: list[OpCase]) -> list[OpResult]:
    return asyncio.run(run_on(open_rig(), OpenSpec(), cases))


@pytest.fixture(scope="module")
def found() -> list[OpResult]:
    return run(CASES)


def label(i: int) -> str:
    return f"{i}-{CASES[i].op}-{dict(CASES[i].attrs)}"


def test_each_op_matches_the_reference(found: list[OpResult]) -> None:
    off = [
        label(i)
        for i, one in enumerate(CASES)
        if not max(errors(found[i], reference_result(one))) <= TOLERANCE
    ]
    assert off == []


def test_view_placement_changes_no_bit(found: list[OpResult]) -> None:
    """Also with capacity for more rows than the step has; no column beside a view is written."""
    placed = run([replace(one, margins=(LEFT, RIGHT), spare=2) for one in CASES])
    for i, (got, want) in enumerate(zip(placed, found, strict=True)):
        for role, view in got.views.items():
            assert np.array_equal(view[:, LEFT:-RIGHT], want.views[role], equal_nan=True), label(i)
            margins = np.concatenate([view[:, :LEFT], view[:, -RIGHT:]], axis=1)
            assert len(np.unique(margins)) == 1, label(i)
        rows = [(row.token_id, row.status, list(row.logits or ())) for row in got.rows]
        assert repr(rows) == repr([(r.token_id, r.status, list(r.logits or ())) for r in want.rows]), label(i)


def test_rows_are_independent(found: list[OpResult]) -> None:
    chosen = [i for i, one in enumerate(CASES) if OPS[one.op].row_wise]
    places = [(i, t) for i in chosen for t in range(len(next(iter(CASES[i].views.values()))))]
    alone = run([replace(CASES[i], views=rows_of(CASES[i].views, t, t + 1)) for i, t in places])
    for (i, t), got in zip(places, alone, strict=True):
        for role, view in got.views.items():
            assert np.array_equal(view[0], found[i].views[role][t], equal_nan=True), label(i)


@pytest.mark.parametrize("is_whole", share_of([False, True]))
def test_chunks_of_a_sequence_change_no_bit(is_whole: bool) -> None:
    """Rows of a sequence one a step, from the state of the step before.

    Ordinary runs hold a case of each op, narrow and wide.
    """
    longest = [one for one in CASES if one.slots is not None and (one.lengths[-1] == 9 or is_wide(one))]
    assert {one.op for one in longest} == set(SLOT_TENSORS)
    if not is_whole:
        longest = [*{(one.op, is_wide(one)): one for one in longest}.values()]
    for one in longest:
        start, end = (0, 3) if is_wide(one) else (6, 15)
        slots: Any = one.slots
        (whole,) = run([part_of(one, start, end, slots[:1])])
        for t in range(start, end):
            (got,) = run([part_of(one, t, t + 1, slots[:1])])
            assert np.array_equal(got.views["y"][0], whole.views["y"][t - start]), one.op
            slots = got.state[SLOT_TENSORS[one.op]]
        assert np.array_equal(slots, whole.state[SLOT_TENSORS[one.op]])


def is_wide(one: OpCase) -> bool:
    return any(one is other for other in WIDE)


def rows_of(views: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    return {role: view[start:end] for role, view in views.items()}


def part_of(one: OpCase, start: int, end: int, slots: Any) -> OpCase:
    views, positions = rows_of(one.views, start, end), one.positions[start:end]
    return replace(one, views=views, positions=positions, lengths=[end - start], slots=slots)
