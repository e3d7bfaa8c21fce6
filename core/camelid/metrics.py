"""Counters that only grow, and what a step is predicted to cost."""

from __future__ import annotations

from dataclasses import dataclass

from camelid.backends.null import step_counts
from camelid.plan.ops import op_bytes, op_flops
from camelid.plan.plan import Plan
from camelid.plan.step import FROM_ID, Step, StepRow, StepSequence


@dataclass(slots=True)
class Counters:
    """What an engine has done. Tests assert on these, so that a feature that never engaged cannot pass."""

    requests: int = 0
    steps_submitted: int = 0
    steps_retired: int = 0
    max_in_flight: int = 0
    decode_rows: int = 0
    prefill_rows: int = 0
    ring_rows: int = 0  # rows whose id the host had not read yet: run-ahead really happened
    discarded_rows: int = 0  # rows whose result came after their sequence had ended
    failed_steps: int = 0
    guided_rows: int = 0  # rows whose token a grammar had to let through
    redrawn_rows: int = 0  # of these, rows whose drawn token it did not


@dataclass(frozen=True, slots=True)
class StepCost:
    """Bytes that a step must move at least, and its floating-point operations."""

    n_bytes: int
    flops: int


def predict_step(plan: Plan, *, n_rows: int = 1, held: int = 0) -> StepCost:
    """The cost of one sequence's `n_rows` rows after `held` rows, with one output."""
    step = Step(outputs=[(n_rows - 1, 0, held + n_rows)])
    step.rows = [
        StepRow(source=FROM_ID, value=0, sequence=0, state_row=held + i, positions=(held + i,))
        for i in range(n_rows)
    ]
    groups = tuple((1, 0, held) for _ in plan.states)
    step.sequences = [StepSequence(first_row=0, rows=n_rows, groups=groups)]
    counts = step_counts(plan, step)
    n_bytes = sum(op_bytes(op, plan, counts) for op in plan.ops)
    return StepCost(n_bytes, sum(op_flops(op, counts) for op in plan.ops))
