"""cpu: plans in C, one call a step, on as many threads as this process may use.

Holds promises A and B: no kernel's bits depend on other rows, on the chunk of a prompt or on the threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from camelid.backends.base import (
    Capabilities,
    MemoryReport,
    OpenSpec,
    Pool,
    Program,
    Result,
    Sources,
    Ticket,
    check_unit,
    check_weight_types,
)
from camelid.backends.results import output_rows, result_bytes
from camelid.backends.single import run_op
from camelid.formats.quants import row_bytes
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan, StateRef, StateSpec, View
from camelid.plan.weights import Weight
from camelid_native.cpu_api import Library
from camelid_native.cpu_memory import Memory
from camelid_native.cpu_peak import peak_gflops
from camelid_native.cpu_records import (
    OpRecord,
    Placed,
    PlacedState,
    ProgramRecord,
    StateRecord,
    op_records,
    program_record,
)
from camelid_native.cpu_threads import processors
from camelid_native.cpu_weights import WeightForms


@dataclass(slots=True)
class CpuProgram:
    """What a compiled plan keeps alive."""

    record: ProgramRecord
    ops: ctypes.Array[OpRecord]
    arena: Memory
    scratch: Memory
    result: Memory
    offsets: Mapping[str, int]


@dataclass(slots=True)
class Flight:
    """A step that was submitted: its words, where its results will be, and what they were."""

    result: Memory
    n_bytes: int
    words: ctypes.Array[Any]
    data: bytes = b""


@dataclass(slots=True)
class StateMemory:
    """The rows and the page table of one group."""

    spec: StateSpec
    pool: Pool
    rows: Memory
    table: Memory

    def placed(self, number: int) -> PlacedState:
        return PlacedState(
            self.spec, number, self.rows.at, self.pool.units, self.table.at, self.pool.table_cols
        )

    def regions(self) -> list[tuple[int, int]]:
        """(offset of unit 0, bytes of a unit) of each tensor of each layer."""
        found: list[tuple[int, int]] = []
        at = 0
        for _ in self.spec.layers or (0,):
            for _, cols in self.spec.tensors:
                each = self.spec.unit_rows * row_bytes(self.spec.kv_type, cols)
                found.append((at, each))
                at += each * self.pool.units
        return found


class CpuBackend:
    """Plans as arrays of records, run by C."""

    def __init__(self) -> None:
        self._library = Library()
        self._cpus: list[int] = processors()
        self._pool = 0
        self._weights = WeightForms(self._library, len(self._cpus))
        self._states: dict[str, StateMemory] = {}
        self._programs: list[CpuProgram] = []
        self._flight: Flight | None = None  # the step under way
        self._runs = 0

    def capabilities(self) -> Capabilities:
        variant, n = self._library.variant, len(self._cpus)
        return Capabilities(
            name="cpu",
            device=f"{variant}, {n} thread{'s' if n > 1 else ''}",
            ops=frozenset(self._library.kinds),
            weight_types=self._library.weight_types,
            promise="A+B",
            max_in_flight=2,
            fused=frozenset({"add_norm", "linear_glu"}),
            activations="q8",
            build=self._library.build,
        )

    async def open(self, spec: OpenSpec) -> None:
        """Starts the threads. `adapter` names a variant; BackendError if this machine does not run it."""
        self._library = Library(spec.adapter)
        self._cpus = processors(spec.threads)
        self._weights = WeightForms(self._library, len(self._cpus))
        self._pool = self._library.start(self._cpus)

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        check_weight_types(weights, self.capabilities())
        self._weights.add(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, Pool]) -> None:
        self._states = {spec.name: _state_memory(spec, units[spec.name]) for spec in states}

    async def compile(self, plan: Plan) -> Program:
        """Places every operand; weights are packed at their first use."""
        arena = plan_arena(plan)
        memory = Memory(arena.n_bytes)
        placed = Placed(
            view=lambda view: memory.at + arena.offsets[view.buffer.name],
            weight=self._weights.record,
            state=lambda ref, first: self._state(plan, ref, first),
            kinds=self._library.kinds,
            words=self._library.words,
        )
        ops = op_records(plan, placed)
        record = program_record(plan, ops)
        n_bytes = self._library.scratch_bytes(ctypes.addressof(record), len(self._cpus))
        scratch = Memory(n_bytes)
        record.scratch, record.scratch_bytes = scratch.at, n_bytes
        result = Memory(result_bytes(plan, plan.key.capacity.outputs))
        program = CpuProgram(record, ops, memory, scratch, result, arena.offsets)
        self._programs.append(program)
        return Program(plan, program)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, Ticket] | None = None) -> Ticket:
        """Begins a step; where one is under way, when that has ended."""
        self._settle()
        own: CpuProgram = program.handle
        n_outputs = struct.unpack_from("<I", step, 4 * program.plan.layout.header_word("outputs"))[0]
        words = ctypes.create_string_buffer(step, len(step))
        self._library.submit(self._pool, ctypes.addressof(own.record), words, own.result.at)
        self._flight = Flight(own.result, result_bytes(program.plan, n_outputs), words)
        self._runs += 1
        return Ticket(program, n_outputs, self._flight)

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step. Other tasks have had their turn before; other threads run meanwhile."""
        await asyncio.sleep(0)
        flight: Flight = ticket.handle
        if flight is self._flight:
            self._settle()
        return output_rows(flight.data, ticket)

    def _settle(self) -> None:
        """Waits for the step under way and keeps its results, whose place the next one takes."""
        if self._flight:
            self._library.wait(self._pool)
            self._flight.data = self._flight.result.read(0, self._flight.n_bytes)
            self._flight = None

    async def read_state(self, group: str, unit: int) -> bytes:
        self._settle()
        memory = self._states[group]
        return b"".join(memory.rows.read(at + unit * each, each) for at, each in memory.regions())

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        memory, start = self._states[group], 0
        check_unit(group, data, memory.spec.unit_bytes, backend="cpu")
        self._settle()
        for at, each in memory.regions():
            memory.rows.write(at + unit * each, data[start : start + each])
            start += each

    async def run_op(
        self, name: str, arrays: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return await run_op(self, name, arrays, attrs)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs with given bytes in some views and returns the bytes of others, for single ops."""
        own: CpuProgram = program.handle
        for view, data in inputs.items():
            own.arena.write(own.offsets[view.buffer.name], data)
        ticket = self.run(program, step)
        self._settle()
        sizes = [4 * program.plan.rows[view.rows] * view.cols for view in outputs]
        places = [(own.offsets[view.buffer.name], n) for view, n in zip(outputs, sizes, strict=True)]
        return ticket, [own.arena.read(*place) for place in places]

    def peak_gflops(self) -> float:
        """Operations on int8 that all threads make a second, at most; the best of some runs."""
        return peak_gflops(self._library, len(self._cpus))

    def memory(self) -> MemoryReport:
        states = self._states.values()
        own = [m for p in self._programs for m in (p.arena, p.scratch, p.result)]
        return MemoryReport(
            weight_bytes=self._weights.n_bytes,
            state_bytes=sum(state.rows.n_bytes + state.table.n_bytes for state in states),
            arena_bytes=sum(memory.n_bytes for memory in own),
            counters={"runs": self._runs},
        )

    async def close(self) -> None:
        """Ends the threads and lets go of all memory."""
        self._settle()
        if self._pool:
            self._library.stop(self._pool)
        self._pool, self._states, self._programs = 0, {}, []
        self._weights = WeightForms(self._library, len(self._cpus))

    def _state(self, plan: Plan, ref: StateRef, first: str) -> StateRecord:
        return self._states[ref.group].placed(plan.group(ref.group)).record(ref, first)


def _state_memory(spec: StateSpec, pool: Pool) -> StateMemory:
    rows = Memory(pool.units * spec.unit_bytes)
    return StateMemory(spec, pool, rows, Memory(4 * pool.table_rows * pool.table_cols))


def open_backend() -> CpuBackend:
    """The row's entry in `select.BACKENDS`."""
    return CpuBackend()
