"""Tensor parallelism on several GPUs: all devices' work of a step in one graph, with sums between devices.

One capture begins on device 0's stream, and the others join it by events; so a step is one call of the host.
A graph ends on all devices before the next begins, and other work of a stream keeps its order with graphs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from camelid.backends.base import Capabilities, OpenSpec, Program, Result, Shares, Ticket
from camelid.backends.common.boundary import checked_inputs, outputs_of
from camelid.backends.common.results import output_rows
from camelid.backends.parallel.backend import ParallelBackend, agreed
from camelid.errors import BackendError
from camelid.plan.plan import Plan
from camelid_native.cuda.backend import CudaBackend
from camelid_native.cuda.device import Device
from camelid_native.cuda.nccl import Nccl, NcclSums
from camelid_native.cuda.program import SLOTS, CudaProgram, Flight, Launch
from camelid_native.cuda.sums import Collective, PeerSums


class SharedProgram:
    """The programs of all devices as one."""

    def __init__(self, programs: Sequence[CudaProgram], collective: Collective) -> None:
        """Captures the graphs, which the holdings of device 0's program own."""
        self.programs, self._collective = programs, collective
        self._devices = [program.device for program in programs]
        capture = programs[0].holdings.capture
        self._graphs = [capture(lambda slot=slot: self._enqueue(slot)) for slot in range(SLOTS)]
        collective.settle()

    def submit(self, step: bytes, n_outputs: int) -> list[Flight]:
        """Enqueues a step. Raises BackendError as `CudaProgram.submit`."""
        slots = [program.fill_slot(step) for program in self.programs]
        self._gather()
        self._devices[0].replay(self._graphs[slots[0]])
        self._scatter()
        pairs = zip(self.programs, slots, strict=True)
        return [program.flight(slot, step, n_outputs) for program, slot in pairs]

    def _enqueue(self, slot: int) -> None:
        self._scatter()
        for program in self.programs:
            program.copy_step(slot)
        for parts in zip(*(_segments(program.launches) for program in self.programs), strict=True):
            self._segment(parts)
        for program in self.programs:
            program.copy_results(slot)
        self._gather()

    def _segment(self, parts: Sequence[Sequence[Launch]]) -> None:
        """Enqueues a segment of each device, and the sum that ends it."""
        sums = [launches[-1] for launches in parts if launches and launches[-1].sum]
        for program, launches in zip(self.programs, parts, strict=True):
            for launch in launches:
                if not launch.sum:
                    program.launch(launch)
        if sums:
            self._collective.all_reduce(sums)

    def _scatter(self) -> None:
        """Enqueues that the other devices wait for device 0."""
        for device in self._devices[1:]:
            _follow(device, self._devices[0])

    def _gather(self) -> None:
        """Enqueues that device 0 waits for the others."""
        for device in self._devices[1:]:
            _follow(self._devices[0], device)


def _segments(launches: Sequence[Launch]) -> list[list[Launch]]:
    """The launches cut behind each sum."""
    found: list[list[Launch]] = [[]]
    for launch in launches:
        found[-1].append(launch)
        if launch.sum:
            found.append([])
    return found


def _follow(device: Device, other: Device) -> None:
    mark = other.mark()
    device.after(mark)
    other.forget(mark)


class CudaParallel(ParallelBackend):
    """A tensor-parallel model on several GPUs."""

    def __init__(self, backends: Sequence[CudaBackend], shares: Shares) -> None:
        super().__init__(backends, shares)
        self._own = tuple(backends)
        self._nccl: Nccl | None = None

    def capabilities(self) -> Capabilities:
        can = replace(super().capabilities(), max_in_flight=self._own[0].capabilities().max_in_flight)
        return replace(can, promise="none", device=f"{can.device}; sums by NCCL") if self._nccl else can

    async def open(self, spec: OpenSpec) -> None:
        """Opens the GPUs whose numbers `adapter` lists, by default the first ones.

        Raises BackendError as `CudaBackend.open` and `Nccl`.
        """
        await self.close()
        numbers = spec.adapter.split(",") if spec.adapter else [str(i) for i in range(len(self._own))]
        await self._open_each([replace(spec, adapter=number) for number in numbers])
        for one in self._own:
            for other in self._own:
                one.reach(other)
        if spec.collective == "nccl":
            await self._connect([int(number) for number in numbers])

    async def _connect(self, numbers: Sequence[int]) -> None:
        try:
            self._nccl = Nccl(numbers)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Frees the programs, NCCL's communicators, then the devices."""
        nccl, self._nccl = self._nccl, None
        if nccl:
            for backend in self._own:
                with suppress(BackendError):
                    backend.drop_programs()
            nccl.close()
        await super().close()

    async def compile(self, plan: Plan) -> Program:
        """Compiles each device's plan, loads the missing weights, and captures the graphs of all."""
        programs: list[CudaProgram] = []
        try:
            for i, (_, own) in enumerate(self._each(plan)):
                with self._named(i):
                    await self._load_missing(i, own)
                    programs.append(self._own[i].assemble(own))
            sums = NcclSums(self._nccl, programs) if self._nccl else PeerSums(programs)
            return Program(plan, SharedProgram(programs, sums))
        except BaseException:
            for backend, program in zip(self._own, programs, strict=False):
                backend.discard(program)
            raise

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Enqueues a step on all devices."""
        checked_inputs(program, step, inputs, backend="cuda")
        shared: SharedProgram = program.handle
        for backend, own in zip(self._own, shared.programs, strict=True):
            backend.check_fresh(own)
            backend.count(own)
        n_outputs = outputs_of(program, step)
        return Ticket(program, n_outputs, shared.submit(step, n_outputs))

    async def read(self, ticket: Ticket) -> Result:
        """Waits for the step; other tasks run meanwhile.

        Raises BackendError if the devices drew different ids.
        """
        shared: SharedProgram = ticket.program.handle
        flights: Sequence[Flight] = ticket.handle
        pairs = list(zip(shared.programs, flights, strict=True))
        await asyncio.sleep(0)
        while not self._is_done(shared, flights):
            await asyncio.sleep(0)
        return agreed([output_rows(own.read(flight), ticket) for own, flight in pairs], "cuda")

    def _is_done(self, shared: SharedProgram, flights: Sequence[Flight]) -> bool:
        """True if `read` does not wait. Raises BackendError if another task has closed the backend."""
        for backend, own in zip(self._own, shared.programs, strict=True):
            backend.check_fresh(own)
        return all(own.is_done(flight) for own, flight in zip(shared.programs, flights, strict=True))
