"""Counters that only grow, and what a step is predicted to cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from camelid.backends.null.backend import step_counts
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
    retired_decode_rows: int = 0
    prefill_rows: int = 0
    ring_rows: int = 0  # rows whose id the host had not read yet: run-ahead really happened
    discarded_rows: int = 0  # rows whose result came after their sequence had ended
    failed_steps: int = 0
    hosted_rows: int = 0  # rows whose token the host drew
    guided_rows: int = 0  # of these, rows whose token a grammar had to let through
    redrawn_rows: int = 0  # of these, rows whose token is not what the device drew
    full_logits_rows: int = 0  # rows that ran again, since their candidates proved no draw
    prefix_hits: int = 0  # times that a sequence found its first rows computed
    cached_rows: int = 0  # rows that were found
    preemptions: int = 0  # times that a running sequence was sent back to wait
    evicted_units: int = 0  # units that held what nobody had asked for again
    copied_units: int = 0  # units copied since two held them and one wrote
    forks: int = 0
    shifted: int = 0  # times that a full context dropped tokens
    drafted: int = 0  # tokens proposed by speculation
    accepted: int = 0  # of these, tokens that the model drew itself
    timeouts: int = 0


@dataclass(frozen=True, slots=True)
class StepStats:
    """A step that has retired: its program, how many sequences and rows it had, and the seconds it took."""

    program: str
    n_sequences: int
    n_rows: int
    seconds: float


StepHook: TypeAlias = Callable[[StepStats], object]


def notify(hooks: Iterable[StepHook], facts: StepStats) -> None:
    """Calls the hooks. What one raises is the event loop's to report, as with any callback of it."""
    for hook in hooks:
        try:
            hook(facts)
        except Exception as error:
            context = {"message": "a hook that was told of a step failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """How an engine is doing now. Bytes are of state: held by requests, kept for prefixes, and in all."""

    n_running: int
    n_waiting: int
    held_bytes: int
    cached_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class SequenceShare:
    """One sequence's part of a step: rows that it holds before, rows that it adds, outputs."""

    held: int
    n_rows: int
    n_outputs: int = 1


@dataclass(frozen=True, slots=True)
class StepCost:
    """Bytes that a step must move at least, and its floating-point operations."""

    n_bytes: int
    flops: int


def predict_step(plan: Plan, *, n_rows: int = 1, held: int = 0) -> StepCost:
    """The cost of one sequence's `n_rows` rows after `held` rows, with one output."""
    return step_cost(plan, [SequenceShare(held, n_rows)])


def step_cost(plan: Plan, shares: Sequence[SequenceShare]) -> StepCost:
    """Bytes that one step of these sequences must move at least, and its floating-point operations."""
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
