"""The backend contract (waist 2 of README.md): a backend runs plans, without models, tokenizers and requests.

Calls come in the order `open`, `load`, `allocate`, `compile`, then `run` and `read` for each step, then
`close`. Opening, loading and compiling are asynchronous, as they are in a browser; `run` enqueues and
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from camelid.errors import BackendError, RequestError
from camelid.plan.adapter_shares import SlotShares
from camelid.plan.dtypes import F32
from camelid.plan.fuse import UNBOUNDED
from camelid.plan.plan import PAGE_ROWS, Plan, StateSpec, View
from camelid.plan.step import ProgramKey
from camelid.plan.weights import Weight

PADDING = 1 << 16  # bytes of a device's buffer beyond a weight's blocks, at most: padding, a codebook
FLOAT_TYPES = frozenset({"f32", "f16"})
Sources = Mapping[str, Any]  # source name -> handle: a path natively, a URL, File or OPFS handle in a browser


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpec:
    """Parameters of `Backend.open`.

    `adapter` is a part of the device's name; on `cpu`, a variant of the kernels. `threads` is the number of
    processor threads (None: all that the process may use). `activations` is "q8" or "f32", as in
    `Capabilities` ("": the backend's own); on `reference` "f64" rounds no activation and no state.
    `default_limits` plans for WebGPU's default limits on any adapter.
    `collective` "nccl" lets NCCL sum over the GPUs of a tensor-parallel model.
    `compiles_all` compiles all pipelines of a program before its first step.
    """

    adapter: str = ""
    threads: int | None = None
    activations: str = ""
    collective: str = ""
    default_limits: bool = False
    compiles_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Ops, types, limits and geometry of a backend, and its promise (README.md beside this file).

    `refuses` returns the reason against a plan of known ops, e.g. an attribute without a kernel, or "".
    `activations` is "q8" where a matrix product rounds its input to int8 first, in blocks of 32 columns with
    the scale max|x| / 127 (to bf16 for a matrix of bf16 or mxfp8); `exact_types` multiply unrounded input.
    `dtypes` are the activation types of the kernels. `build` distinguishes builds of the kernels where
    `device` does not, e.g. a library's hash. A plan begins a new stage before each layer of `cuts`.

    Geometry: a page of the KV cache has `page_rows` rows; a step has `chunk` prompt rows by default. Programs
    are compiled for the row counts of `row_buckets` up to the largest step, and a step runs the smallest that
    fits; without buckets one program serves every step, for kernels that skip unused rows.

    A and B of an adapter's term are of `slot_type` in its slot (plan/op_rows_adapters.py).

    `is_concurrent`: `read` leaves this process free, so other devices run meanwhile. A backend of `n_stages`
    runs a step in each at once. A drawn id comes back to its first stage through the host alone, so a
    sequence has one drawn row in flight, and a step takes its share of the sequences.
    """

    name: str
    device: str
    ops: frozenset[str]
    weight_types: frozenset[str]
    promise: str
    max_in_flight: int
    fused: frozenset[str] = frozenset()  # the rewrites of plan/fuse.py that this backend has kernels for
    is_software: bool = False
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    refuses: Callable[[Plan], str] = lambda plan: ""
    activations: str = "f32"
    exact_types: frozenset[str] = FLOAT_TYPES
    dtypes: frozenset[str] = frozenset({F32})
    build: str = ""
    cuts: tuple[int, ...] = ()
    page_rows: int = PAGE_ROWS
    chunk: int = 64
    row_buckets: tuple[int, ...] = ()
    is_concurrent: bool = False
    n_stages: int = 1
    slot_type: str = "f32"

    def rounding(self, weight_type: str) -> str:
        """`activations` for a product with a weight of this type."""
        return "f32" if weight_type in self.exact_types else self.activations

    @property
    def most_bytes(self) -> int:
        """The largest size of a joined weight; unbounded on a device without a limit."""
        bounds = (
            self.limits.get(name, UNBOUNDED) for name in ("maxBufferSize", "maxStorageBufferBindingSize")
        )
        return min(bounds) - PADDING


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled plan. `handle` belongs to the backend."""

    plan: Plan
    handle: Any

    @property
    def key(self) -> ProgramKey:
        return self.plan.key


@dataclass(frozen=True, slots=True)
class Ticket:
    """A submitted step. `handle` belongs to the backend."""

    program: Program
    n_outputs: int
    handle: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """A row's `CANDIDATES` largest raw logits in descending order, ties by id; all of a smaller vocabulary.

    `mean` and `variance` (over n, not n - 1) cover all the row's logits above -inf.
    """

    ids: memoryview[int]  # u32
    logits: memoryview[float]  # float32
    mean: float
    variance: float


class OutputRow(NamedTuple):
    """The result of one output row.

    `logits` is set by the program's `all_logits` feature, and by a program that emits floats and draws no
    token; `candidates` by the feature of that name.
    """

    token_id: int
    status: str
    logit: float
    log_sum_exp: float
    logits: memoryview[Any] | None = None  # [V] float32, or the emitted floats
    candidates: Candidates | None = None

    @property
    def logprob(self) -> float:
        return self.logit - self.log_sum_exp


Result = Sequence[OutputRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Bytes by use, and monotonic counters."""

    weight_bytes: int
    state_bytes: int
    arena_bytes: int
    counters: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted bytes: weights, and per program the memory beside its plan's own buffers.

    `tables` are bytes of state beside its units and page tables.
    """

    weights: int
    programs: Mapping[str, int]
    tables: int = 0


class DeviceArray(Protocol):
    """Memory of a GPU that torch and CuPy use in place, by `from_dlpack`. `is_lost`: its device was lost."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def is_lost(self) -> bool: ...
    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class OpKernels:
    """The kernels of one op: names, texts ("" for compiled code) and the number of dispatches."""

    names: tuple[str, ...]
    sources: tuple[str, ...]
    dispatches: int


class Backend(Protocol):
    """The contract of a backend, with every call that other modules make. `run` never waits for the device.

    A program may be one stage of several: `inputs` are the boundary buffers that its plan reads, and
    `read_boundary` returns the boundary buffers that it writes, before the program runs again. Both have as
    many rows as the step, each element in the buffer's dtype. On cuda an input may be an array with
    `__dlpack__`.
    """

    def capabilities(self) -> Capabilities: ...
    async def open(self, spec: OpenSpec) -> None: ...
    async def load(self, weights: Sequence[Weight], sources: Sources) -> None: ...

    async def allocate(self, states: Sequence[StateSpec], units: Mapping[str, PoolSize]) -> None:
        """Allocates zeroed memory for state groups.

        Groups of new names are added to those of earlier calls, and programs stay valid. A call with a name
        that is allocated replaces all state, and programs become invalid. Raises OutOfMemoryError.
        """
        ...

    async def compile(self, plan: Plan) -> Program: ...
    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket: ...
    async def read(self, ticket: Ticket) -> Result: ...
    async def read_boundary(self, ticket: Ticket) -> Mapping[str, bytes]: ...
    async def read_state(self, group: str, unit: int) -> bytes: ...
    async def write_state(self, group: str, unit: int, data: bytes) -> None: ...
    def memory(self) -> MemoryReport: ...
    async def close(self) -> None: ...

    async def recover(self) -> bool:
        """Opens a lost device again: its weights, empty state and all programs, whose handles stay valid.

        Steps in flight are gone. False for a backend that cannot; BackendError if the device is not back yet.
        A cancelled call can be repeated.
        """
        return False

    def array(self, rows: int, cols: int) -> DeviceArray:
        """An array of float32 [rows, cols] on the device, zero at first, for `run_into`.

        Raises RequestError for a backend whose results are in the machine's memory, where NumPy and torch
        share them; OutOfMemoryError.
        """
        raise RequestError(
            f"backend {self.capabilities().name!r} keeps no results on a device; call logits(), whose memory "
            "NumPy and torch share, or choose the backend cuda on one GPU",
            field="backend",
        )

    def run_into(self, program: Program, step: bytes, array: Any, row: int) -> Ticket:
        """As `run`, but the step's logits or emitted floats go to rows `row` on of an array of `array`, whose
        consumers wait for the step, and not to the host. No consumer may read these rows meanwhile. Raises
        BackendError for an array of another size or device.
        """
        name = self.capabilities().name
        raise BackendError(f"backend {name!r} keeps no results on a device; call run", backend=name)

    async def run_buffers(
        self, program: Program, step: bytes, inputs: Mapping[View, bytes], outputs: Sequence[View]
    ) -> tuple[Ticket, list[bytes]]:
        """Runs a step on given bytes of input buffers and returns the bytes of output buffers.

        The parity gate calls it. Raises BackendError for a backend that runs whole models only.
        """
        name = self.capabilities().name
        raise BackendError(f"backend {name!r} runs no single op; run the op on one device", backend=name)

    def prepare(self, plan: Plan, units: Mapping[str, PoolSize]) -> None:
        """Begins work of `compile` that needs no weights, for `units` as in `allocate`. It may do nothing."""

    def forecast(self, plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]) -> Forecast:
        """Predicts the memory of plans before loading; by default stored weights, and no kernel scratch."""
        return stored_forecast(plans, pools)

    def free_memory(self) -> int | None:
        """Bytes of the open device that a model may take; None where the device does not report them."""
        return None

    def kernels(self, plan: Plan, units: Mapping[str, PoolSize]) -> Sequence[OpKernels]:
        """The kernels of each op; by default one per op, by the op's name and without a text."""
        return [OpKernels((op.name,), ("",), 1) for op in plan.ops]

    async def device_seconds(self, program: Program, step: bytes) -> float | None:
        """Runs a step between two timestamps of the device; None for a device without them."""
        return None

    def read_gbps(self) -> float:
        """Measured GB/s of the device's own memory; 0.0 for the machine's memory or without a measurement."""
        return 0.0

    def peak_gflops(self) -> float:
        """Arithmetic peak in GFLOP/s, measured or by the device's clock; 0.0 for a device without either."""
        return 0.0

    def record(self) -> None:
        """Starts recording a tape of all sections and steps.

        Raises RequestError for a backend without tapes.
        """
        raise no_tape(self)

    def save_tape(self, path: str) -> None:
        """Writes the tape as JSON. Raises RequestError for a backend without tapes."""
        raise no_tape(self)


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The size of one state group: `units` in all (unit 0 is trash), and the page table's shape."""

    units: int
    table_rows: int = 0
    table_cols: int = 0


@dataclass(frozen=True, slots=True)
class Shares:
    """Plans and state groups of the devices of a tensor-parallel model, as functions of the whole."""

    plans: Callable[[Plan], Sequence[Plan]]  # a plan for each device, without terms of adapters
    states: Callable[[Sequence[StateSpec]], Sequence[StateSpec]]  # equal on all devices
    slots: Callable[[Sequence[StateSpec]], SlotShares]  # of the groups of adapter slots


def stored_forecast(plans: Mapping[str, Plan], _: Mapping[str, PoolSize]) -> Forecast:
    """The forecast of a backend that stores weights unchanged and needs only the plans' own buffers."""
    weights = {name: w for plan in plans.values() for name, w in plan.weights().items()}
    return Forecast(sum(w.n_bytes for w in weights.values()), dict.fromkeys(plans, 0))


def no_tape(backend: Backend) -> RequestError:
    """The error of a backend that records no tape."""
    name = backend.capabilities().name
    return RequestError(
        f"backend {name!r} has no tape to record; a GPU backend records one", field="record_tape"
    )


def check_unit(group: str, data: bytes, want: int, *, backend: str) -> None:
    """Raises BackendError unless `data` has the size of one unit of the group."""
    if len(data) != want:
        raise BackendError(
            f"a unit of state {group!r} has {len(data):,} bytes, expected {want:,}; "
            "was it saved with another kv_type?",
            backend=backend,
        )


def check_weight_types(weights: Sequence[Weight], capabilities: Capabilities) -> None:
    """Raises BackendError with the first weight whose type has no kernel on this backend."""
    for weight in weights:
        if weight.type not in capabilities.weight_types:
            known = ", ".join(sorted(capabilities.weight_types))
            raise BackendError(
                f"{weight.name}: backend {capabilities.name!r} has no kernel for {weight.type}, only for "
                f"{known}; choose another backend, or a file quantized to one of these",
                backend=capabilities.name,
            )


def reason_against(plan: Plan, capabilities: Capabilities) -> str:
    """The reason why this backend cannot run the plan; "" if it can."""
    missing = sorted({op.name for op in plan.ops} - capabilities.ops)
    if missing:
        return f"it has no kernel for the op {', '.join(missing)}"
    return (
        reason_against_dtypes(plan, capabilities.dtypes)
        or _reason_against_slots(plan, {"f32", capabilities.slot_type})
        or capabilities.refuses(plan)
    )


def _reason_against_slots(plan: Plan, known: set[str]) -> str:
    other = next((s.kv_type for s in plan.states if s.kind == "adapter" and s.kv_type not in known), "")
    return f"it has no kernel for adapters of {other}; it has {', '.join(sorted(known))}" if other else ""


def reason_against_dtypes(plan: Plan, known: frozenset[str]) -> str:
    """The reason against the first activation of a dtype outside `known`; "" if there is none."""
    if {view.buffer.dtype for op in plan.ops for _, view in op.views()} <= known:
        return ""
    views = (view for op in plan.ops for _, view in op.views())
    other = next(view for view in views if view.dtype not in known)
    return (
        f"it has no kernel for activations of {other.dtype}, as {other} is; it has {', '.join(sorted(known))}"
    )


def check_plan(plan: Plan, capabilities: Capabilities) -> None:
    """Raises BackendError if this backend cannot run the plan, before a weight is loaded."""
    reason = reason_against(plan, capabilities)
    if reason:
        raise BackendError(
            f"backend {capabilities.name!r} cannot run this model: {reason}. Choose another backend",
            backend=capabilities.name,
        )
