"""A backend that computes nothing: it counts ops, bytes and flops, and answers with scripted ids.

It predicts what a step must move before anything runs (`camelid explain`), and drives the engine's tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from camelid.backends.base import (
    Capabilities,
    MemoryReport,
    OpenSpec,
    OutputRow,
    Pool,
    Program,
    Result,
    Sources,
    Ticket,
)
from camelid.errors import BackendError
from camelid.formats.quants import QUANTS
from camelid.plan.ops import OPS, Counts, op_bytes, op_flops
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.step import Step, decode_step
from camelid.plan.weights import Weight

Script = Callable[[int, int], int]  # (sequence, position) -> token id


def step_counts(plan: Plan, step: Step) -> Counts:
    """Real rows by symbol, and keys summed over all rows for the first paged group."""
    paged = [i for i, s in enumerate(plan.states) if s.kind == "paged"][:1]
    keys = sum(
        row.state_row + 1 - step.sequences[row.sequence].groups[g][1] for row in step.rows for g in paged
    )
    rows = {"T": len(step.rows), "S": len(step.sequences), "O": len(step.outputs)}
    return Counts(rows=rows, keys=keys)


class NullBackend:
    """Counts work instead of doing it."""

    def __init__(self, script: Script = lambda sequence, position: 0) -> None:
        self.script = script
        self.counters = {"runs": 0, "ops": 0, "bytes": 0, "flops": 0}
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
        )

    async def open(self, spec: OpenSpec) -> None:
        """Nothing to open."""

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        self._weights.update({w.name: w for w in weights})

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, Pool]) -> None:
        self._state_bytes = sum(s.unit_bytes * units[s.name].units for s in states)

    async def compile(self, plan: Plan) -> Program:
        return Program(plan, None)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, Ticket] | None = None) -> Ticket:
        plan = program.plan
        decoded = decode_step(step, plan.layout)
        counts = step_counts(plan, decoded)
        self.counters["runs"] += 1
        self.counters["ops"] += len(plan.ops)
        self.counters["bytes"] += sum(op_bytes(op, plan, counts) for op in plan.ops)
        self.counters["flops"] += sum(op_flops(op, counts) for op in plan.ops)
        ids = [self.script(sequence, position) for _, sequence, position in decoded.outputs]
        return Ticket(program, len(ids), ids)

    async def read(self, ticket: Ticket) -> Result:
        await asyncio.sleep(0)  # as on a device, other tasks run between steps
        return [OutputRow(token_id=i, status="ok", logit=0.0, log_sum_exp=0.0) for i in ticket.handle]

    async def read_state(self, group: str, unit: int) -> bytes:
        return b""

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        """There is no state."""

    async def run_op(
        self, name: str, arrays: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        raise BackendError("the null backend computes nothing; run the op on 'reference'", backend="null")

    def memory(self) -> MemoryReport:
        weights = sum(w.n_bytes for w in self._weights.values())
        return MemoryReport(
            weight_bytes=weights, state_bytes=self._state_bytes, arena_bytes=0, counters=dict(self.counters)
        )

    async def close(self) -> None:
        """Nothing to close."""


def open_backend() -> NullBackend:
    """The row's entry in `select.BACKENDS`."""
    return NullBackend()
