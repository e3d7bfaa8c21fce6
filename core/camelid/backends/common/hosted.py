"""Steps on a host: submission, counters, recording and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import unpack_from
from typing import Any

from camelid.backends.base import Program, Result, Ticket
from camelid.backends.common.boundary import checked_inputs, made_bytes
from camelid.backends.common.host import Host, Json, host_errors
from camelid.backends.common.recording import Recording
from camelid.backends.common.results import output_rows

COUNTERS = ("runs", "in_flight", "max_in_flight", "bytes_read_back")


@dataclass(frozen=True, slots=True)
class HostProgram:
    """A compiled plan: its number on the host, and the offsets of its activations in the buffer `arena`."""

    number: int
    arena: str
    offsets: Mapping[str, int]


@dataclass(slots=True)
class HostStep:
    """A submitted step: the host's ticket, the step's bytes, and its record in the tape."""

    own: HostProgram
    ticket: Any
    step: bytes
    record: Json
    is_read: bool = False


class HostedSteps:
    """Steps of a backend over a host, shared by all such backends."""

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
        n_outputs = unpack_from("<I", step, 4 * program.plan.layout.header_word("outputs"))[0]
        return Ticket(program, n_outputs, HostStep(own, ticket, step, self.recording.step(own.number, step)))

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step's result. A repeated read counts once."""
        pending: HostStep = ticket.handle
        with host_errors(self._backend):
            data = await self._host.read(pending.ticket)
        if not pending.is_read:
            pending.is_read = True
            self.counters["in_flight"] -= 1
            self.counters["bytes_read_back"] += len(data)
        rows = output_rows(data, ticket)
        pending.record["ids"] = [row.token_id for row in rows]
        return rows

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
