"""The predicted cost of a step: bytes moved and floating-point operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from camelid.plan.ops import Counts, op_bytes, op_flops
from camelid.plan.plan import Plan
from camelid.plan.step import FROM_ID, Step, StepRow, StepSequence


def step_counts(plan: Plan, step: Step) -> Counts:
    """Row counts by symbol (T, S, O), and the number of keys attended in the first paged group."""
    paged = [i for i, s in enumerate(plan.states) if s.kind == "paged"][:1]
    keys = sum(
        row.state_row + 1 - step.sequences[row.sequence].groups[g][1] for row in step.rows for g in paged
    )
    rows = {"T": len(step.rows), "S": len(step.sequences), "O": len(step.outputs)}
    return Counts(rows=rows, keys=keys)


@dataclass(frozen=True, slots=True)
class SequenceShare:
    """One sequence's part of a step: `held` rows in the KV cache, `n_rows` new rows, `n_outputs` outputs."""

    held: int
    n_rows: int
    n_outputs: int = 1


@dataclass(frozen=True, slots=True)
class StepCost:
    """The least bytes that a step moves, and its floating-point operations."""

    n_bytes: int
    flops: int


def predict_step(plan: Plan, *, n_rows: int = 1, held: int = 0) -> StepCost:
    """Cost of a step of one sequence: `n_rows` rows after `held` rows, one output."""
    return step_cost(plan, [SequenceShare(held, n_rows)])


def step_cost(plan: Plan, shares: Sequence[SequenceShare]) -> StepCost:
    """Cost of one step of these sequences."""
    step = Step()
    for number, share in enumerate(shares):
        first, states = len(step.rows), range(share.held, share.held + share.n_rows)
        step.rows += [
            StepRow(source=FROM_ID, value=0, sequence=number, state_row=row, positions=(row,))
            for row in states
        ]
        groups = tuple((1, 0, share.held) for _ in plan.states)
        step.sequences.append(StepSequence(first_row=first, rows=share.n_rows, groups=groups))
        step.outputs += [(first + share.n_rows - 1, number, states.stop)] * share.n_outputs
    counts = step_counts(plan, step)
    n_bytes = sum(op_bytes(op, plan, counts) for op in plan.ops)
    return StepCost(n_bytes, sum(op_flops(op, counts) for op in plan.ops))
