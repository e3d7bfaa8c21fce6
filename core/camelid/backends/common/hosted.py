"""Backends over a host: submission of steps, counters, recording, results, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camelid.backends.base import Backend, MemoryReport, Program, Result, Ticket
from camelid.backends.common.boundary import checked_inputs, made_bytes, outputs_of
from camelid.backends.common.host import Host, Json, host_errors
from camelid.backends.common.recording import Recording
from camelid.backends.common.results import output_rows
from camelid.plan.plan import View

COUNTERS = ("runs", "in_flight", "max_in_flight", "bytes_read_back")


@dataclass(slots=True, eq=False)
class HostProgram:
    """A compiled plan: its number on the host, and the offsets of its activations in the buffer `arena`.

    The number changes when a lost device is opened again.
    """

    number: int
    arena: str
    offsets: Mapping[str, int]


@dataclass(slots=True)
class HostStep:
    """A submitted step: the host's ticket, the step's bytes, its record in the tape, and its results."""

    own: HostProgram
    ticket: Any
    step: bytes
    record: Json
    rows: Result | None = None


class HostedSteps:
    """Steps of a backend over a host."""

    def __init__(self, host: Host, backend: str) -> None:
        self._host, self._backend = host, backend
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.recording = Recording()

    def run(
        self, program: Program, own: HostProgram, step: bytes, inputs: Mapping[str, bytes] | None
    ) -> Ticket:
        """Submits a step, which runs after the steps submitted before."""
        buffers = checked_inputs(program, step, inputs, backend=self._backend)
        with host_errors(self._backend):
            for name, data in buffers.items():
                if data:  # hosts refuse empty writes; a step without outputs has empty boundary buffers
                    self._host.write(own.arena, own.offsets[name], data)
            ticket = self._host.run(own.number, step)
        counters = self.counters
        counters["runs"] += 1
        counters["in_flight"] += 1
        counters["max_in_flight"] = max(counters["max_in_flight"], counters["in_flight"])
        n_outputs = outputs_of(program, step)
        return Ticket(program, n_outputs, HostStep(own, ticket, step, self.recording.step(own.number, step)))

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step's result. A repeated read returns the same rows: hosts read a ticket once."""
        pending: HostStep = ticket.handle
        if pending.rows is None:
            with host_errors(self._backend):
                data = await self._host.read(pending.ticket)
            pending.rows = output_rows(data, ticket)
            pending.record["ids"] = [row.token_id for row in pending.rows]
            self.counters["in_flight"] -= 1
            self.counters["bytes_read_back"] += len(data)
        return pending.rows

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        """Reads the boundary buffers that the step has written for later stages."""
        pending: HostStep = ticket.handle
        arena, offsets = pending.own.arena, pending.own.offsets
        sizes = made_bytes(ticket.program, pending.step)
        with host_errors(self._backend):
            return {
                name: await self._host.read_state(arena, offsets[name], n) if n else b""
                for name, n in sizes.items()
            }


class Hosted(Backend):
    """The methods of a backend over a host that are the same for every host."""

    arena_buffers: tuple[str, ...]  # prefixes of the names of buffers for activations

    def __init__(self, host: Host, name: str) -> None:
        self._host, self._name = host, name
        self._steps = HostedSteps(host, name)

    def program_of(self, program: Program) -> HostProgram:
        """The backend's part of a compiled program."""
        return program.handle

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step and returns its results."""
        return await self._steps.read(ticket)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs a step with bytes in the input views, and returns the bytes of the output views."""
        own, rows = self.program_of(program), program.plan.rows
        places = [(own.offsets[view.buffer.name], rows[view.rows] * view.row_bytes) for view in outputs]
        with host_errors(self._name):
            for view, data in inputs.items():
                await self._host.write_state(own.arena, own.offsets[view.buffer.name], data)
            ticket = self.run(program, step)
            await self.read(ticket)  # frees the step's slot, even if the caller never reads the ticket
            return ticket, [await self._host.read_state(own.arena, *place) for place in places]

    def memory(self) -> MemoryReport:
        """Bytes of the host's buffers by use, and the counters of the steps."""
        sizes = self._host.memory()

        def total(*prefixes: str) -> int:
            return sum(n for name, n in sizes.items() if name.startswith(prefixes))

        return MemoryReport(
            weight_bytes=total("weight/"),
            state_bytes=total("state/", "table/"),
            arena_bytes=total(*self.arena_buffers),
            counters=dict(self._steps.counters),
        )

    def record(self) -> None:
        """Starts recording for `save_tape`. Call it before `load`."""
        self._steps.recording.start()

    def save_tape(self, path: str) -> None:
        """Writes the recorded sections and steps as a tape, which a host replays without camelid."""
        self._steps.recording.save(path)
