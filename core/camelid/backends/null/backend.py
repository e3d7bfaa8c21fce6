"""The null backend: counts ops, bytes and flops of steps, and returns scripted ids.

`camelid explain` uses its counts, the engine's tests its late mode: steps queue up and take effect in order,
each after a random number of event-loop turns, as on a busy device.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from struct import iter_unpack, unpack_from

from camelid.backends.base import (
    Backend,
    Capabilities,
    MemoryReport,
    OpenSpec,
    OutputRow,
    PoolSize,
    Program,
    Result,
    Sources,
    Ticket,
)
from camelid.backends.common.boundary import made_bytes
from camelid.formats.quants import QUANTS
from camelid.plan.cost import step_counts
from camelid.plan.dtypes import DTYPES
from camelid.plan.ops import OPS, op_bytes, op_flops
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.step import Step, decode_step
from camelid.plan.weights import Weight

Script = Callable[[int, int], int]  # (sequence, position) -> token id
MOST_TURNS = 3  # most event-loop turns that a late read waits


def output_words(step: bytes, plan: Plan) -> list[tuple[int, int, int]]:
    """Decodes only the outputs (row, sequence, position) of an encoded step."""
    n = unpack_from("<I", step, 4 * plan.layout.header_word("outputs"))[0]
    return list(iter_unpack("<3I", step[4 * plan.layout.outputs_at :][: 12 * n]))


@dataclass(slots=True)
class QueuedStep:
    """A step in the queue, with its result after it took effect. `number` is its index of submission."""

    number: int
    program: Program
    step: bytes
    result: Result | None = None


class NullBackend(Backend):
    """A backend that counts work and computes nothing.

    Steps take effect on submission. With `late` they wait in a queue: at each event-loop turn of a waiting
    read, some of them take effect, oldest first. `counts=False` skips the cost of ops, which is slower than a
    step of the engine.
    """

    def __init__(
        self,
        script: Script = lambda sequence, position: 0,
        *,
        late: Random | None = None,
        counts: bool = True,
    ) -> None:
        self.script = script
        self.late = late
        self.counters = {"runs": 0, "ops": 0, "bytes": 0, "flops": 0}
        self._counts = counts
        self._queue: deque[QueuedStep] = deque()
        self._weights: dict[str, Weight] = {}
        self._state_bytes = 0

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="null",
            device="nothing",
            ops=frozenset(OPS),
            weight_types=frozenset(QUANTS),
            promise="none",
            max_in_flight=2,
            dtypes=frozenset(DTYPES),
        )

    async def open(self, spec: OpenSpec) -> None:
        """No-op: there is no device."""

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        self._weights.update({w.name: w for w in weights})

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        self._state_bytes = sum(s.unit_bytes * units[s.name].units for s in states)

    async def compile(self, plan: Plan) -> Program:
        return Program(plan, None)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        work = QueuedStep(self.counters["runs"], program, step)
        self.counters["runs"] += 1
        if self._counts:
            self._count(program.plan, decode_step(step, program.plan.layout))
        self._queue.append(work)
        if self.late is None:
            self.finish()
        return Ticket(program, len(output_words(step, program.plan)), work)

    def _count(self, plan: Plan, step: Step) -> None:
        counts = step_counts(plan, step)
        self.counters["ops"] += len(plan.ops)
        self.counters["bytes"] += sum(op_bytes(op, plan, counts) for op in plan.ops)
        self.counters["flops"] += sum(op_flops(op, counts) for op in plan.ops)

    def effect(self, work: QueuedStep) -> Result:
        """Applies a step and returns its result. Called once per step, in order of submission."""
        words = output_words(work.step, work.program.plan)
        return [
            OutputRow(token_id=self.script(sequence, position), status="ok", logit=0.0, log_sum_exp=0.0)
            for _, sequence, position in words
        ]

    def finish(self, n: int | None = None) -> None:
        """Applies the `n` oldest steps of the queue, or all steps."""
        for _ in range(len(self._queue) if n is None else min(n, len(self._queue))):
            work = self._queue.popleft()
            work.result = self.effect(work)

    async def read(self, ticket: Ticket) -> Result:
        work: QueuedStep = ticket.handle
        await asyncio.sleep(0)  # other tasks run between steps, as on a device
        if self.late:
            await self._wait(self.late)
        while work.result is None:
            self.finish(1)
        return work.result

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        work: QueuedStep = ticket.handle
        await self.read(ticket)
        return {name: bytes(n) for name, n in made_bytes(ticket.program, work.step).items()}

    async def _wait(self, late: Random) -> None:
        for _ in range(late.randint(0, MOST_TURNS)):
            self.finish(late.randint(0, 1))
            await asyncio.sleep(0)

    async def read_state(self, group: str, unit: int) -> bytes:
        self.finish()  # calls take effect in the order issued
        return b""

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        self.finish()

    def memory(self) -> MemoryReport:
        weights = sum(w.n_bytes for w in self._weights.values())
        return MemoryReport(
            weight_bytes=weights, state_bytes=self._state_bytes, arena_bytes=0, counters=dict(self.counters)
        )

    async def close(self) -> None:
        """No-op: there is no device."""


def open_backend() -> NullBackend:
    """The entry point of this module for `registry.BACKENDS`."""
    return NullBackend()
