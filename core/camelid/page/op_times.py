"""Times of single ops of a plan on an open backend.

The clock is the device's where it has timestamp queries, else that of this process. An op is timed in two
programs of its own: the op once, and the op REPEATS times more. The difference is free of the cost of a
submission. A repeated op finds its weights in caches where they fit, and attention its rows, which are all of
one unit: rates of both are upper bounds. A program is kept, and ops that differ in nothing but the names of
weights and layers share one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from camelid.backends.base import Backend, Program
from camelid.plan.plan import Op, Plan, Stage, StateRef, View
from camelid.plan.step import FROM_ID, ProgramKey, Step, StepRow, StepSampling, StepSequence, encode_step
from camelid.plan.weights import Weight

REPEATS = 32
ROUNDS = 7  # measurements of each program, of which the fastest counts
CLOCK_STEPS = 20  # least length of a measurement: browsers round the clock, some of them to 1 ms
MOST_S = 0.1  # of that length: a browser that resists fingerprinting has steps of 16 ms and more
TIMESTAMPS, SUBMISSIONS = "timestamps", "submissions"  # clocks: the device's, and that of this process


@dataclass(frozen=True, slots=True)
class OpTime:
    """Seconds of one op, 0.0 below the clock's resolution; `n_alike` ops of its plan share them."""

    seconds: float
    n_alike: int


class OpTimer:
    """Times ops on a backend. Its steps run in unit 0 of every state group, which no sequence reads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.how = SUBMISSIONS  # the clock of the last measurement
        self._least_s = 0.0  # seconds of a measurement by this process's clock
        self._programs: dict[tuple[Any, ...], tuple[Program, Program]] = {}
        self._lock = asyncio.Lock()  # programs have names by their number

    async def times(self, plan: Plan, held: int) -> list[OpTime]:
        """The time of each op in a step of one row after `held` rows; ops of one kind are timed once."""
        kinds = Counter(map(_kind, plan.ops))
        firsts = {_kind(op): op for op in reversed(plan.ops)}
        async with self._lock:
            self._least_s = min(CLOCK_STEPS * clock_step(), MOST_S)
            seconds = {kind: await self._seconds(plan, op, held) for kind, op in firsts.items()}
        return [OpTime(seconds[_kind(op)], kinds[_kind(op)]) for op in plan.ops]

    async def _seconds(self, plan: Plan, op: Op, held: int) -> float:
        kind = _kind(op)
        pair = self._programs.get(kind) or await self._compiled(plan, op)
        self._programs[kind] = pair
        once, more = [await self._fastest(program, held) for program in pair]
        return max(more - once, 0.0) / REPEATS

    async def _compiled(self, plan: Plan, op: Op) -> tuple[Program, Program]:
        n = len(self._programs)
        plans = [_repeated(plan, op, times, f"time{n}x{times}") for times in (1, 1 + REPEATS)]
        once, more = [await self._backend.compile(one) for one in plans]
        return once, more

    async def _fastest(self, program: Program, held: int) -> float:
        step = encode_step(unread_step(program.plan, held), program.plan.layout)
        return min([await self._run(program, step) for _ in range(ROUNDS)])

    async def _run(self, program: Program, step: bytes) -> float:
        seconds = await self._backend.device_seconds(program, step)
        if seconds is not None:
            self.how = TIMESTAMPS
            return seconds
        start, taken, n_runs = perf_counter(), 0.0, 0
        while taken <= self._least_s:
            await self._backend.read(self._backend.run(program, step))
            taken, n_runs = perf_counter() - start, n_runs + 1
        return taken / n_runs


def clock_step() -> float:
    """The smallest difference seen between two times of this process's clock, in seconds."""
    steps: list[float] = []
    for _ in range(4):
        start = now = perf_counter()
        while now == start:
            now = perf_counter()
        steps.append(now - start)
    return min(steps)


def unread_step(plan: Plan, held: int) -> Step:
    """A step of one row after `held` rows of unit 0, with one output."""
    row = StepRow(source=FROM_ID, value=0, sequence=0, state_row=held, positions=(held,) * plan.n_channels)
    groups = tuple((0, 0, held) for _ in plan.states)
    sequence = StepSequence(first_row=0, rows=1, groups=groups)
    return Step(rows=[row], sequences=[sequence], outputs=[(0, 0, held + 1)], sampling=[StepSampling()])


def _repeated(plan: Plan, op: Op, times: int, entry: str) -> Plan:
    """A plan of one op, repeated."""
    key: ProgramKey = replace(plan.key, entry=entry)
    return replace(plan, key=key, stages=(Stage("main", (op,) * times),))


def _kind(op: Op) -> tuple[Any, ...]:
    """Equal for ops that differ in names of weights and in layers only."""
    return op.name, op.attrs, tuple((role, _form(operand)) for role, operand in op.operands)


def _form(operand: View | Weight | StateRef) -> tuple[Any, ...]:
    if isinstance(operand, Weight):
        return operand.type, operand.shape
    if isinstance(operand, StateRef):
        return (operand.group,)
    return operand.buffer.rows, operand.buffer.cols, operand.offset, operand.cols, operand.dtype
