"""Backend cpu: runs plans in C, one call per step, on all processors the process may use.

It keeps promises A and B: a result's bits depend neither on other rows, nor on the chunks of a prompt, nor on
the number of threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import cycle

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
from camelid.backends.common.boundary import checked_inputs, made_bytes, outputs_of
from camelid.backends.common.results import output_rows, result_bytes
from camelid.errors import BackendError
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan, StateRef, StateSpec, View
from camelid.plan.weights import Weight
from camelid_native.cpu.api import Library
from camelid_native.cpu.forecast import forecast
from camelid_native.cpu.memory import Memory
from camelid_native.cpu.peak import peak_gflops
from camelid_native.cpu.records import (
    AS_BF16,
    MOST_RUNS,
    Placed,
    StateRecord,
    op_records,
    program_record,
    refusal,
)
from camelid_native.cpu.runner import CpuProgram, CpuStep, Runner, result_places
from camelid_native.cpu.state_layout import stale
from camelid_native.cpu.states import StateMemory, group_of, state_memory
from camelid_native.cpu.threads import processors
from camelid_native.cpu.weights import WeightForms


class CpuBackend(Backend):
    """Backend that compiles plans to arrays of records and runs them in C."""

    def __init__(self) -> None:
        self._runner: Runner | None = None  # None while the backend is closed
        self._states: dict[str, StateMemory] = {}
        self._programs: list[CpuProgram] = []
        self._runs = 0

    @cached_property
    def _library(self) -> Library:  # default; open() may select another variant
        return Library()

    @cached_property
    def _cpus(self) -> list[int]:  # default; open() may select other processors
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
            weight_types=self._library.weight_types | AS_BF16,
            promise="A+B",
            max_in_flight=MOST_RUNS,
            fused=frozenset({"add_norm", "linear_glu"}),
            activations="q8",
            build=self._library.build,
            refuses=partial(refusal, words=self._library.words),
            slot_type="f16",
        )

    async def open(self, spec: OpenSpec) -> None:
        """Starts the threads, after closing the backend if it is open.

        `spec.adapter` names a variant of the kernels. Raises BackendError if this machine does not support
        the variant.
        """
        await self.close()
        self._library = Library(spec.adapter)
        self._cpus = processors(spec.threads)
        self._weights = WeightForms(self._library, len(self._cpus))
        self._runner = runner = Runner(self._library, self._cpus)
        weakref.finalize(self, runner.stop).atexit = False
        # At interpreter exit the pool stays alive, as Python threads may still wait for it; but running steps
        # must end before their memory is freed.
        weakref.finalize(self, runner.settle)

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        self._opened()
        check_weight_types(weights, self.capabilities())
        self._weights.add(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        self._opened().settle()
        more = state_memory(states, units)
        if self._states.keys().isdisjoint(more):
            self._states |= more
        else:
            self._states, self._programs = more, []

    async def compile(self, plan: Plan) -> Program:
        """Assigns an address to every operand; packs weights that no earlier program used."""
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
        """Queues a step and returns its ticket.

        The call waits for the oldest step if the queue is full, and for all steps if there are `inputs`,
        which overwrite the program's arena.
        """
        runner, own = self._opened(), self._own(program)
        _check_step(program, step)
        self._weights.check()
        checked = checked_inputs(program, step, inputs, backend="cpu")
        if checked:
            runner.settle()
        for name, data in checked.items():
            own.arena.write(own.offsets[name], data)
        n_outputs = outputs_of(program, step)
        flight = CpuStep(own, step, n_outputs * own.output_bytes, next(own.places))
        runner.submit(flight)
        self._runs += 1
        return Ticket(program, n_outputs, flight)

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step and returns its results.

        Other asyncio tasks run once before the wait; other Python threads run during it.
        """
        await asyncio.sleep(0)
        flight: CpuStep = ticket.handle
        if self._runner:
            self._runner.finish(flight)
        self._weights.check()
        return output_rows(flight.data, ticket)

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        flight: CpuStep = ticket.handle
        if self._runner:
            self._runner.finish(flight)
        own = flight.program
        sizes = made_bytes(ticket.program, flight.step)
        return {name: own.arena.read(own.offsets[name], n) for name, n in sizes.items()}

    async def read_state(self, group: str, unit: int) -> bytes:
        """Bytes of a unit. Raises BackendError for an unknown group or unit."""
        memory = group_of(self._states, group)
        self._opened().settle()
        return memory.read(unit)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        """Writes a unit. Raises BackendError for an unknown group or unit, or data of another size."""
        memory = group_of(self._states, group)
        self._opened().settle()
        memory.write(unit, data)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Writes `inputs` into views, runs the step and returns the bytes of `outputs`; for single ops."""
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
        """Peak int8 operations of all threads, in 10^9 per second; the best of several runs."""
        return peak_gflops(self._library, len(self._cpus))

    def memory(self) -> MemoryReport:
        return MemoryReport(
            weight_bytes=self._weights.n_bytes,
            state_bytes=sum(state.n_bytes for state in self._states.values()),
            arena_bytes=sum(program.n_bytes for program in self._programs),
            counters={"runs": self._runs},
        )

    def forecast(self, plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]) -> Forecast:
        """Memory forecast for plans that the backend can run. The backend need not be open."""
        return forecast(self._library, len(self._cpus), plans, pools)

    async def close(self) -> None:
        """Ends the threads and frees all memory."""
        if self._runner:
            self._runner.stop()
            self._weights = WeightForms(self._library, len(self._cpus))
        self._runner, self._states, self._programs = None, {}, []

    def _opened(self) -> Runner:
        if self._runner is None:
            raise BackendError("backend 'cpu' is not open; call open() first", backend="cpu")
        return self._runner

    def _own(self, program: Program) -> CpuProgram:
        """The compiled program. Raises BackendError if its records point into freed state memory."""
        own = program.handle
        if not isinstance(own, CpuProgram) or own.states is not self._states:
            raise stale(program)
        return own

    def _state(self, plan: Plan, ref: StateRef, first: str) -> StateRecord:
        return group_of(self._states, ref.group).placed(plan.group(ref.group)).record(ref, first)


def _check_step(program: Program, step: bytes) -> None:
    """Raises BackendError for a step of the wrong size: C reads as many words as the layout has."""
    want = 4 * program.plan.layout.n_words
    if len(step) != want:
        raise BackendError(
            f"a step of program {program.key.entry!r} has {len(step):,} bytes, expected {want:,}; "
            "was it encoded with another plan's layout?",
            backend="cpu",
        )


def open_backend() -> CpuBackend:
    """Constructor that the table of backends in `camelid.backends.registry` names."""
    return CpuBackend()
