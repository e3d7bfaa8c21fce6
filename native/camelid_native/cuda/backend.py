"""Backend cuda: runs plans as captured graphs of its own kernels on one GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from camelid.backends.base import (
    Backend,
    Capabilities,
    Forecast,
    MemoryReport,
    OpenSpec,
    PoolSize,
    Program,
    Result,
    Shares,
    Sources,
    Ticket,
    check_weight_types,
)
from camelid.backends.base import OpKernels as KernelsOfOp
from camelid.backends.common.boundary import checked_inputs, outputs_of
from camelid.backends.common.results import output_rows
from camelid.errors import BackendError, DeviceLostError, RequestError
from camelid.plan.memory import Arena, plan_arena
from camelid.plan.plan import Op, Plan, StateSpec, View
from camelid.plan.weights import Weight
from camelid_native.cuda.compiler import Compiler
from camelid_native.cuda.device import Device
from camelid_native.cuda.forecast import forecast_of
from camelid_native.cuda.given import Given, shared_inputs, write
from camelid_native.cuda.holdings import Holdings
from camelid_native.cuda.kernel import Context, Kernel
from camelid_native.cuda.kernels import KERNELS, plan_refusal
from camelid_native.cuda.lower import launches_of, part_counts, scratch_of, used_kernels
from camelid_native.cuda.opened import Compiled, Kept, Opened
from camelid_native.cuda.places import Places
from camelid_native.cuda.program import CudaProgram, Flight, Memory
from camelid_native.cuda.shared import CudaArray
from camelid_native.cuda.speed import copy_gbps, peak_gops
from camelid_native.cuda.states import States
from camelid_native.cuda.types import EXACT_TYPES, WEIGHT_TYPES
from camelid_native.cuda.vendors import open_gpu

FUSED = frozenset({
    "add_norm", "linear_glu", "join_linears", "join_ropes", "linear_add", "linear_add_norm", "qkv",
    "norm_rope_write", "qkv_heads", "experts",
})  # fmt: skip
OpenParts = Callable[[int], tuple[Device, Compiler]]  # by the number of the device


@dataclass(frozen=True, slots=True)
class Sizes:
    """Prompt rows of a step by default, and the row counts of graphs below the largest.

    A graph's grids have its capacity, and its kernels are those for so many rows.
    """

    chunk: int = 512
    row_buckets: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)


class CudaBackend(Backend):
    """Plans as graphs on one GPU. Keeps promise A, and B within NMSE 1e-5."""

    def __init__(self, open_parts: OpenParts, n_devices: int = 1, sizes: Sizes | None = None) -> None:
        """`n_devices` are those of a tensor-parallel model, of which this is one."""
        self._open_parts, self._n_devices, self._number = open_parts, n_devices, 0
        self._sizes = sizes or Sizes()
        self._parts: Opened | None = None  # None while the backend is closed
        self._kept, self._gone = Kept(), ""  # `_gone`: why no device is open after a loss
        self._programs: list[Compiled] = []
        self._states: States | None = None
        self._pools: dict[str, PoolSize] = {}
        self._counters = {"runs": 0, "launches": 0}

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="cuda",
            device=self._parts.name if self._parts else "not opened",
            ops=frozenset(KERNELS),
            weight_types=WEIGHT_TYPES,
            promise="A",
            max_in_flight=2,
            fused=FUSED,
            refuses=plan_refusal,
            activations="q8",
            exact_types=EXACT_TYPES,
            build=self._parts.build if self._parts else "",
            is_concurrent=True,
            chunk=self._sizes.chunk,
            row_buckets=self._sizes.row_buckets,
        )

    async def open(self, spec: OpenSpec) -> None:
        """Opens the device with the number `adapter`, after closing the backend if it is open.

        Raises BackendError without a driver, a device or a compiler.
        """
        await self.close()
        self._number = device_number(spec.adapter)
        self._parts = Opened(*self._open_parts(self._number))
        self._kept.device = self._parts.name

    def reach(self, other: CudaBackend) -> None:
        """Lets copies go to another backend's device directly, where the machine can do so."""
        self._opened().device.reach(other._opened().device)

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Uploads weights. Programs become invalid if one of them is replaced."""
        check_weight_types(weights, self.capabilities())
        loaded = self._opened().weights
        if loaded.has_any(weights):
            self.drop_programs()
        loaded.load(weights, sources)
        self._kept.weights |= {weight.name: weight for weight in weights}
        self._kept.sources |= sources

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        parts = self._opened()
        if self._states and self._states.names.isdisjoint(state.name for state in states):
            self._states.add(states, units)
            self._pools |= {state.name: units[state.name] for state in states}
            self._kept.states += tuple(states)
            return
        self.drop_programs()
        before, self._states = self._states, None
        if before:
            before.close()
        self._pools = dict(units)
        self._states = States(parts.device, parts.staging, states, units)
        self._kept.states = tuple(states)

    async def compile(self, plan: Plan) -> Program:
        """Compiles the plan's kernels and captures its graphs."""
        _check(plan)
        compiled = Compiled(plan, self._built(plan))
        self._programs.append(compiled)
        return Program(plan, compiled)

    def assemble(self, plan: Plan) -> CudaProgram:
        """The program of a device's share of a plan, without graphs."""
        _check(plan)
        compiled = Compiled(plan, self._assembled(plan))
        self._programs.append(compiled)
        return compiled.program

    def discard(self, program: CudaProgram) -> None:
        """Frees a program of `assemble`."""
        program.close()
        self._programs = [one for one in self._programs if one.program is not program]

    def _built(self, plan: Plan) -> CudaProgram:
        program = self._assembled(plan)
        with program.holdings.building():
            program.capture()
        return program

    def _assembled(self, plan: Plan) -> CudaProgram:
        holdings = Holdings(self._opened().device)
        with holdings.building():
            return self._build(plan, plan_arena(plan), holdings)

    def _build(self, plan: Plan, arena: Arena, holdings: Holdings) -> CudaProgram:
        parts, states, context = self._opened(), self._held(), self._context(plan, self._pools)
        scratch = scratch_of(context)
        memory = Memory(parts.device, holdings, plan, arena.n_bytes, scratch.n_bytes)
        places = Places(
            plan=plan,
            arena=arena,
            arena_at=memory.arena_at,
            step_at=memory.step_at,
            results=memory.results,
            weight=parts.weights.placed,
            state=lambda ref, tensor: states.placed(plan, ref, tensor),
            regions=states.table_of,
        )
        launches = launches_of(context, places, memory.scratch_at, parts.library)
        return CudaProgram(parts.device, plan, memory, launches, holdings, arena)

    def run(self, program: Program, step: bytes, inputs: Given | None = None) -> Ticket:
        """Enqueues a step. An input is bytes, or an array with `__dlpack__` on this device or the host."""
        parts, own, unread = self._opened().entered(), self._own(program).program, ()
        given = shared_inputs(program.plan, inputs, parts.device, parts.lender.device_id) if inputs else None
        if checked := checked_inputs(program, step, given, backend="cuda"):
            own.check(step)  # before the copies of arrays, which an error would free
            unread = write(checked, own.places, parts.device, parts.lender.device_id, parts.staging)
        flight = self._submitted(own, step, outputs_of(program, step))
        own.hold(flight, unread)
        return Ticket(program, flight.n_outputs, flight)

    def array(self, rows: int, cols: int) -> CudaArray:
        return self._opened().entered().lender.array(rows, cols)

    def run_into(self, program: Program, step: bytes, array: CudaArray, row: int) -> Ticket:
        own, n_outputs = self._own(program).program, outputs_of(program, step)
        checked_inputs(program, step, None, backend="cuda")
        at = array.rows_at(self._opened().entered().device, row, n_outputs, own.float_bytes // 4)
        flight = self._submitted(own, step, n_outputs, at)
        array.written()
        return Ticket(program, n_outputs, flight)

    def _submitted(self, own: CudaProgram, step: bytes, n_outputs: int, floats_to: int = 0) -> Flight:
        self.count(own)
        return own.submit(step, n_outputs, floats_to)

    def count(self, own: CudaProgram) -> None:
        """Counts a step of a program."""
        self._counters["runs"] += 1
        self._counters["launches"] += own.n_launches

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step and returns its results; other tasks run meanwhile."""
        own = await self._finished(ticket)
        return output_rows(own.read(ticket.handle), ticket)

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        own = await self._finished(ticket)
        return own.read_boundary(ticket.handle)

    async def _finished(self, ticket: Ticket) -> CudaProgram:
        """The program of a step that is over, asked between other tasks: a thread that waits costs 50 µs."""
        await asyncio.sleep(0)
        while not (own := self._runner_of(ticket)).is_done(ticket.handle):
            await asyncio.sleep(0)  # another task may close the backend
        return own

    def _runner_of(self, ticket: Ticket) -> CudaProgram:
        """The program that runs a step. Raises DeviceLostError if a recovery has replaced it."""
        own = self._own(ticket.program).program
        if ticket.handle.owner is not own:
            told = "cuda: the step was lost with its device"
            raise DeviceLostError(told, backend="cuda", reason=told)
        return own

    async def read_state(self, group: str, unit: int) -> bytes:
        return self._held().read(group, unit)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        self._held().write(group, unit, data)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs a step with bytes in the input views, and returns the bytes of the output views."""
        compiled = self._own(program)
        parts, given = self._opened(), {view.buffer.name: data for view, data in inputs.items()}
        write(given, compiled.program.places, parts.device, parts.lender.device_id, parts.staging)
        ticket = self.run(program, step)
        await self.read(ticket)
        rows = program.plan.rows
        places = [compiled.program.places[view.buffer.name] for view in outputs]
        sizes = [rows[view.rows] * view.row_bytes for view in outputs]
        return ticket, [parts.staging.download(*one) for one in zip(places, sizes, strict=True)]

    def memory(self) -> MemoryReport:
        return MemoryReport(
            weight_bytes=self._parts.weights.n_bytes if self._parts else 0,
            state_bytes=self._states.n_bytes if self._states else 0,
            arena_bytes=sum(compiled.program.memory.n_bytes for compiled in self._programs),
            counters=dict(self._counters),
        )

    def forecast(self, plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]) -> Forecast:
        """Bytes as they are allocated."""
        return forecast_of(plans, pools, lambda plan: self._context(plan, pools))

    def read_gbps(self) -> float:
        """Measured GB/s of copies on the device."""
        return copy_gbps(self._opened().device)

    def peak_gflops(self) -> float:
        """The peak of int8 matrix instructions by the device's clock."""
        return peak_gops(self._opened().device.facts())

    def free_memory(self) -> int | None:
        return self._parts.device.free_bytes() if self._parts else None

    def kernels(self, plan: Plan, units: Mapping[str, PoolSize]) -> Sequence[KernelsOfOp]:
        """The modules of each op of the plan, as the compiler gets them."""
        context = self._context(plan, units)
        used = iter(used_kernels(context))
        return [_described(list(islice(used, n)), context) for n in part_counts(plan)]

    async def close(self) -> None:
        """Waits for the steps in flight and frees all memory but arrays of the user."""
        self._kept, self._gone = Kept(), ""
        self._release(Opened.close)
        self._programs = []

    def _release(self, end: Callable[[Opened], None] = Opened.abandon) -> None:
        """Frees the device and everything on it, by `end`; programs keep their plans."""
        parts, self._parts = self._parts, None
        states, self._states = self._states, None
        if parts is None:
            return
        with suppress(BackendError):
            parts.device.wait(parts.device.mark())
        for compiled in self._programs:
            compiled.program.close()
        if states:
            states.close()
        with suppress(BackendError):  # of a lost device
            end(parts)

    async def recover(self) -> bool:
        """Opens the device again, with its weights, empty state and all programs."""
        self._release()
        self._gone = "the device was lost, and it could not be opened again"
        self._parts = parts = Opened(*self._open_parts(self._number))
        try:
            if parts.name != self._kept.device:
                told = f"cuda: {self._kept.device} is gone, and only {parts.name} is there"
                raise BackendError(told, backend="cuda")
            parts.weights.load(list(self._kept.weights.values()), self._kept.sources)
            self._states = States(parts.device, parts.staging, self._kept.states, self._pools)
            for compiled in self._programs:
                compiled.program = self._built(compiled.plan)
        except BaseException:
            self._release()
            raise
        self._gone = ""
        return True

    def drop_programs(self) -> None:
        """Frees all programs, after the steps in flight."""
        if self._programs and self._parts:
            self._parts.device.wait(self._parts.device.mark())
        programs, self._programs = self._programs, []
        for compiled in programs:
            compiled.program.close()

    def _context(self, plan: Plan, pools: Mapping[str, PoolSize]) -> Context:
        parts = self._parts
        has = (parts.has_matrix, parts.has_half_matrix) if parts else (False, False)
        return Context(plan, pools, *has, self._n_devices)

    def _opened(self) -> Opened:
        if self._parts is None and self._gone:
            raise DeviceLostError(f"cuda: {self._gone}", backend="cuda", reason=self._gone)
        if self._parts is None:
            raise BackendError("backend 'cuda' is not open; call open() first", backend="cuda")
        return self._parts

    def _held(self) -> States:
        self._opened()
        if self._states is None:
            raise BackendError("backend 'cuda' has no state; call allocate() first", backend="cuda")
        return self._states

    def _own(self, program: Program) -> Compiled:
        """The compiled program. Raises BackendError as `check_fresh`."""
        compiled: Compiled = program.handle
        self.check_fresh(compiled.program)
        return compiled

    def check_fresh(self, own: CudaProgram) -> None:
        """Raises BackendError for a program whose state was allocated anew."""
        self._opened()
        if not any(compiled.program is own for compiled in self._programs):
            raise BackendError("cuda: the program is stale; compile it again", backend="cuda")


def _described(parts: Sequence[tuple[Op, Sequence[Kernel]]], context: Context) -> KernelsOfOp:
    """The launches of one op of a plan, which runs as `parts`."""
    found = [(kernel, kernel.module(op, context)) for op, kernels in parts for kernel in kernels]
    names = tuple(kernel.function for kernel, _ in found)
    return KernelsOfOp(names, tuple(module.text for _, module in found), len(found))


def _check(plan: Plan) -> None:
    """Raises BackendError for a plan that cannot run."""
    reason = plan_refusal(plan)
    if reason:
        raise BackendError(f"{reason}. Choose another backend", backend="cuda")


def device_number(adapter: str) -> int:
    """The number of a GPU, 0 for "". Raises RequestError for other text."""
    if adapter and not adapter.isdecimal():
        want = "the number of a GPU as the driver counts them, such as 0"
        raise RequestError(f"adapter is {adapter!r}, expected {want}", field="adapter")
    return int(adapter or 0)


def open_backend(n_devices: int = 1) -> CudaBackend:
    """The entry point of this module for `registry.BACKENDS`."""
    return CudaBackend(partial(open_gpu, has_peers=n_devices > 1), n_devices)


def open_parallel(n: int, shares: Shares) -> Backend:
    """The entry point of this module for `registry.open_parallel`."""
    from camelid_native.cuda.parallel import CudaParallel  # it imports this module

    return CudaParallel([open_backend(n) for _ in range(n)], shares)
