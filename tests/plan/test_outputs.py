"""Output rows: gathered as soon as all remaining ops are row-wise, and the definition of row-wise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from camelid.backends.common.op_runner import OpCase, OpResult, run_case
from camelid.backends.proof.cases import all_rows
from camelid.backends.proof.inputs import CaseRow
from camelid.backends.reference.backend import ReferenceBackend
from camelid.plan.builder import PlanBuilder
from camelid.plan.ops import OPS, Counts, op_bytes
from camelid.plan.outputs import only_outputs
from camelid.plan.plan import Plan, StateSpec, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import Weight, inline_f32

ROWS, OUTPUTS = 8, 2
STATES = (StateSpec("tokens", "ring", (), (("id", 1),), 128),)


def weight(*shape: int) -> Weight:
    return inline_f32("w", [0.0] * prod(shape), shape)


def builder(n_outputs: int = OUTPUTS) -> PlanBuilder:
    capacity = Capacity(rows=ROWS, sequences=2, outputs=n_outputs, updates=1)
    return PlanBuilder(ProgramKey(entry="mixed", capacity=capacity), STATES)


def begun(plan: PlanBuilder) -> View:
    """A view [T, 8] from an op that needs positions: row-wise ops before it need all rows."""
    x = plan.embed(weight(4, 8), "tokens")
    plan.scale(x, 3.0)
    plan.embed_position(x, weight(4, 8))
    return x


def layer(plan: PlanBuilder, x: View) -> None:
    """Reads the stream twice and updates it."""
    plan.add(x, plan.linear(plan.norm(x, None, 1.0), weight(8, 8)))


def ended(plan: PlanBuilder, x: View) -> Plan:
    plan.emit(plan.gather_rows(plan.norm(x, None, 1.0)))
    return plan.build()


def residual(plan: PlanBuilder) -> Plan:
    x = begun(plan)
    layer(plan, x)
    return ended(plan, x)


def lines(plan: Plan) -> list[str]:
    """Each op with its views."""
    return [" ".join([op.name, *(f"{role}={view}" for role, view in op.views())]) for op in plan.ops]


def test_remaining_ops_follow_the_gather() -> None:
    found = only_outputs(residual(builder()))
    assert lines(found) == [
        "embed y=x[T,8]",
        "scale x=x[T,8]",
        "embed_position x=x[T,8]",
        "gather_rows y=x.out[O,8] x=x[T,8]",
        "norm y=h[O,8] x=x.out[O,8]",
        "linear y=y[O,8] x=h[O,8]",
        "add x=x.out[O,8] r=y[O,8]",
        "norm y=h.1[O,8] x=x.out[O,8]",
        "emit x=h.1[O,8]",
    ]
    assert only_outputs(found) == found


def test_every_live_buffer_is_gathered_once() -> None:
    """Columns keep their places. Unread columns are dropped."""
    plan = builder()
    wide, unread = plan.new("wide", "T", 12), plan.new("unread", "T", 4)
    plan.add_op("concat", {"y": wide, "a": begun(plan), "b": unread})
    gate, up, rest = wide.slice(0, 4), wide.slice(4, 4), wide.slice(8, 4)
    y = plan.norm(gate, None, 1.0)
    plan.embed_position(y, weight(4, 4))
    plan.add(rest, plan.glu(y, up, "silu"))
    plan.add(rest, y)
    plan.emit(plan.gather_rows(rest))
    assert lines(only_outputs(plan.build()))[-6:] == [
        "gather_rows y=h.out[O,4] x=h[T,4]",
        "gather_rows y=wide.out[O,12] x=wide[T,12]",
        "glu y=ffn[O,4] gate=h.out[O,4] up=wide.out[O,4:8]",
        "add x=wide.out[O,8:12] r=ffn[O,4]",
        "add x=wide.out[O,8:12] r=h.out[O,4]",
        "emit x=wide.out[O,8:12]",
    ]


def test_rows_without_remaining_ops_are_gathered_too() -> None:
    plan = builder()
    x = begun(plan)
    y = plan.norm(x, None, 1.0)
    plan.embed_position(y, weight(4, 8))
    plan.norm(y, None, 1.0)
    plan.emit(plan.gather_rows(x))
    assert lines(only_outputs(plan.build()))[-4:] == [
        "gather_rows y=h.out[O,8] x=h[T,8]",
        "gather_rows y=x.out[O,8] x=x[T,8]",
        "norm y=h.1[O,8] x=h.out[O,8]",
        "emit x=x.out[O,8]",
    ]


def nothing_left(plan: PlanBuilder) -> Plan:
    plan.emit(plan.gather_rows(begun(plan)))
    return plan.build()


def no_gathering(plan: PlanBuilder) -> Plan:
    x = begun(plan)
    layer(plan, x)
    plan.emit(plan.pool(x, "mean"))
    return plan.build()


def rows_read_later(plan: PlanBuilder) -> Plan:
    x = begun(plan)
    layer(plan, x)
    plan.emit(plan.gather_rows(x))
    plan.emit(plan.pool(x, "mean"))
    return plan.build()


@pytest.mark.parametrize("build", [nothing_left, no_gathering, rows_read_later])
def test_a_plan_without_gain_is_unchanged(build: Callable[[PlanBuilder], Plan]) -> None:
    plan = build(builder())
    assert only_outputs(plan) is plan


def test_a_plan_for_every_row_is_unchanged() -> None:
    plan = residual(builder(ROWS))
    assert only_outputs(plan) is plan
    assert only_outputs(residual(builder(ROWS - 1))).ops[3].name == "gather_rows"


def test_stages_pass_on_the_output_rows() -> None:
    plan = builder()
    x = begun(plan)
    layer(plan, x)
    plan.cut("blk.1")
    layer(plan, x)
    plan.cut("head")
    stages = only_outputs(ended(plan, x)).stages
    assert [(stage.name, len(stage.ops)) for stage in stages] == [("main", 7), ("blk.1", 3), ("head", 2)]
    for one, other in ((0, 1), (1, 2)):
        assert stages[one].outputs == stages[other].inputs
        assert [(b.name, b.rows) for b in stages[other].inputs] == [("x.out", "O")]


def test_experts_are_counted_for_output_rows_only() -> None:
    """With 32 floats per expert, one output with 2 of 4 experts reads at most 2."""
    plan = builder()
    x, ids = plan.new("x", "O", 8), plan.new("ids", "O", 2)
    plan.linear_experts(x, ids, weight(4, 4, 8), "y")
    built = plan.build()
    for n_outputs, n_experts in ((0, 0), (1, 2), (3, 4)):
        counts = Counts(rows={"T": 5, "S": 1, "O": n_outputs}, keys=0)
        views = 4 * n_outputs * (8 + 2 + 2 * 4)
        assert op_bytes(built.ops[0], built, counts) == views + n_experts * 4 * 32


GATE_ROWS = [row for row, _ in all_rows(["f32"]) if row.facts.get("of_outputs")]


def result(case: OpCase) -> OpResult:
    return asyncio.run(run_case(ReferenceBackend(), case))


def of(case: OpCase, rows: list[int]) -> OpCase:
    """The case with these rows alone."""
    return replace(case, views={role: a[rows] for role, a in case.views.items()})


@pytest.mark.parametrize("row", GATE_ROWS, ids=lambda row: row.op)
def test_row_wise_ops_depend_on_their_own_row_only(row: CaseRow) -> None:
    """Rows in any order, repeated or missing, as token rows and as outputs: each row's bits stay the same."""
    case = row.made().case
    n_rows = len(next(iter(case.views.values())))
    assert case.of_outputs and n_rows > 1
    whole = result(replace(case, of_outputs=False)).views
    for rows in ([*range(n_rows)], [n_rows - 1, 0, n_rows - 1], []):
        for role, values in result(of(case, rows)).views.items():
            assert np.array_equal(values, whole[role][rows], equal_nan=True)


def test_every_row_wise_op_has_a_case() -> None:
    assert {row.op for row in GATE_ROWS} == {name for name, row in OPS.items() if row.row_wise}


def test_ops_that_read_state_or_positions_are_not_row_wise() -> None:
    placed = {
        "rope",
        "temperature",
        "norm_rope",
        "embed_position",
        "attend_rows",
        "pool",
        "gather_rows",
        "emit",
        "candidates",
    }
    assert {name for name, row in OPS.items() if row.states} | placed == {
        name for name, row in OPS.items() if not row.row_wise
    }
