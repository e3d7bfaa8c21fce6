"""The predicted cost of a step, for bench, explain and forecasts: bytes moved, floating-point operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from camelid.plan.ops import Counts, op_bytes, op_flops
from camelid.plan.plan import Plan
from camelid.plan.step import FROM_ID, Step, StepRow, StepSequence

KV_KINDS = ("paged", "window")  # state kinds of the KV cache, that of full attention first


def step_counts(plan: Plan, step: Step) -> Counts:
    """Counts of token rows (T), sequences (S), outputs (O), and of attended keys, summed over the rows.

    The keys are those of the first KV cache group; an attention op with a window bounds them.
    """
    cached = [i for i, s in enumerate(plan.states) if s.kind in KV_KINDS][:1]
    keys = sum(_n_keys(row, step.sequences[row.sequence].groups[g]) for row in step.rows for g in cached)
    rows = {"T": len(step.rows), "S": len(step.sequences), "O": len(step.outputs)}
    return Counts(rows=rows, keys=keys)


def _n_keys(row: StepRow, group: tuple[int, int, int]) -> int:
    """Keys of a row: those from the group's first kept row up to its own."""
    _, first_kept, _ = group
    return row.state_row + 1 - first_kept


@dataclass(frozen=True, slots=True)
class SequenceShare:
    """One sequence's part of a step: `n_rows` new rows after `held` cached rows, `n_outputs` outputs."""

    held: int
    n_rows: int
    n_outputs: int = 1


@dataclass(frozen=True, slots=True)
class StepCost:
    """The lower bound of the bytes that a step moves, and its floating-point operations."""

    n_bytes: int
    flops: int


def predict_step(plan: Plan, *, n_rows: int = 1, held: int = 0) -> StepCost:
    """Cost of a step of one sequence: `n_rows` new rows after `held` cached rows, one output."""
    return step_cost(plan, [SequenceShare(held, n_rows)])


def step_cost(plan: Plan, shares: Sequence[SequenceShare]) -> StepCost:
    """Cost of one step with one sequence per share."""
    counts = step_counts(plan, step_of(plan, shares))
    n_bytes = sum(op_bytes(op, plan, counts) for op in plan.ops)
    return StepCost(n_bytes, sum(op_flops(op, counts) for op in plan.ops))


def step_of(plan: Plan, shares: Sequence[SequenceShare]) -> Step:
    """A step with one sequence per share."""
    step = Step()
    for number, share in enumerate(shares):
        first, state_rows = len(step.rows), range(share.held, share.held + share.n_rows)
        step.rows += [
            StepRow(source=FROM_ID, value=0, sequence=number, state_row=row, positions=(row,))
            for row in state_rows
        ]
        groups = ((1, 0, share.held),) * len(plan.states)  # table row, first kept row, rows held
        step.sequences.append(StepSequence(first_row=first, rows=share.n_rows, groups=groups))
        step.outputs += [(first + share.n_rows - 1, number, state_rows.stop)] * share.n_outputs
    return step
