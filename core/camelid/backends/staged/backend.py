"""The staged backend: several devices as one backend, each running its own layers as a stage of every plan.

A step runs its stages in order. `run` starts the first stage; `read` runs the others, copying boundary
buffers from device to device. The last device samples ids, and the first device embeds them, so the first
device's ring has all ids; the ring is copied to the last device for penalties.

One step is in flight at a time, unless every device is concurrent: then as many as there are stages, each
driven by a task of its own, and each device runs them in the order of their submission.
"""

from __future__ import annotations

from asyncio import Lock, Task, create_task, gather, shield
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

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
    check_unit,
    reason_against,
)
from camelid.backends.common.boundary import checked_inputs, outputs_of
from camelid.backends.common.devices import DeviceStates, close_each, load_missing
from camelid.errors import BackendError, CamelidError
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.stages import layer_ranges, penalised_slots, split, states_of
from camelid.plan.weights import Weight

T = TypeVar("T")
Slot = tuple[str, int]  # a ring's group and unit


@dataclass(slots=True)
class StagedStep:
    """A submitted step: its current stage with its ticket, and the boundary buffers made so far.

    `previous` is the step submitted before it, which enters every stage first.
    """

    programs: Sequence[Program]
    step: bytes
    ticket: Ticket
    stage: int = 0
    made: dict[str, bytes] = field(default_factory=dict[str, bytes])
    result: Result | None = None
    error: Exception | None = None
    turn: Lock = field(default_factory=Lock)  # held by the reader that advances the step
    previous: StagedStep | None = None
    task: Task[None] | None = None  # advances the step while nobody reads it
    rings: dict[Slot, Task[bytes]] = field(default_factory=dict["Slot", "Task[bytes]"])  # read ahead
    writes: list[Task[None]] = field(default_factory=list["Task[None]"])  # of rings to the last device

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.error is not None


def kept(work: Coroutine[Any, Any, T]) -> Task[T]:
    """A task whose error is not reported where nobody awaits it: the step has failed before."""
    task = create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class StagedBackend(Backend):
    """A model of `n_layers` layers, cut before each layer of `cuts`, with one backend per part and its state.

    Ops before the first layer run on the first backend, ops after the last layer (the head) on the last.
    """

    def __init__(self, backends: Sequence[Backend], cuts: Sequence[int], n_layers: int) -> None:
        self.backends, self.layers = tuple(backends), layer_ranges(cuts, n_layers)
        self._cuts, self._n_layers = tuple(cuts), n_layers
        self._sources: Sources = {}
        self._loaded: list[set[str]] = [set() for _ in backends]  # names of weights
        self._states = DeviceStates(self.backends)
        self._pending: list[StagedStep] = []  # the steps under way, the oldest first
        self._boundary_bytes = self._most_at_once = 0
        self._most = 1  # steps under way

    def capabilities(self) -> Capabilities:
        """The devices' capabilities as one: the promises of all, and every op, type and dtype of any device.

        `refuses` checks each device for its own stage. Raises BackendError for devices with different pages.
        """
        each = [backend.capabilities() for backend in self.backends]
        promises = set[str].intersection(*(set(can.promise.split("+")) for can in each)) - {"none"}
        limits = {name: value for can in each for name, value in can.limits.items()}
        n_at_once = len(each) if all(can.is_concurrent for can in each) else 1
        return Capabilities(
            name="+".join(can.name for can in each),
            device="; ".join(f"{self.part(i)} on {can.device}" for i, can in enumerate(each)),
            ops=frozenset[str]().union(*(can.ops for can in each)),
            weight_types=frozenset[str]().union(*(can.weight_types for can in each)),
            dtypes=frozenset[str]().union(*(can.dtypes for can in each)),
            promise="+".join(sorted(promises)) or "none",
            max_in_flight=n_at_once,
            fused=frozenset(name for name in each[0].fused if all(name in can.fused for can in each)),
            is_software=any(can.is_software for can in each),
            limits=limits,
            refuses=self._refusal,
            page_rows=_page_rows(each),
            chunk=min(can.chunk for can in each),
            row_buckets=tuple(sorted({rows for can in each for rows in can.row_buckets})),
            activations="+".join(dict.fromkeys(can.activations for can in each)),
            build="+".join(can.build for can in each if can.build),
            cuts=self._cuts,
            is_concurrent=n_at_once > 1,
            n_stages=n_at_once,
            slot_type="f16" if all(can.slot_type == "f16" for can in each) else "f32",
        )

    def part(self, i: int) -> str:
        """The part of the model on the device of stage `i`, for messages."""
        own, is_last = self.layers[i], i == len(self.layers) - 1
        if not own:
            return "the head"
        return f"{len(own)} of {self._n_layers} layers{' and the head' if is_last else ''}"

    def _refusal(self, plan: Plan) -> str:
        for i, (backend, part) in enumerate(zip(self.backends, self._split(plan), strict=True)):
            can = backend.capabilities()
            if reason := reason_against(part, can):
                return f"{can.name} is to run {self.part(i)}, but {reason}"
        return ""

    async def open(self, spec: OpenSpec) -> None:
        """Opens every device with the same spec. If one fails, the opened devices are closed."""
        async with AsyncExitStack() as opened:
            for i, backend in enumerate(self.backends):
                with self._named(i):
                    await backend.open(spec)
                opened.push_async_callback(backend.close)
            opened.pop_all()

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Stores the sources. A device loads a weight when a stage that reads it is compiled."""
        self._sources = {**self._sources, **sources}
        for loaded in self._loaded:
            loaded.difference_update(weight.name for weight in weights)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        parts = [states_of(states, layers) for layers in self.layers]
        await self._states.allocate(states, parts, units, self._named)

    async def compile(self, plan: Plan) -> Program:
        """Compiles each stage on its device, and loads the stage's missing weights."""
        programs: list[Program] = []
        self._most = self.capabilities().max_in_flight
        for i, part in enumerate(self._split(plan)):
            with self._named(i):
                await load_missing(self.backends[i], part, self._loaded[i], self._sources)
                programs.append(await self.backends[i].compile(part))
        return Program(plan, tuple(programs))

    def _split(self, plan: Plan) -> list[Plan]:
        if len(plan.stages) != len(self.backends):
            raise BackendError(
                f"the plan has {len(plan.stages)} stages, expected {len(self.backends)}, one for each "
                f"device; cut it before the layers {self._cuts}",
                backend="staged",
            )
        return split(plan, self.layers)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Starts the first stage. Raises BackendError while too many steps are in flight."""
        checked_inputs(program, step, inputs, backend="staged")
        if len(self._pending) >= self._most:
            s = "s" if self._most > 1 else ""
            raise BackendError(
                f"{self._most} step{s} in flight, and these stages run {self._most} step{s} at a time; read "
                "it before the next",
                backend="staged",
            )
        programs: Sequence[Program] = program.handle
        with self._named(0):
            ticket = self.backends[0].run(programs[0], step)
            rings = self._read_ahead(programs, step)
        previous = self._pending[-1] if self._pending else None
        pending = StagedStep(programs, step, ticket, previous=previous, rings=rings)
        self._pending.append(pending)
        self._count_busy()
        if self._most > 1:
            pending.task = create_task(self._finish(pending))
        n_outputs = outputs_of(program, step)
        return Ticket(program, n_outputs, pending)

    async def read(self, ticket: Ticket) -> Result:
        """Runs the remaining stages. After a cancelled read the step can be read again."""
        pending: StagedStep = ticket.handle
        await self._finish(pending)
        if pending.result is None:
            assert pending.error, "a finished step has a result or an error"
            raise pending.error
        return pending.result

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        """An empty mapping: no stage follows the last."""
        return {}

    async def _finish(self, pending: StagedStep) -> None:
        """Runs a step to its end. An error of a stage ends the step and is raised to its readers."""
        await self._reach(pending, len(self.backends))
        pending.previous = None
        if pending in self._pending:
            self._pending.remove(pending)

    async def _reach(self, pending: StagedStep, stage: int) -> None:
        """Runs a step until it has entered a stage, or has ended.

        Concurrent readers take turns, so that no stage runs twice, and wait no longer than they must.
        """
        while pending.stage < stage and not pending.is_done:
            async with pending.turn:
                if pending.stage < stage and not pending.is_done:
                    await self._try_advance(pending)

    async def _try_advance(self, pending: StagedStep) -> None:
        try:
            await self._advance(pending)
        except Exception as error:
            pending.error = error

    async def _settle(self) -> None:
        for pending in tuple(self._pending):
            await self._finish(pending)

    async def _advance(self, pending: StagedStep) -> None:
        """Advances a step by one stage.

        State changes only after the last await, so a cancelled call can be repeated.
        """
        i, device = pending.stage, self.backends[pending.stage]
        with self._named(i):
            if i == len(self.backends) - 1:
                await gather(*pending.writes)
                pending.result = await device.read(pending.ticket)
                return
            made = await device.read_boundary(pending.ticket)
            await device.read(pending.ticket)  # frees the device's result
        if pending.previous:
            await self._reach(pending.previous, i + 1)
        with self._named(i + 1):
            rings = await self._rings(pending, i + 1)
            if self._most == 1:
                await gather(*(self._write_ring(slot, data) for slot, data in rings.items()))
            else:  # the device writes them before the step, which need not wait for its answer
                pending.writes = [kept(self._write_ring(slot, data)) for slot, data in rings.items()]
            self._begin(pending, i + 1, made)

    def _begin(self, pending: StagedStep, i: int, made: Mapping[str, bytes]) -> None:
        """Starts stage `i` with its inputs from the boundary buffers of earlier stages."""
        pending.made |= made
        self._boundary_bytes += sum(map(len, made.values()))
        pending.stage, program = i, pending.programs[i]
        inputs = {buffer.name: pending.made[buffer.name] for buffer in program.plan.stages[0].inputs}
        pending.ticket = self.backends[i].run(program, pending.step, inputs)
        self._count_busy()

    def _count_busy(self) -> None:
        """Counts the stages that have a step now."""
        busy = {pending.stage for pending in self._pending if not pending.is_done}
        self._most_at_once = max(self._most_at_once, len(busy))

    def _read_ahead(self, programs: Sequence[Program], step: bytes) -> dict[Slot, Task[bytes]]:
        """Begins to read the rings that the last stage needs, before the first runs another step."""
        if self._most == 1:
            return {}
        slots = _penalised(programs[-1].plan, step)
        return {slot: kept(self.backends[0].read_state(*slot)) for slot in slots}

    async def _rings(self, pending: StagedStep, i: int) -> dict[Slot, bytes]:
        """The ring slots that stage `i` reads, if it is the last, as the first device has them."""
        if i < len(self.backends) - 1:
            return {}
        slots = _penalised(pending.programs[i].plan, pending.step)
        return {slot: await self._ring(pending, slot) for slot in slots}

    async def _ring(self, pending: StagedStep, slot: Slot) -> bytes:
        ahead = pending.rings.get(slot)
        if ahead and not ahead.cancelled():
            return await shield(ahead)
        return await self.backends[0].read_state(*slot)

    def _write_ring(self, slot: Slot, data: bytes) -> Coroutine[Any, Any, None]:
        return self.backends[-1].write_state(*slot, data)

    async def read_state(self, group: str, unit: int) -> bytes:
        """Reads a unit. Raises BackendError for an unknown group or unit."""
        await self._settle()
        holders = self._holders(group)
        if not self._states.whole[group].layers:  # a ring is on every device; the first device's has all ids
            return await holders[0][1].read_state(group, unit)
        return b"".join([await backend.read_state(group, unit) for _, backend in holders])

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        """Writes a unit. Raises BackendError for an unknown group or unit, and for data of a wrong size."""
        await self._settle()
        holders, at = self._holders(group), 0
        check_unit(group, data, self._states.whole[group].unit_bytes, backend="staged")
        for state, backend in holders:
            await backend.write_state(group, unit, data[at : at + state.unit_bytes])
            at += state.unit_bytes if state.layers else 0

    def _holders(self, group: str) -> list[tuple[StateSpec, Backend]]:
        """The devices that have layers of a group, each with its part of the group."""
        if group not in self._states.whole:
            known = ", ".join(self._states.whole) or "none"
            raise BackendError(f"state {group!r} was not allocated; allocated: {known}", backend="staged")
        parts = [states_of([self._states.whole[group]], layers)[0] for layers in self.layers]
        return [(part, b) for part, b in zip(parts, self.backends, strict=True) if part.tensors]

    def memory(self) -> MemoryReport:
        """Sums over the devices; the counters include the bytes of each device."""
        each = [(backend.capabilities().name, backend.memory()) for backend in self.backends]
        counters = {"boundary_bytes": self._boundary_bytes, "stages_at_once": self._most_at_once}
        for name, report in each:
            own = {f"{name}.weight_bytes": report.weight_bytes, f"{name}.state_bytes": report.state_bytes}
            for counter, value in (*report.counters.items(), *own.items()):
                counters[counter] = counters.get(counter, 0) + value
        return MemoryReport(
            weight_bytes=sum(report.weight_bytes for _, report in each),
            state_bytes=sum(report.state_bytes for _, report in each),
            arena_bytes=sum(report.arena_bytes for _, report in each),
            counters=counters,
        )

    async def close(self) -> None:
        """Closes every device, even if one of them fails."""
        tasks = [pending.task for pending in self._pending if pending.task]
        for task in tasks:
            task.cancel()
        await gather(*tasks, return_exceptions=True)
        self._pending = []
        self._states.clear()
        self._loaded = [set() for _ in self.backends]
        await close_each(self.backends)

    @contextmanager
    def _named(self, i: int) -> Generator[None]:
        """Prefixes errors of a device with its stage."""
        try:
            yield
        except CamelidError as error:
            name = self.backends[i].capabilities().name
            message = f"stage {i + 1} of {len(self.backends)}, {self.part(i)} on {name}: {error.message}"
            raise type(error)(message, **error.facts) from error


def _penalised(plan: Plan, step: bytes) -> list[Slot]:
    """The ring slots that the penalties of a step read, each with its group."""
    rings = (state.name for state in plan.states if state.kind == "ring")
    return [(ring, slot) for ring in rings for slot in penalised_slots(plan, step, ring)]


def _page_rows(each: Sequence[Capabilities]) -> int:
    """The page size of all devices: the KV cache manager has one. Raises BackendError if they differ."""
    sizes = {can.page_rows for can in each}
    if len(sizes) > 1:
        pages = ", ".join(f"{can.name} has {can.page_rows}" for can in each)
        raise BackendError(
            f"a layer split needs pages of one size: {pages} rows; put all layers on one device",
            backend="+".join(can.name for can in each),
        )
    return sizes.pop()
