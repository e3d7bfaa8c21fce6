"""The webgpu backend: lowers plans to a tape, which a host executes natively or in a browser."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from camelid.backends.base import (
    Capabilities,
    Forecast,
    OpenSpec,
    OpKernels,
    PoolSize,
    Program,
    Sources,
    Ticket,
    check_unit,
    check_weight_types,
)
from camelid.backends.common.host import Host, Json, TimedHost, host_errors
from camelid.backends.common.hosted import Hosted, HostProgram
from camelid.backends.webgpu import limits, shaders
from camelid.backends.webgpu.kernel import GPU_LANES, SOFTWARE_LANES, Context
from camelid.backends.webgpu.kernels import KERNELS, plan_refusal
from camelid.backends.webgpu.kernels_adapters import joined_plan
from camelid.backends.webgpu.layouts import LAYOUTS, PACKED, bound_bytes
from camelid.backends.webgpu.lower import (
    allocate_section,
    arena_name,
    load_section,
    most_scratch,
    op_sections,
    program_section,
)
from camelid.backends.webgpu.pieces import pieces
from camelid.backends.webgpu.state_buffers import device_rows, file_rows, unit_regions
from camelid.backends.webgpu.tape import Section
from camelid.errors import BackendError, DeviceLostError, OutOfMemoryError
from camelid.formats.quants import row_bytes
from camelid.plan.fuse import REWRITES, UNBOUNDED
from camelid.plan.memory import plan_arena
from camelid.plan.op_rows_adapters import KIND as ADAPTER
from camelid.plan.plan import Plan, StateSpec
from camelid.plan.step import (
    FROM_ID,
    ProgramKey,
    Step,
    StepRow,
    StepSampling,
    StepSequence,
    encode_step,
)
from camelid.plan.weights import Weight

DOT_PRODUCTS = "packed_4x8_integer_dot_product"  # a WGSL language feature
SOFTWARE = ("llvmpipe", "swiftshader", "lavapipe", "warp", "basic render", "software adapter")


@dataclass(slots=True, eq=False)
class WebGpuProgram(HostProgram):
    """A compiled plan with its number of dispatches by non-empty parts of a step (`Section.launches`)."""

    launches: Mapping[frozenset[int], int]


class WebGpuBackend(Hosted):
    """Plans as tapes on one WebGPU device. Keeps promise A, and B within NMSE 1e-5."""

    arena_buffers = ("arena/", "step/", "result/", "candidates/", "floats/", "scratch/")

    def __init__(
        self, host: Host, api: str = "", piece_bytes: int = UNBOUNDED, *, has_early: bool = False
    ) -> None:
        """`piece_bytes` bounds the pieces of a cut weight further than the device's limits do.

        With `has_early`, programs on a software adapter start with pipelines that are compiled sooner; the
        host then uses `Section.early`.
        """
        super().__init__(host, "webgpu")
        self._api, self.piece_bytes, self._has_early = api, piece_bytes, has_early
        self._device, self._limits = "not opened", dict(limits.DEFAULTS)
        self._activations = "f32"
        self._spec = OpenSpec()
        self._weights: dict[str, Weight] = {}
        self._sources: dict[str, Any] = {}
        self._programs: list[Program] = []
        self._gone = ""  # why no device is open after a loss
        self._building = asyncio.Lock()  # while a device is opened again, no program is compiled
        self._states: dict[str, StateSpec] = {}
        self._pools: dict[str, PoolSize] = {}
        self._prepared: dict[ProgramKey, Section] = {}
        self._steps.counters["dispatches"] = 0

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="webgpu",
            device=self._device,
            ops=frozenset(KERNELS),
            weight_types=frozenset(LAYOUTS),
            promise="A",
            max_in_flight=2,
            fused=frozenset(REWRITES) - {"experts", "qkv_heads"},
            is_software=any(word in self._device.lower() for word in SOFTWARE),
            limits=self._limits,
            refuses=plan_refusal,
            activations=self._activations,
            exact_types=frozenset(LAYOUTS) - PACKED,
        )

    async def open(self, spec: OpenSpec) -> None:
        """Opens an adapter.

        Raises BackendError with the adapters found if none matches the spec, and for activations "q8" without
        WGSL's integer dot products.
        """
        self._spec = spec
        wanted = {name: limits.DEFAULTS[name] if spec.default_limits else 0 for name in limits.WANTED}
        request: Json = {"adapter": spec.adapter, "api": self._api, "limits": wanted}
        with host_errors("webgpu"):
            info = await self._host.open(request)
        adapter = info["adapter"]
        self._device = " ".join(filter(None, (adapter.get("device"), adapter.get("description")))) or str(
            adapter
        )
        # wgpu grants limits that were not requested, a browser does not: `default_limits` uses the defaults.
        granted: Mapping[str, int] = {} if spec.default_limits else info["limits"]
        self._limits = {name: int(granted.get(name, d)) for name, d in limits.DEFAULTS.items()}
        self._activations = spec.activations or "f32"
        if self._activations == "q8" and DOT_PRODUCTS not in info["language"]:
            await self.close()
            raise BackendError(
                f"webgpu: activations are 'q8', which needs {DOT_PRODUCTS} of WGSL, and this browser lacks "
                "it; omit the option, or use backend cpu", backend="webgpu",
            )  # fmt: skip
        self._steps.recording.tape["open"] = request

    def forecast(self, plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]) -> Forecast:
        """Weights in their layout on the device, and attention's sums of runs, as this device needs them."""
        weights = {name: w for plan in plans.values() for name, w in plan.weights().items()}
        most = limits.most_bytes(self._bounds)
        cut = (piece.weight for w in weights.values() for piece in pieces(w, most))
        scratch = {name: self._scratch(plan, pools) for name, plan in plans.items()}
        return Forecast(sum(map(bound_bytes, cut)), scratch)

    def _scratch(self, plan: Plan, pools: Mapping[str, PoolSize]) -> int:
        return most_scratch(Context(plan, dict(pools), self._lanes, self._bounds))

    def kernels(self, plan: Plan, units: Mapping[str, PoolSize]) -> Sequence[OpKernels]:
        """The WGSL modules of each op, as the device gets them."""
        sections = op_sections(plan, units, shaders.join, self._lanes, self._bounds, self._activations)
        return [
            OpKernels(tuple(s.modules), tuple(s.modules.values()), sum(s.launches.values())) for s in sections
        ]

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        check_weight_types(weights, self.capabilities())
        section = self._section(load_section(weights, shaders.join, self._bounds))
        with self._building_errors(section):
            await self._host.load(section, {**sources, **_joined(weights, sources)})
        self._weights.update({w.name: w for w in weights})
        self._sources.update(sources)

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        adds = bool(self._states) and self._states.keys().isdisjoint(spec.name for spec in states)
        if adds:
            _check_added(states)
        lowered = allocate_section(states, units)
        lowered.dropped = (
            [] if adds else _names_apart(allocate_section([*self._states.values()], self._pools), lowered)
        )
        section = self._section(lowered)
        with self._building_errors(section):
            await self._host.allocate(section)
        if not adds:
            self._states, self._pools = {}, {}
        self._states |= {spec.name: spec for spec in states}
        self._pools |= units

    def prepare(self, plan: Plan, units: Mapping[str, PoolSize]) -> None:
        """Begins to compile the plan's pipelines, and before them those that load weights of its types."""
        section = self._prepared[plan.key] = self._lowered(plan, units)
        examples = {weight.type: weight for weight in plan.weights().values()}
        with host_errors("webgpu"):
            for part in (load_section(examples.values(), shaders.join, self._bounds), section):
                self._host.prepare(part.compiled_json())

    async def compile(self, plan: Plan) -> Program:
        async with self._building:
            self._check_open()
            program = await self._compile(plan)
            self._programs.append(program)
            return program

    async def _compile(self, plan: Plan) -> Program:
        lowered = self._prepared.pop(plan.key, None) or self._lowered(plan, self._pools)
        section = self._section(lowered)
        with self._building_errors(section):
            number = await self._host.compile(section)
            # Drivers compile pipelines at their first dispatch (1.5 s on lavapipe), so one dispatch runs
            # here.
            await self._host.read(self._host.run(number, encode_step(_trash_step(plan), plan.layout)))
        offsets = plan_arena(joined_plan(plan)).offsets
        return Program(plan, WebGpuProgram(number, arena_name(plan), offsets, lowered.launches))

    async def recover(self) -> bool:
        """Opens the device again, reads the weights from their sources, and compiles all programs."""
        async with self._building:
            self._steps.counters["in_flight"] = 0
            self._gone = "the device was lost, and it could not be opened again"
            with host_errors("webgpu"), self._steps.recording.paused():  # a tape is of one device
                await self._host.close()
                await self._open_same(self._device)
                await self.load(list(self._weights.values()), self._sources)
                await self.allocate(list(self._states.values()), self._pools)
                for program in self._programs:
                    program.handle.number = (await self._compile(program.plan)).handle.number
            self._gone = ""
        return True

    async def _open_same(self, device: str) -> None:
        """Opens the device again. Raises BackendError if only another one is there: no fallback is silent."""
        await self.open(self._spec)
        if self._device != device:
            found, self._device = self._device, device
            raise BackendError(f"webgpu: {device} is gone, and only {found} is there", backend="webgpu")

    def _check_open(self) -> None:
        """Raises DeviceLostError after a recovery that has failed; the next recovery may open the device."""
        if self._gone:
            raise DeviceLostError(f"webgpu: {self._gone}", backend="webgpu", reason=self._gone)

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        self._check_open()
        own: WebGpuProgram = program.handle
        ticket = self._steps.run(program, own, step, inputs)
        self._steps.counters["dispatches"] += launched(own.launches, step)
        return ticket

    async def device_seconds(self, program: Program, step: bytes) -> float | None:
        self._check_open()
        if not isinstance(self._host, TimedHost):
            return None
        with host_errors("webgpu"):
            return await self._host.seconds(program.handle.number, step)

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        return await self._steps.read_boundary(ticket)

    async def read_state(self, group: str, unit: int) -> bytes:
        self._check_open()
        pieces: list[bytes] = []
        for r in unit_regions(self._states[group], self._pools[group].units):
            with host_errors("webgpu"):
                data = await self._host.read_state(r.buffer, r.offset + unit * r.unit_bytes, r.unit_bytes)
            pieces.append(file_rows(r.kv_type, r.cols, data))
        return b"".join(pieces)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        self._check_open()
        spec, at = self._states[group], 0
        check_unit(group, data, spec.unit_bytes, backend="webgpu")
        for r in unit_regions(spec, self._pools[group].units):
            n_bytes = spec.unit_rows * row_bytes(r.kv_type, r.cols)
            rows = device_rows(r.kv_type, r.cols, data[at : at + n_bytes])
            with host_errors("webgpu"):
                await self._host.write_state(r.buffer, r.offset + unit * r.unit_bytes, rows)
            at += n_bytes

    async def close(self) -> None:
        await self._host.close()

    @contextmanager
    def _building_errors(self, section: Json) -> Generator[None]:
        """Errors of a section; one of memory tells what the section needs beside the bytes in use."""
        try:
            with host_errors("webgpu"):
                yield
        except OutOfMemoryError as error:
            want, held = sum(b["bytes"] for b in section["buffers"]), sum(self._host.memory().values())
            raise OutOfMemoryError(
                f"webgpu: {section['name']} needs {want:,} bytes beside {held:,} in use, more than "
                f"{self._device} has free; use a smaller context, kv_type or quantization, fewer parallel "
                f"sequences, or another backend ({error.message})",
                want_bytes=want, held_bytes=held,
            ) from error  # fmt: skip

    @property
    def _lanes(self) -> int:
        return SOFTWARE_LANES if self.capabilities().is_software else GPU_LANES

    @property
    def _bounds(self) -> Mapping[str, int]:
        """The device's limits, with the bound of a weight's pieces."""
        binding = "maxStorageBufferBindingSize"
        return {**self._limits, binding: min(self._limits[binding], self.piece_bytes)}

    def _lowered(self, plan: Plan, units: Mapping[str, PoolSize]) -> Section:
        can_start_early = self._has_early and not self._spec.compiles_all
        has_early = can_start_early and self.capabilities().is_software
        return program_section(
            plan, units, shaders.join, self._lanes, self._bounds, self._activations, has_early=has_early
        )

    def _section(self, section: Section) -> Json:
        """The section as JSON data, checked against the device's limits, and recorded if recording is on."""
        data = section.json()
        limits.check_buffers(data, self._limits)
        return self._steps.recording.section(data)


def _joined(weights: Sequence[Weight], sources: Sources) -> Sources:
    """The sources of weights that MLX quantized; a page has none, so it needs no NumPy."""
    if not any(weight.has_planes for weight in weights):
        return {}
    from camelid.backends.common.joined_source import joined_sources

    return joined_sources(weights, sources)


def _check_added(states: Sequence[StateSpec]) -> None:
    """Raises BackendError for groups with page tables, which cannot be added to those of allocated groups."""
    if others := [spec.name for spec in states if spec.kind != ADAPTER]:
        raise BackendError(
            f"webgpu: state {', '.join(others)} comes after other groups; only groups of adapters are added "
            "to allocated state, since page tables share a buffer. Allocate all other groups with one call",
            backend="webgpu",
        )


def _names_apart(old: Section, new: Section) -> list[str]:
    """Names of the buffers of an earlier section that a new one does not create again."""
    made = {buffer["name"] for buffer in new.buffers}
    return [buffer["name"] for buffer in old.buffers if buffer["name"] not in made]


def launched(launches: Mapping[frozenset[int], int], step: bytes) -> int:
    """Number of dispatches with a non-empty grid in this step."""
    words = memoryview(step).cast("I")
    return sum(n for needed, n in launches.items() if all(words[word] for word in needed))


def _trash_step(plan: Plan) -> Step:
    """A step of one row in unit 0 of every group, which is never read."""
    row = StepRow(source=FROM_ID, value=0, sequence=0, state_row=0, positions=(0,) * plan.n_channels)
    sequence = StepSequence(first_row=0, rows=1, groups=((0, 0, 0),) * plan.layout.n_groups)
    return Step(rows=[row], sequences=[sequence], outputs=[(0, 0, 0)], sampling=[StepSampling()])


def open_backend(api: str = "") -> WebGpuBackend:
    """The entry point of this module for `registry.BACKENDS`; `api` is Vulkan, Metal or D3D12, "" for any."""
    if sys.platform == "emscripten":
        host = import_module("camelid.backends.webgpu.host_browser").BrowserHost()
        return WebGpuBackend(host, api, has_early=True)
    return WebGpuBackend(import_module("camelid.backends.webgpu.host_python").WgpuHost(), api)
