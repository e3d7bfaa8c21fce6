"""cpu: plans in C, one call a step, on as many threads as this process may use.

Holds promises A and B: no kernel's bits depend on other rows, on the chunk of a prompt or on the threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import struct
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import cycle
from typing import Any

from camelid.backends.base import (
    Backend,
    Capabilities,
    Forecast,
    MemoryReport,
    OpenSpec,
    PoolSize,
    Program,
    Result,
    Sources,
    Ticket,
    check_weight_types,
)
from camelid.backends.common.boundary import checked_inputs, made_bytes
from camelid.backends.common.op_runner import run_op
from camelid.backends.common.results import output_rows, result_bytes
from camelid.errors import BackendError
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan, StateRef, StateSpec, View
from camelid.plan.weights import Weight
from camelid_native.cpu.api import Library
from camelid_native.cpu.forecast import forecast
from camelid_native.cpu.memory import Memory
from camelid_native.cpu.peak import peak_gflops
from camelid_native.cpu.records import MOST_RUNS, Placed, StateRecord, op_records, program_record, refusal
from camelid_native.cpu.runner import CpuProgram, CpuStep, Runner, result_places
from camelid_native.cpu.state_layout import stale
from camelid_native.cpu.states import StateMemory, group_of, state_memory
from camelid_native.cpu.threads import processors
from camelid_native.cpu.weights import WeightForms


class CpuBackend(Backend):
    """Plans as arrays of records, run by C."""

    def __init__(self) -> None:
        self._runner: Runner | None = None  # of an open backend
        self._states: dict[str, StateMemory] = {}
        self._programs: list[CpuProgram] = []
        self._runs = 0

    @cached_property
    def _library(self) -> Library:  # `open` may choose another
        return Library()

    @cached_property
    def _cpus(self) -> list[int]:  # as before
        return processors()

    @cached_property
    def _weights(self) -> WeightForms:
        return WeightForms(self._library, len(self._cpus))

    def capabilities(self) -> Capabilities:
        variant, n = self._library.variant, len(self._cpus)
        return Capabilities(
            name="cpu",
            device=f"{variant}, {n} thread{'s' if n > 1 else ''}",
            ops=frozenset(self._library.kinds),
            weight_types=self._library.weight_types,
            promise="A+B",
            max_in_flight=MOST_RUNS,
            fused=frozenset({"add_norm", "linear_glu"}),
            activations="q8",
            build=self._library.build,
            refuses=partial(refusal, words=self._library.words),
        )

    async def open(self, spec: OpenSpec) -> None:
        """Starts the threads. `adapter` names a variant; BackendError if this machine does not run it.

        What was open before is closed.
        """
        await self.close()
        self._library = Library(spec.adapter)
        self._cpus = processors(spec.threads)
        self._weights = WeightForms(self._library, len(self._cpus))
        self._runner = runner = Runner(self._library, self._cpus)
        weakref.finalize(self, runner.stop).atexit = False
        # At exit threads of Python may still wait for the pool, so that it must stay; but a step has to end
        # before its memory goes.
        weakref.finalize(self, runner.settle)

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        self._opened()
        check_weight_types(weights, self.capabilities())
        self._weights.add(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        """Gives all groups new memory, zeroed. What was compiled before can run no more."""
        self._opened().settle()
        self._states, self._programs = state_memory(states, units), []

    async def compile(self, plan: Plan) -> Program:
        """Places every operand; weights are packed at their first use."""
        self._opened()
        arena = plan_arena(plan)
        memory = Memory(arena.n_bytes)
        with self._weights.packing() as weight:
            placed = Placed(
                view=lambda view: memory.at + arena.offsets[view.buffer.name],
                weight=weight,
                state=lambda ref, first: self._state(plan, ref, first),
                kinds=self._library.kinds,
                words=self._library.words,
            )
            ops = op_records(plan, placed)
        record = program_record(plan, ops)
        n_bytes = self._library.scratch_bytes(ctypes.addressof(record), len(self._cpus))
        scratch = Memory(n_bytes)
        record.scratch, record.scratch_bytes = scratch.at, n_bytes
        output_bytes = result_bytes(plan, 1)
        n_bytes = plan.key.capacity.outputs * output_bytes
        results = tuple(Memory(n_bytes) for _ in range(result_places(n_bytes)))
        kept = (self._weights, self._states, memory, scratch, results, cycle(results))
        program = CpuProgram(record, ops, *kept, output_bytes, arena.offsets)
        self._programs.append(program)
        return Program(plan, program)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Begins a step, or has it wait behind those under way, or, where there are too many, waits for the
        first. With inputs it waits for all."""
        runner, own = self._opened(), self._own(program)
        _check_step(program, step)
        taken = checked_inputs(program, step, inputs, backend="cpu")
        if taken:
            runner.settle()
        for name, data in taken.items():
            own.arena.write(own.offsets[name], data)
        n_outputs = struct.unpack_from("<I", step, 4 * program.plan.layout.header_word("outputs"))[0]
        flight = CpuStep(own, step, n_outputs * own.output_bytes, next(own.places))
        runner.submit(flight)
        self._runs += 1
        return Ticket(program, n_outputs, flight)

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step. Other tasks have had their turn before; other threads run meanwhile."""
        await asyncio.sleep(0)
        flight: CpuStep = ticket.handle
        if self._runner:
            self._runner.finish(flight)
        return output_rows(flight.data, ticket)

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        flight: CpuStep = ticket.handle
        if self._runner:
            self._runner.finish(flight)
        own = flight.program
        sizes = made_bytes(ticket.program, flight.step)
        return {name: own.arena.read(own.offsets[name], n) for name, n in sizes.items()}

    async def read_state(self, group: str, unit: int) -> bytes:
        """BackendError for a group or a unit that there is not."""
        memory = group_of(self._states, group)
        self._opened().settle()
        return memory.read(unit)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        """BackendError for a group or a unit that there is not, or bytes that are not a unit's."""
        memory = group_of(self._states, group)
        self._opened().settle()
        memory.write(unit, data)

    async def run_op(
        self, name: str, arrays: Mapping[str, Any], attrs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return await run_op(self, name, arrays, attrs)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs with given bytes in some views and returns the bytes of others, for single ops."""
        runner, own = self._opened(), self._own(program)
        runner.settle()
        for view, data in inputs.items():
            own.arena.write(own.offsets[view.buffer.name], data)
        ticket = self.run(program, step)
        runner.settle()
        sizes = [program.plan.rows[view.rows] * view.row_bytes for view in outputs]
        places = [(own.offsets[view.buffer.name], n) for view, n in zip(outputs, sizes, strict=True)]
        return ticket, [own.arena.read(*place) for place in places]

    def peak_gflops(self) -> float:
        """Operations on int8 that all threads make a second, at most; the best of some runs."""
        return peak_gflops(self._library, len(self._cpus))

    def memory(self) -> MemoryReport:
        return MemoryReport(
            weight_bytes=self._weights.n_bytes,
            state_bytes=sum(state.n_bytes for state in self._states.values()),
            arena_bytes=sum(program.n_bytes for program in self._programs),
            counters={"runs": self._runs},
        )

    def forecast(self, plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]) -> Forecast:
        """What these plans, which it can run, will take. It need not be open."""
        return forecast(self._library, len(self._cpus), plans, pools)

    async def close(self) -> None:
        """Ends the threads and lets go of all memory."""
        if self._runner:
            self._runner.stop()
            self._weights = WeightForms(self._library, len(self._cpus))
        self._runner, self._states, self._programs = None, {}, []

    def _opened(self) -> Runner:
        if self._runner is None:
            raise BackendError("backend 'cpu' is not open; call open() first", backend="cpu")
        return self._runner

    def _own(self, program: Program) -> CpuProgram:
        """What was compiled for the states of now. Their memory is in its records."""
        own = program.handle
        if not isinstance(own, CpuProgram) or own.states is not self._states:
            raise stale(program)
        return own

    def _state(self, plan: Plan, ref: StateRef, first: str) -> StateRecord:
        return group_of(self._states, ref.group).placed(plan.group(ref.group)).record(ref, first)


def _check_step(program: Program, step: bytes) -> None:
    """C reads as many words as the layout has."""
    want = 4 * program.plan.layout.n_words
    if len(step) != want:
        raise BackendError(
            f"a step of program {program.key.entry!r} has {len(step):,} bytes, expected {want:,}; "
            "was it encoded with another plan's layout?",
            backend="cpu",
        )


def open_backend() -> CpuBackend:
    """The row's entry in `select.BACKENDS`."""
    return CpuBackend()
