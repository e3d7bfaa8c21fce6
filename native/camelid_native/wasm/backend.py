"""Backend cpu in a page: WebAssembly kernels, run by an executor in JavaScript from sections of plain data.

It keeps promises A and B, as the native kernels do; plain and relaxed SIMD give identical bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

from camelid.backends.base import (
    Capabilities,
    OpenSpec,
    PoolSize,
    Program,
    Sources,
    Ticket,
    check_unit,
    check_weight_types,
)
from camelid.backends.common.host import Host, host_errors
from camelid.backends.common.hosted import Hosted, HostProgram
from camelid.backends.common.results import result_bytes
from camelid.errors import BackendError
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan, StateRef, StateSpec
from camelid.plan.weights import Weight
from camelid_native.cpu.records import (
    RECORDS,
    Placed,
    PlacedState,
    ProgramRecord,
    StateRecord,
    op_records,
    program_record,
    refusal,
)
from camelid_native.cpu.state_layout import group_of, stale, unit_regions
from camelid_native.wasm.tape import Section, address
from camelid_native.wasm.weights import Panels, WasmWeights, panels_of

MAX_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Facts of the open WASM module, as the executor reports them."""

    device: str = "not opened"
    build: str = ""
    kinds: Mapping[str, int] = field(default_factory=dict[str, int])
    words: Mapping[str, int] = field(default_factory=dict[str, int])
    panels: Panels = field(default_factory=dict[str, tuple[int, int]])


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """Buffer numbers of one state group."""

    spec: StateSpec
    pool: PoolSize
    rows: int
    table: int

    def placed(self, number: int) -> PlacedState:
        pool = self.pool
        return PlacedState(
            self.spec, number, address(self.rows), pool.units, address(self.table), pool.table_cols
        )


@dataclass(slots=True, eq=False)
class WasmProgram(HostProgram):
    """A compiled program with the state groups that its records point at."""

    groups: Mapping[str, GroupPlace]


class WasmBackend(Hosted):
    """Backend that compiles plans to arrays of records in the memory of a WebAssembly module."""

    arena_buffers = ("arena/", "scratch/", "ring/", "records/", "program/")

    def __init__(self, host: Host) -> None:
        super().__init__(host, "cpu")
        self._module = Module()
        self._numbers: Iterator[int] = count(1)
        self._weights = WasmWeights({}, self._numbers)
        self._groups: dict[str, GroupPlace] = {}

    def capabilities(self) -> Capabilities:
        module = self._module
        return Capabilities(
            name="cpu",
            device=module.device,
            ops=frozenset(module.kinds),
            weight_types=frozenset(module.panels),
            promise="A+B",
            max_in_flight=MAX_IN_FLIGHT,
            fused=frozenset({"add_norm", "linear_glu"}),
            activations="q8",
            build=module.build,
            refuses=partial(refusal, words=module.words),
        )

    async def open(self, spec: OpenSpec) -> None:
        """Starts the module and its workers, after closing the backend if it is open.

        `spec.adapter` names a variant of the kernels. Raises BackendError if this browser does not support
        the variant, or if the module's records differ from this version's.
        """
        await self.close()
        request = {"variant": spec.adapter, "threads": spec.threads or 0}
        with host_errors("cpu"):
            answer = await self._host.open(request)
        self._steps.recording.tape["open"] = request
        self._module = _module(answer)
        try:
            _check_records(answer["records"])
        except BackendError:
            await self.close()
            raise
        self._weights = WasmWeights(self._module.panels, self._numbers)

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        self._check_open()
        check_weight_types(weights, self.capabilities())
        self._weights.add(weights, sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        self._check_open()
        section = Section("allocate", "states")
        groups = {spec.name: self._group(section, spec, group_of(units, spec.name)) for spec in states}
        adds = bool(self._groups) and self._groups.keys().isdisjoint(groups)
        section.facts["adds"] = adds
        with host_errors("cpu"):
            await self._host.allocate(self._steps.recording.section(section.json()))
        if adds:
            self._groups.update(groups)  # in place: programs that point at the groups before stay valid
        else:
            self._groups = groups

    async def compile(self, plan: Plan) -> Program:
        """Assigns an address to every operand; loads and packs weights that no earlier program used."""
        self._check_open()
        arena = plan_arena(plan)
        section = Section("program", f"{plan.key.entry}/{next(self._numbers)}")
        own = WasmProgram(0, f"arena/{section.name}", arena.offsets, self._groups)
        ops = op_records(
            plan, self._placed(plan, section.add(next(self._numbers), own.arena, arena.n_bytes), own)
        )
        record = program_record(plan, ops)
        record.ops = address(section.add_records(next(self._numbers), f"records/{section.name}", ops))
        number = section.add_records(next(self._numbers), f"program/{section.name}", record)
        section.facts = _facts(plan, number)
        await self._load_weights()
        with host_errors("cpu"):
            compiled = await self._host.compile(self._steps.recording.section(section.json()))
        return Program(plan, WasmProgram(compiled, own.arena, own.offsets, own.groups))

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        """Queues a step, which runs when the steps before it have ended."""
        return self._steps.run(program, self.program_of(program), step, inputs)

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        self.program_of(ticket.program)
        return await self._steps.read_boundary(ticket)

    async def read_state(self, group: str, unit: int) -> bytes:
        """Bytes of a unit. Raises BackendError for an unknown group or unit."""
        place = group_of(self._groups, group)
        regions = unit_regions(place.spec, place.pool.units, unit)
        with host_errors("cpu"):
            return b"".join([await self._host.read_state(f"state/{group}", at, n) for at, n in regions])

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        """Writes a unit. Raises BackendError for an unknown group or unit, or data of another size."""
        place, start = group_of(self._groups, group), 0
        regions = unit_regions(place.spec, place.pool.units, unit)
        check_unit(group, data, place.spec.unit_bytes, backend="cpu")
        for at, n in regions:
            with host_errors("cpu"):
                await self._host.write_state(f"state/{group}", at, data[start : start + n])
            start += n

    async def close(self) -> None:
        """Ends the workers and frees all memory."""
        if self._module.kinds:
            with host_errors("cpu"):
                await self._host.close()
        self._module, self._groups = Module(), {}

    def _check_open(self) -> None:
        if not self._module.kinds:
            raise BackendError("backend 'cpu' is not open; call open() first", backend="cpu")

    def program_of(self, program: Program) -> WasmProgram:
        """The compiled program. Raises BackendError if its records point into freed state memory."""
        self._check_open()
        own = program.handle
        if not isinstance(own, WasmProgram) or own.groups is not self._groups:
            raise stale(program)
        return own

    async def _load_weights(self) -> None:
        """Loads the weights that compiled plans use and that are not loaded yet."""
        section = self._weights.taken()
        if not section.buffers:
            return
        try:
            with host_errors("cpu"):
                await self._host.load(self._steps.recording.section(section.json()), self._weights.sources)
        except BaseException:
            self._weights.forget(section)
            raise

    def _group(self, section: Section, spec: StateSpec, pool: PoolSize) -> GroupPlace:
        rows = section.add(next(self._numbers), f"state/{spec.name}", pool.units * spec.unit_bytes)
        n_bytes = 4 * pool.table_rows * pool.table_cols
        table = section.add(next(self._numbers), f"table/{spec.name}", n_bytes)
        return GroupPlace(spec, pool, rows, table)

    def _placed(self, plan: Plan, arena: int, own: WasmProgram) -> Placed:
        return Placed(
            view=lambda view: address(arena, own.offsets[view.buffer.name]),
            weight=self._weights.record,
            state=partial(_state, plan, own.groups),
            kinds=self._module.kinds,
            words=self._module.words,
        )


def _state(plan: Plan, groups: Mapping[str, GroupPlace], ref: StateRef, first: str) -> StateRecord:
    return group_of(groups, ref.group).placed(plan.group(ref.group)).record(ref, first)


def _facts(plan: Plan, number: int) -> dict[str, Any]:
    """Fields of a program section beside its buffers."""
    return {
        "program": number,
        "scratch": [ProgramRecord.scratch.offset, ProgramRecord.scratch_bytes.offset],
        "step_bytes": 4 * plan.layout.n_words,
        "result": {
            "word": plan.layout.header_word("outputs"),
            "each": result_bytes(plan, 1),
            "bytes": result_bytes(plan, plan.key.capacity.outputs),
        },
        "ring": MAX_IN_FLIGHT,
    }


def _check_records(sizes: Sequence[int]) -> None:
    """Raises BackendError if the module's record sizes differ: kernels would access wrong addresses."""
    own = [ctypes.sizeof(record) for record in RECORDS]
    if list(sizes) != own:
        raise BackendError(
            f"the WASM kernels have records of {sizes} bytes, expected {own}; rebuild them: "
            "python -m camelid_native.build --target wasm-simd",
            backend="cpu",
        )


def _module(answer: Mapping[str, Any]) -> Module:
    """Module facts from the executor's answer to `open`."""
    n, why = answer["threads"], answer["why"]
    return Module(
        device=f"{answer['variant']}, {n} thread{'s' if n > 1 else ''}" + (f" ({why})" if why else ""),
        build=answer["build"],
        kinds={name: number for number, name in enumerate(answer["kinds"])},
        words={name: number for number, name in enumerate(answer["words"])},
        panels=panels_of(answer["panels"]),
    )


def open_backend() -> WasmBackend:
    """Constructor of the backend cpu in a browser; `camelid.backends.registry` calls it."""
    return WasmBackend(import_module("camelid.backends.webgpu.host_browser").BrowserHost("WasmExecutor"))
