"""The parallel backend: devices of one kind as one backend, each with its share of every layer.

All devices run the same step on plans of their own, and all draw the same ids, so no id is exchanged. Here
the host adds what they made at each `all_reduce`, device 0 first, which any backend allows; a backend whose
devices reach each other's memory has a subclass. One step is in flight at a time.
"""

from __future__ import annotations

from asyncio import Lock, gather, to_thread
from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace

from camelid.backends.base import (
    Backend,
    Capabilities,
    MemoryReport,
    OpenSpec,
    PoolSize,
    Program,
    Result,
    Shares,
    Sources,
    Ticket,
    check_unit,
    reason_against,
)
from camelid.backends.common.boundary import checked_inputs, outputs_of
from camelid.backends.common.devices import DeviceStates, close_each, load_missing
from camelid.errors import BackendError, CamelidError
from camelid.plan.adapter_shares import slot_states
from camelid.plan.adapters import with_adapters
from camelid.plan.fuse import fuse
from camelid.plan.op_rows_adapters import KIND
from camelid.plan.parallel import Segment, join_unit, segments, split_unit
from camelid.plan.plan import Buffer, Plan, StateSpec
from camelid.plan.weights import Weight


@dataclass(slots=True)
class Compiled:
    """A segment on every device, and the buffer that is summed behind it."""

    programs: Sequence[Program]
    total: Buffer | None


@dataclass(slots=True)
class ParallelStep:
    """A submitted step: its current segment with the devices' tickets, and their boundary buffers so far."""

    parts: Sequence[Compiled]
    step: bytes
    tickets: Sequence[Ticket]
    made: Sequence[dict[str, bytes]]
    at: int = 0
    result: Result | None = None
    error: Exception | None = None
    turn: Lock = field(default_factory=Lock)  # held by the reader that advances the step


class ParallelBackend(Backend):
    """A tensor-parallel model on `backends`."""

    def __init__(self, backends: Sequence[Backend], shares: Shares) -> None:
        self.backends, self._shares = tuple(backends), shares
        self._sources: Sources = {}
        self._loaded: list[set[str]] = [set() for _ in backends]  # names of weights
        self._states = DeviceStates(self.backends)
        self._pending: ParallelStep | None = None
        self._sums = 0

    def capabilities(self) -> Capabilities:
        """The capabilities of the first device; its rewrites are for the devices' own plans."""
        each = [backend.capabilities() for backend in self.backends]
        return replace(
            each[0],
            name=f"{len(each)}x{each[0].name}",
            device="; ".join(can.device for can in each),
            fused=frozenset(),
            refuses=self._refusal,
            max_in_flight=1,
            is_concurrent=False,
        )

    def _refusal(self, plan: Plan) -> str:
        parts = ((b.capabilities(), s.plan) for b, own in self._each(plan) for s in segments(own))
        return next(filter(None, (reason_against(part, can) for can, part in parts)), "")

    def own_plans(self, plan: Plan) -> list[Plan]:
        """The plan of each device."""
        return [own for _, own in self._each(plan)]

    def _each(self, plan: Plan) -> list[tuple[Backend, Plan]]:
        """The devices with their own plans, rewritten for their kernels."""
        found: list[tuple[Backend, Plan]] = []
        slots = slot_states(plan.states)
        layout = self._shares.slots(slots).own if slots else None
        for backend, own in zip(self.backends, self._shares.plans(plan), strict=True):
            can = backend.capabilities()
            fused = fuse(own, can.fused, most_bytes=can.most_bytes)
            found.append((backend, with_adapters(fused, layout) if layout else fused))
        return found

    async def open(self, spec: OpenSpec) -> None:
        """Opens every device with the same spec. If one fails, the opened devices are closed."""
        await self._open_each([spec] * len(self.backends))

    async def _open_each(self, specs: Sequence[OpenSpec]) -> None:
        async with AsyncExitStack() as opened:
            for i, backend in enumerate(self.backends):
                with self._named(i):
                    await backend.open(specs[i])
                opened.push_async_callback(backend.close)
            opened.pop_all()

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Stores the sources. A device loads its share of a weight when a plan that reads it is compiled."""
        self._sources = {**self._sources, **sources}
        for loaded in self._loaded:
            loaded.difference_update(weight.name for weight in weights)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        own = self._shares.states(states)
        await self._states.allocate(states, [own] * len(self.backends), units, self._named)

    async def compile(self, plan: Plan) -> Program:
        """Compiles each device's plan, and loads the missing weights."""
        each: list[list[Program]] = []
        cut: list[Segment] = []
        for i, (backend, own) in enumerate(self._each(plan)):
            with self._named(i):
                await self._load_missing(i, own)
                cut = segments(own)
                each.append([await backend.compile(segment.plan) for segment in cut])
        programs = zip(*each, strict=True)
        return Program(plan, tuple(Compiled(p, s.total) for p, s in zip(programs, cut, strict=True)))

    async def _load_missing(self, i: int, plan: Plan) -> None:
        await load_missing(self.backends[i], plan, self._loaded[i], self._sources)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Starts the first segment. Raises BackendError while another step is in flight."""
        checked_inputs(program, step, inputs, backend=self.capabilities().name)
        if self._pending:
            raise BackendError(
                "a step is in flight, and these devices run one at a time; read it before the next",
                backend=self.capabilities().name,
            )
        parts: Sequence[Compiled] = program.handle
        pending = ParallelStep(parts, step, (), [{} for _ in self.backends])
        self._begin(pending)
        self._pending = pending
        return Ticket(program, outputs_of(program, step), pending)

    async def read(self, ticket: Ticket) -> Result:
        """Runs the remaining segments. After a cancelled read the step can be read again."""
        pending: ParallelStep = ticket.handle
        async with pending.turn:
            while pending.result is None and pending.error is None:
                try:
                    await self._advance(pending)
                except Exception as error:
                    pending.error = error
        if pending is self._pending:
            self._pending = None
        if pending.error:
            raise pending.error
        assert pending.result is not None, "a finished step has a result or an error"
        return pending.result

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        """An empty mapping: no stage follows."""
        return {}

    async def _advance(self, pending: ParallelStep) -> None:
        """Ends a segment, and begins the next. State changes only after the last await."""
        pairs = list(zip(self.backends, pending.tickets, strict=True))
        made = [dict(await backend.read_boundary(ticket)) for backend, ticket in pairs]
        results = await gather(*(backend.read(ticket) for backend, ticket in pairs))
        total = pending.parts[pending.at].total
        if total is None:
            pending.result = agreed(results, self.capabilities().name)
            return
        whole = summed([own[total.name] for own in made], total)
        for known, own in zip(pending.made, made, strict=True):
            known |= {**own, total.name: whole}
        pending.at += 1
        self._sums += 1
        self._begin(pending)

    def _begin(self, pending: ParallelStep) -> None:
        """Starts the current segment on every device, with the boundary buffers that it reads."""
        tickets: list[Ticket] = []
        for i, program in enumerate(pending.parts[pending.at].programs):
            inputs = {b.name: pending.made[i][b.name] for b in program.plan.stages[0].inputs}
            with self._named(i):
                tickets.append(self.backends[i].run(program, pending.step, inputs))
        pending.tickets = tickets

    async def read_state(self, group: str, unit: int) -> bytes:
        """Reads a unit. Raises BackendError for an unknown group or unit."""
        state, own = self._group(group)
        units = [await backend.read_state(group, unit) for backend in self.backends]
        if state.kind == KIND:
            return self._shares.slots([state]).join(group, units)
        return units[0] if state == own else join_unit(state, [own] * len(units), units)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        """Writes a unit. Raises BackendError for an unknown group or unit, and for data of a wrong size."""
        state, own = self._group(group)
        check_unit(group, data, state.unit_bytes, backend=self.capabilities().name)
        n = len(self.backends)
        if state.kind == KIND:
            slots = self._shares.slots([state])
            units = await to_thread(slots.split, group, data)  # seconds for many experts
        else:
            units = [data] * n if state == own else split_unit(state, [own] * n, data)
        for backend, one in zip(self.backends, units, strict=True):
            await backend.write_state(group, unit, one)

    def _group(self, group: str) -> tuple[StateSpec, StateSpec]:
        """A state group, and a device's share of it."""
        if group not in self._states.whole:
            known, name = ", ".join(self._states.whole) or "none", self.capabilities().name
            raise BackendError(f"state {group!r} was not allocated; allocated: {known}", backend=name)
        return self._states.whole[group], self._states.own[0][group][0]

    def memory(self) -> MemoryReport:
        """Sums over the devices."""
        each = [backend.memory() for backend in self.backends]
        counters = {"sums_of_the_host": self._sums}
        for report in each:
            for name, value in report.counters.items():
                counters[name] = counters.get(name, 0) + value
        return MemoryReport(
            weight_bytes=sum(report.weight_bytes for report in each),
            state_bytes=sum(report.state_bytes for report in each),
            arena_bytes=sum(report.arena_bytes for report in each),
            counters=counters,
        )

    async def close(self) -> None:
        """Closes every device, even if one of them fails."""
        self._pending = None
        self._states.clear()
        self._loaded = [set() for _ in self.backends]
        await close_each(self.backends[::-1])  # device 0 first, which owns the graphs of all

    @contextmanager
    def _named(self, i: int) -> Generator[None]:
        """Prefixes errors of a device with its number."""
        try:
            yield
        except CamelidError as error:
            message = f"device {i + 1} of {len(self.backends)}: {error.message}"
            raise type(error)(message, **error.facts) from error


def agreed(results: Sequence[Result], backend: str) -> Result:
    """The result of all devices. Raises BackendError if they drew different ids."""
    drawn = {tuple(row.token_id for row in result) for result in results}
    if len(drawn) > 1:
        raise BackendError(
            "the devices of a tensor-parallel model drew different ids, so one of them computes wrongly; "
            "check each alone with `camelid doctor`",
            backend=backend,
        )
    return results[0]


def summed(parts: Sequence[bytes], buffer: Buffer) -> bytes:
    """The sum of a buffer's bytes on each device, device 0 first."""
    from camelid.backends.common.codecs.activations import load, of_bytes, store  # NumPy, which pages lack

    first, *others = (load(of_bytes(data, buffer), buffer.dtype) for data in parts)
    total = first.copy()
    for other in others:
        total = total + other
    return store(total, buffer.dtype).tobytes()
