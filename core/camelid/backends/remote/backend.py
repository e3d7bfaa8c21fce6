"""The remote backend: the Backend protocol, spoken to a stage in another process or on another machine.

A step is one message there and one back: the reply has the boundary buffers and the result. A lost stage
raises DeviceLostError from every open call, at once where its process ended, else within `lost_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from struct import Struct
from types import CoroutineType
from typing import Any

from camelid.backends.base import (
    Backend,
    Capabilities,
    MemoryReport,
    OpenSpec,
    PoolSize,
    Program,
    Result,
    Sources,
    Ticket,
)
from camelid.backends.common.boundary import checked_inputs, made_bytes, outputs_of
from camelid.backends.remote.frames import LOST_S, Kind, damaged, table_at, table_bytes
from camelid.backends.remote.link import Frames, Link, settled
from camelid.backends.remote.rows import N_FRAMES, unpack_rows
from camelid.backends.remote.sources import described
from camelid.backends.remote.tables import check_loaded, expect, table_of, value_of
from camelid.errors import BackendError
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.weights import Weight

PROGRAM = Struct("<I")
UNIT_CALLS_S = 60.0  # most seconds of a call that the caller's thread waits for
CLOSED = Capabilities(
    name="remote", device="no stage", ops=frozenset(), weight_types=frozenset(), promise="none",
    max_in_flight=1,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemoteStep:
    """A step under way: its bytes, and its reply."""

    step: bytes
    reply: Future[Frames]


class RemoteBackend(Backend):
    """The backend of the stage at `address`, which holds the same `token`."""

    def __init__(self, address: str, token: str, *, lost_s: float = LOST_S) -> None:
        self.address, self._token, self._lost_s = address, token, lost_s
        self._link: Link | None = None
        self._can = replace(CLOSED, device=f"no stage at {address} yet")
        self._loaded: dict[str, Weight] = {}

    def capabilities(self) -> Capabilities:
        return self._can

    async def open(self, spec: OpenSpec) -> None:
        """Connects, and opens the stage's backend.

        Raises BackendError for a stage of another version, DeviceLostError if none answers.
        """
        await self.close()
        self._link = Link(self.address, self._token, self._lost_s)
        try:
            await self._link.greet()
            table, _ = await self._call("open", spec=table_of(spec))
        except BaseException:
            await self.close()
            raise
        can = expect(Capabilities, value_of(table.get("capabilities")))
        self._can = replace(
            can, device=f"{can.device} at {self.address}", refuses=self._refusal, is_concurrent=True
        )

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Loads weights on the stage's machine, from its own files at the same paths.

        Raises ModelFormatError for a file that is absent there, or differs.
        """
        files = await asyncio.to_thread(described, sources)
        await self._call("load", weights=table_of(weights), sources=files)
        self._loaded |= {weight.name: weight for weight in weights}

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        await self._call("allocate", states=table_of(states), units=table_of(units))

    async def compile(self, plan: Plan) -> Program:
        check_loaded(plan, self._loaded)
        table, _ = await self._call("compile", plan=table_of(plan, by_name=True))
        return Program(plan, PROGRAM.pack(expect(int, table.get("program"))))

    def _refusal(self, plan: Plan) -> str:
        weights = table_of(plan.weights())
        table, _ = self._ask_now("refuses", plan=table_of(plan, by_name=True), weights=weights)
        return str(table.get("reason", ""))

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Sends a step, which runs after the steps sent before."""
        given = checked_inputs(program, step, inputs, backend="remote")
        stages = program.plan.stages
        ordered = (given[b.name] for b in chain.from_iterable(s.inputs for s in stages[:1]))
        reply = self._opened().ask(Kind.RUN, program.handle, step, *ordered)
        n_outputs = outputs_of(program, step)
        return Ticket(program, n_outputs, RemoteStep(step, reply))

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step's reply; other asyncio tasks run meanwhile."""
        pending: RemoteStep = ticket.handle
        return unpack_rows((await settled(pending.reply))[:N_FRAMES])

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        pending: RemoteStep = ticket.handle
        frames = (await settled(pending.reply))[N_FRAMES:]
        sizes = made_bytes(ticket.program, pending.step)
        if [len(frame) for frame in frames] != list(sizes.values()):
            raise damaged(f"boundary buffers of {[*map(len, frames)]} bytes, expected {sizes}")
        return dict(zip(sizes, frames, strict=True))

    def read_state(self, group: str, unit: int) -> CoroutineType[Any, Any, bytes]:
        """Reads a unit. The call leaves at once, so it precedes steps that are run before it is awaited."""
        return _unit(self._send("read_state", group=group, unit=unit))

    def write_state(self, group: str, unit: int, data: bytes) -> CoroutineType[Any, Any, None]:
        """Writes a unit. The call leaves at once, as that of `read_state`."""
        return _done(self._send("write_state", bytes(data), group=group, unit=unit))

    def memory(self) -> MemoryReport:
        """The stage's report. The calling thread waits for it, behind the steps under way."""
        if self._link is None:
            return MemoryReport(weight_bytes=0, state_bytes=0, arena_bytes=0)
        table, _ = self._ask_now("memory")
        return expect(MemoryReport, value_of(table.get("memory")))

    async def close(self) -> None:
        """Ends the connection; the stage then frees its memory."""
        link, self._link = self._link, None
        self._loaded = {}
        if link:
            link.close()

    def _opened(self) -> Link:
        if self._link is None:
            raise BackendError("backend 'remote' is not open; call open() first", backend="remote")
        return self._link

    def _send(self, name: str, *data: bytes, **words: Any) -> Future[Frames]:
        return self._opened().ask(Kind.CALL, table_bytes({"call": name, **words}), *data)

    async def _call(self, name: str, *data: bytes, **words: Any) -> tuple[dict[str, Any], Frames]:
        return _parts(await settled(self._send(name, *data, **words)))

    def _ask_now(self, name: str, **words: Any) -> tuple[dict[str, Any], Frames]:
        try:
            return _parts(self._send(name, **words).result(UNIT_CALLS_S))
        except TimeoutError as error:
            raise BackendError(
                f"the stage at {self.address} is busy: no answer to {name!r} in {UNIT_CALLS_S:g} s; wait",
                backend="remote",
            ) from error


def _parts(frames: Frames) -> tuple[dict[str, Any], Frames]:
    """The table and the raw frames of a reply."""
    return table_at(frames), frames[1:]


async def _unit(reply: Future[Frames]) -> bytes:
    return b"".join(_parts(await settled(reply))[1])


async def _done(reply: Future[Frames]) -> None:
    await settled(reply)


def stages_at(addresses: Sequence[str], token: str) -> list[RemoteBackend]:
    """The backends of some stages, not opened."""
    return list(map(partial(RemoteBackend, token=token), addresses))
