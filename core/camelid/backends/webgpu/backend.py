"""The webgpu backend: lowers plans to a tape, which a host executes natively or in a browser."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

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
from camelid.backends.common.host import Host, Json, host_errors
from camelid.backends.common.hosted import Hosted, HostProgram
from camelid.backends.webgpu import limits, shaders
from camelid.backends.webgpu.kernel import GPU_LANES, SOFTWARE_LANES
from camelid.backends.webgpu.kernels import KERNELS, plan_refusal
from camelid.backends.webgpu.layouts import LAYOUTS
from camelid.backends.webgpu.lower import (
    allocate_section,
    arena_name,
    load_section,
    program_section,
)
from camelid.backends.webgpu.state_buffers import device_rows, file_rows, unit_regions
from camelid.backends.webgpu.tape import Section
from camelid.formats.quants import row_bytes
from camelid.plan.fuse import REWRITES
from camelid.plan.memory import plan_arena
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

SOFTWARE = ("llvmpipe", "swiftshader", "lavapipe", "warp", "basic render")


@dataclass(frozen=True, slots=True)
class WebGpuProgram(HostProgram):
    """A compiled plan with its number of dispatches by non-empty parts of a step (`Section.launches`)."""

    launches: Mapping[frozenset[int], int]


class WebGpuBackend(Hosted):
    """Plans as tapes on one WebGPU device. Keeps promise A, and B within NMSE 1e-5."""

    arena_buffers = ("arena/", "step/", "result/", "candidates/", "scratch/")

    def __init__(self, host: Host, api: str = "") -> None:
        super().__init__(host, "webgpu")
        self._api = api
        self._device, self._limits = "not opened", dict(limits.DEFAULTS)
        self._weights: dict[str, Weight] = {}
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
            fused=frozenset(REWRITES),
            is_software=any(word in self._device.lower() for word in SOFTWARE),
            limits=self._limits,
            refuses=plan_refusal,
        )

    async def open(self, spec: OpenSpec) -> None:
        """Opens an adapter. Raises BackendError with the adapters found if none matches the spec."""
        requested = () if spec.default_limits else limits.WANTED
        request: Json = {"adapter": spec.adapter, "api": self._api, "limits": list(requested)}
        with host_errors("webgpu"):
            info = await self._host.open(request)
        adapter = info["adapter"]
        self._device = " ".join(filter(None, (adapter.get("device"), adapter.get("description")))) or str(
            adapter
        )
        # wgpu grants all limits of an adapter, a browser only requested limits: `default_limits` uses the
        # defaults.
        granted: Mapping[str, int] = {} if spec.default_limits else info["limits"]
        self._limits = {name: int(granted.get(name, d)) for name, d in limits.DEFAULTS.items()}
        self._steps.recording.tape["open"] = request

    async def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        check_weight_types(weights, self.capabilities())
        section = load_section(weights, shaders.join)
        with host_errors("webgpu"):
            await self._host.load(self._section(section), sources)
        self._weights.update({w.name: w for w in weights})

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        self._states, self._pools = {s.name: s for s in states}, dict(units)
        with host_errors("webgpu"):
            await self._host.allocate(self._section(allocate_section(states, units)))

    def prepare(self, plan: Plan, units: Mapping[str, PoolSize]) -> None:
        """Begins to compile the plan's pipelines, and before them those that load weights of its types."""
        section = self._prepared[plan.key] = self._lowered(plan, units)
        examples = {weight.type: weight for weight in plan.weights().values()}
        with host_errors("webgpu"):
            for part in (load_section(examples.values(), shaders.join), section):
                self._host.prepare(part.compiled_json())

    async def compile(self, plan: Plan) -> Program:
        section = self._prepared.pop(plan.key, None) or self._lowered(plan, self._pools)
        with host_errors("webgpu"):
            number = await self._host.compile(self._section(section))
            # Drivers compile pipelines at their first dispatch (1.5 s on lavapipe), so one dispatch runs
            # here.
            await self._host.read(self._host.run(number, encode_step(_trash_step(plan), plan.layout)))
        offsets = plan_arena(plan).offsets
        return Program(plan, WebGpuProgram(number, arena_name(plan), offsets, section.launches))

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        own: WebGpuProgram = program.handle
        ticket = self._steps.run(program, own, step, inputs)
        self._steps.counters["dispatches"] += launched(own.launches, step)
        return ticket

    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]:
        return await self._steps.read_boundary(ticket)

    async def read_state(self, group: str, unit: int) -> bytes:
        pieces: list[bytes] = []
        for r in unit_regions(self._states[group], self._pools[group].units):
            with host_errors("webgpu"):
                data = await self._host.read_state(r.buffer, r.offset + unit * r.unit_bytes, r.unit_bytes)
            pieces.append(file_rows(r.kv_type, r.cols, data))
        return b"".join(pieces)

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
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

    def _lowered(self, plan: Plan, units: Mapping[str, PoolSize]) -> Section:
        lanes = SOFTWARE_LANES if self.capabilities().is_software else GPU_LANES
        return program_section(plan, units, shaders.join, lanes, self._limits)

    def _section(self, section: Section) -> Json:
        """The section as JSON data, checked against the device's limits, and recorded if recording is on."""
        data = section.json()
        limits.check_buffers(data, self._limits)
        return self._steps.recording.section(data)


def launched(launches: Mapping[frozenset[int], int], step: bytes) -> int:
    """Number of dispatches with a non-empty grid in this step."""
    words = memoryview(step).cast("I")
    return sum(n for needed, n in launches.items() if all(words[word] for word in needed))


def _trash_step(plan: Plan) -> Step:
    """A step of one row in unit 0 of every group, which is never read."""
    row = StepRow(source=FROM_ID, value=0, sequence=0, state_row=0, positions=(0,) * plan.n_channels)
    sequence = StepSequence(first_row=0, rows=1, groups=((0, 0, 0),) * len(plan.states))
    return Step(rows=[row], sequences=[sequence], outputs=[(0, 0, 0)], sampling=[StepSampling()])


def open_backend(api: str = "") -> WebGpuBackend:
    """The entry point of this module for `registry.BACKENDS`; `api` is Vulkan, Metal or D3D12, "" for any."""
    if sys.platform == "emscripten":
        host = import_module("camelid.backends.webgpu.host_browser").BrowserHost()
    else:
        host = import_module("camelid.backends.webgpu.host_python").WgpuHost()
    return WebGpuBackend(host, api)
