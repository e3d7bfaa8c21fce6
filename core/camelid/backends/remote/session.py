"""One engine's use of a stage: its backend, programs and weights, call by call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any

from camelid.backends.base import Backend, OpenSpec, PoolSize, Program
from camelid.backends.remote.frames import damaged, table_bytes
from camelid.backends.remote.rows import pack_rows
from camelid.backends.remote.sources import checked
from camelid.backends.remote.tables import expect, expect_all, plan_of, table_of, value_of
from camelid.plan.plan import StateSpec
from camelid.plan.weights import Weight

Frames = Sequence[bytes]
Table = dict[str, Any]


class Session:
    """A backend in use by one engine. Calls come one at a time, in the engine's order."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._programs: list[Program] = []
        self._weights: dict[str, Weight] = {}
        self._calls = {
            "open": self._open, "load": self._load, "allocate": self._allocate, "compile": self._compile,
            "refuses": self._refuses, "memory": self._memory, "read_state": self._read_state,
            "write_state": self._write_state,
        }  # fmt: skip

    async def call(self, table: Table, data: Frames) -> Frames:
        """Runs a call by its name."""
        call = self._calls.get(str(table.get("call")))
        if call is None:
            raise damaged(f"the call {table.get('call')!r:.40} is unknown")
        return await call(table, data)

    async def run(self, frames: Frames) -> Frames:
        """Runs a step, and returns its result and boundary buffers."""
        if len(frames) < 2 or len(frames[0]) != 4:
            raise damaged("a step has no program")
        program = self._program(int.from_bytes(frames[0], "little"))
        step = frames[1]
        if len(step) != 4 * program.plan.layout.n_words:
            raise damaged(f"a step has {len(step)} bytes, expected {4 * program.plan.layout.n_words}")
        names = [b.name for b in chain.from_iterable(s.inputs for s in program.plan.stages[:1])]
        if len(names) != len(frames) - 2:
            raise damaged(f"a step has {len(frames) - 2} boundary buffers, expected {len(names)}")
        ticket = self._backend.run(program, step, dict(zip(names, frames[2:], strict=True)) or None)
        made = await self._backend.read_boundary(ticket)
        rows = await self._backend.read(ticket)
        outputs = chain.from_iterable(s.outputs for s in program.plan.stages[-1:])
        return [*pack_rows(rows), *(bytes(made[b.name]) for b in outputs)]

    def _program(self, number: int) -> Program:
        if number >= len(self._programs):
            raise damaged(f"program {number} was not compiled; there are {len(self._programs)}")
        return self._programs[number]

    async def _open(self, table: Table, _: Frames) -> Frames:
        await self._backend.open(expect(OpenSpec, value_of(table.get("spec"))))
        return [table_bytes({"capabilities": table_of(self._backend.capabilities())})]

    async def _load(self, table: Table, _: Frames) -> Frames:
        weights = expect_all(Weight, value_of(table.get("weights")))
        files = await asyncio.to_thread(checked, table.get("sources"))
        await self._backend.load(weights, files)
        self._weights |= {weight.name: weight for weight in weights}
        return [table_bytes({})]

    async def _allocate(self, table: Table, _: Frames) -> Frames:
        units = {str(name): expect(PoolSize, size) for name, size in value_of(table["units"]).items()}
        await self._backend.allocate(expect_all(StateSpec, value_of(table["states"])), units)
        self._programs.clear()
        return [table_bytes({})]

    async def _compile(self, table: Table, _: Frames) -> Frames:
        program = await self._backend.compile(plan_of(table.get("plan"), self._weights))
        self._programs.append(program)
        return [table_bytes({"program": len(self._programs) - 1})]

    async def _refuses(self, table: Table, _: Frames) -> Frames:
        weights = {str(name): expect(Weight, w) for name, w in value_of(table["weights"]).items()}
        return [
            table_bytes({"reason": self._backend.capabilities().refuses(plan_of(table["plan"], weights))})
        ]

    async def _memory(self, table: Table, _: Frames) -> Frames:
        return [table_bytes({"memory": table_of(self._backend.memory())})]

    async def _read_state(self, table: Table, _: Frames) -> Frames:
        data = await self._backend.read_state(str(table.get("group")), expect(int, table.get("unit")))
        return [table_bytes({}), bytes(data)]

    async def _write_state(self, table: Table, data: Frames) -> Frames:
        group, unit = str(table.get("group")), expect(int, table.get("unit"))
        await self._backend.write_state(group, unit, b"".join(data))
        return [table_bytes({})]

    async def close(self) -> None:
        """Closes the backend."""
        await self._backend.close()
