"""From an opened model to a running engine: choose a backend, load, compile."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from camelid.backends.base import Backend, Capabilities, OpenSpec, Program, check_plan, reason_against
from camelid.backends.common.gpus import may_have_gpu
from camelid.backends.proof.verdicts import verdict
from camelid.backends.registry import ADAPTERS, open_backend
from camelid.backends.staged.backend import StagedBackend
from camelid.engine.admission import check_depth, check_integer
from camelid.engine.allocation import PAGED
from camelid.engine.engine import StepEngine
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.programs import DECODE, MIXED, Limits, program_key
from camelid.engine.step_budget import rows_ahead
from camelid.errors import BackendError, RequestError
from camelid.loading.model_file import ModelFile, ModelName, open_model
from camelid.model.arch import Model
from camelid.model.cuts import cut_for
from camelid.model.decoder import PAGE_ROWS, declare_states, lower
from camelid.model.facts import at_context
from camelid.model.spec import ModelSpec
from camelid.plan.fuse import UNBOUNDED, fuse
from camelid.plan.plan import Plan
from camelid.plan.stages import row_bytes
from camelid.plan.weights import Weight

DEFAULT_CONTEXT = 4096
Progress: TypeAlias = Callable[[str, int, int], object]  # what is being done, which stage, of how many
AUTO = ("webgpu", "cpu")  # what to take unasked, the best first
GPUS = ("webgpu", *ADAPTERS)  # that take some of a model's layers, and leave the others to cpu
TAKES_ADAPTER, TAKES_THREADS = (*GPUS, "cpu"), ("cpu",)
STAGES = ("reading the header", "opening a backend", "loading weights", "compiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to run a model. `threads` are those of a CPU (None: all), `context` is rows a sequence, `parallel`
    sequences at once, `kv_type` one of `KV_TYPES`; all sequences together share `kv_rows` rows of it (None:
    enough for all). `gpu_layers` are on a GPU, the others on cpu (None: all on one backend)."""

    backend: str = "auto"
    adapter: str = ""
    threads: int | None = None
    gpu_layers: int | None = None
    context: int | None = None
    parallel: int = 4
    chunk: int = 64
    kv_type: str = "f32"
    kv_rows: int | None = None
    max_in_flight: int | None = None
    record_tape: bool = False


async def choose_backend(options: LoadOptions, model: Model, limits: Limits) -> tuple[Backend, str]:
    """An open backend, and a note that says which and why.

    `auto` takes the first of `AUTO` that is no software adapter, has kernels for all of the model and passes
    a short gate, else the reference.
    """
    if options.gpu_layers is not None:
        return await open_layers(options, options.gpu_layers, model, limits)
    if options.backend != "auto":
        backend = await open_named(options.backend, options.adapter, options.threads)
        return backend, _named(backend)
    reasons: list[str] = []
    for name in AUTO:
        backend = await _suitable(name, options, model, limits, reasons)
        if backend:
            return backend, "; ".join([_named(backend), *reasons])
    if sys.platform == "emscripten":  # a page has no NumPy, and so no reference
        raise BackendError(f"no backend can run this model here: {'; '.join(reasons)}", backend="auto")
    return (fallback := await open_named("reference")), "; ".join([_named(fallback), *reasons])


async def _suitable(
    name: str, options: LoadOptions, model: Model, limits: Limits, reasons: list[str]
) -> Backend | None:
    """The backend, open; None, and one more reason, if it cannot be had or should not be taken unasked."""
    if name == "webgpu" and not may_have_gpu():
        reasons.append("not webgpu: this machine has no GPU")
        return None
    threads = options.threads if name in TAKES_THREADS else None
    open_one = partial(open_named, name, options.adapter, threads)
    try:
        backend = await open_one()
    except BackendError as error:
        reason = error.message.removeprefix(f"{name}: ")
    except (ImportError, OSError) as error:  # a package or a driver library that does not load
        reason = f"{type(error).__name__}: {error}"
    else:
        reason = _reason_against(backend, model, limits, options.kv_type) or await verdict(backend, open_one)
        if not reason:
            return backend
        await backend.close()
    reasons.append(f"not {name}: {reason}")
    return None


async def open_named(name: str, adapter: str = "", threads: int | None = None) -> Backend:
    """A backend, opened. RequestError for an adapter or threads where there are none to choose from."""
    backend = open_backend(name)
    _check_taken(name, adapter, threads)
    await backend.open(OpenSpec(adapter=adapter, threads=threads))
    return backend


async def open_layers(
    options: LoadOptions, gpu_layers: int, model: Model, limits: Limits
) -> tuple[Backend, str]:
    """The last `gpu_layers` layers on a GPU and the others on cpu, and a note that says so.

    RequestError for a model that cannot be cut there, or a backend that is no GPU.
    """
    names, cuts = layer_devices(model.spec, options.backend, gpu_layers)
    n_layers = len(model.spec.layers)
    if not cuts:
        backend = await open_named(names[0], options.adapter, options.threads)
        return backend, f"{_named(backend)}, which has all {n_layers} layers"
    how = (("", options.threads), (options.adapter, None))
    async with AsyncExitStack() as opened:
        parts: list[Backend] = []
        for name, (adapter, threads) in zip(names, how, strict=True):
            parts.append(await open_named(name, adapter, threads))
            opened.push_async_callback(parts[-1].close)
        backend = StagedBackend(parts, cuts, n_layers)
        note = _split_note(backend, model, limits)
        opened.pop_all()
    return backend, note


def layer_devices(spec: ModelSpec, backend: str, gpu_layers: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names of the backends that the layers are on, one or two, and where the model is cut between them.

    RequestError as `open_layers`.
    """
    cut = cut_for(spec, gpu_layers)
    gpu = _gpu_of(backend, gpu_layers)
    if 0 < cut <= len(spec.layers):
        return ("cpu", gpu), (cut,)
    return (gpu if cut == 0 else "cpu",), ()


def _gpu_of(backend: str, gpu_layers: int) -> str:
    """The backend that takes the layers for a GPU. RequestError if the one that was named is none."""
    gpu = "webgpu" if backend == "auto" else backend
    if gpu in GPUS or (gpu == "cpu" and not gpu_layers):
        return gpu
    raise RequestError(
        f"gpu_layers is {gpu_layers}, but backend {backend!r} is no GPU; leave the backend out or name "
        f"one of {', '.join(GPUS)}",
        field="gpu_layers",
    )


def _split_note(backend: StagedBackend, model: Model, limits: Limits) -> str:
    """What runs where, and what passes between: 12 of 30 layers and the head on webgpu."""
    can = backend.capabilities()
    _, last = make_plan(model, DECODE, limits, can.fused, cuts=can.cuts).stages
    each = [(backend.part(i), one.capabilities()) for i, one in enumerate(backend.backends)]
    parts = [f"{part} on {found.name} ({found.device})" for part, found in reversed(each)]
    return f"{', '.join(parts)}, boundary {row_bytes(last.inputs) / 1000:.3g} kB a row"


def _check_taken(name: str, adapter: str, threads: int | None) -> None:
    """Nothing that was asked for is passed over."""
    known = ", ".join(TAKES_ADAPTER)
    if adapter and name not in TAKES_ADAPTER:
        raise RequestError(
            f"adapter is {adapter!r}, but backend {name!r} has no adapters; only {known} have",
            field="adapter",
        )
    if threads is not None and name not in TAKES_THREADS:
        raise RequestError(
            f"threads is {threads}, but backend {name!r} has no threads to set; it is for "
            f"{', '.join(TAKES_THREADS)}",
            field="threads",
        )


def _named(backend: Backend) -> str:
    capabilities = backend.capabilities()
    return f"{capabilities.name} on {capabilities.device}"


def _reason_against(backend: Backend, model: Model, limits: Limits, kv_type: str) -> str:
    capabilities = backend.capabilities()
    if capabilities.is_software:
        return f"{capabilities.device} is a software adapter (name the backend to use it all the same)"
    missing = {w.type for w in model.weights.values()} - capabilities.weight_types
    if missing:
        return f"it has no kernel for {', '.join(sorted(missing))}"
    most_bytes = capabilities.most_bytes
    plan = backend_plan(model, MIXED, limits, capabilities, kv_type)
    large = next((w for w in plan.weights().values() if w.n_bytes > most_bytes), None)
    if large:
        return f"{large.name} has {large.n_bytes:,} bytes, and it binds at most {most_bytes:,}"
    return reason_against(plan, capabilities)


def make_plan(
    model: Model,
    entry: str,
    limits: Limits,
    fused: Collection[str],
    *,
    most_bytes: int = UNBOUNDED,
    kv_type: str = "f32",
    cuts: tuple[int, ...] = (),
) -> Plan:
    """The plan of one entry, with the rewrites and the stages that a backend wants."""
    n_paged = sum(state.kind in PAGED for state in declare_states(model.spec, kv_type))
    key = program_key(entry, limits, PAGE_ROWS, n_paged=n_paged)
    return fuse(lower(model, key, kv_type, cuts=cuts), fused, most_bytes=most_bytes)


def backend_plan(model: Model, entry: str, limits: Limits, can: Capabilities, kv_type: str) -> Plan:
    """The plan of one entry, as a backend of these capabilities runs it."""
    most_bytes, cuts = can.most_bytes, can.cuts
    return make_plan(model, entry, limits, can.fused, most_bytes=most_bytes, kv_type=kv_type, cuts=cuts)


def make_state(
    model: Model, limits: Limits, kv_type: str, *, n_rows: int | None = None, depth: int = 1
) -> KVCacheManager:
    """The state of `limits.parallel` sequences, which share `n_rows` rows (None: enough for all of them)."""
    if n_rows is not None and n_rows < PAGE_ROWS:
        raise RequestError(f"kv_rows is {n_rows}, expected at least {PAGE_ROWS}, a page", field="kv_rows")
    return KVCacheManager(
        declare_states(model.spec, kv_type),
        context=limits.context,
        n_sequences=limits.parallel,
        n_pages=n_rows and n_rows // PAGE_ROWS,
        chunk=rows_ahead(limits.chunk, depth),
    )


def check_context(context: int | None, model: Model) -> int:
    """Rows a sequence: as asked, else the model's own up to 4096. RequestError if the model has fewer."""
    most = model.spec.context_length
    if context is None:
        return min(most, DEFAULT_CONTEXT)
    if not 1 <= context <= most:
        raise RequestError(
            f"context is {context}, expected 1 to {most}, the length that this model was built for",
            field="context", n_tokens=context, context_length=most,
        )  # fmt: skip
    return context


@dataclass(frozen=True, slots=True)
class RunningModel:
    """A model on a backend, ready for requests."""

    file: ModelFile
    backend: Backend
    note: str
    limits: Limits
    engine: StepEngine
    is_recorded: bool = False
    kv_type: str = "f32"
    _compiling: asyncio.Lock = field(default_factory=asyncio.Lock)

    def plan(self, entry: str) -> Plan:
        """The plan of an entry, as this backend runs it."""
        return backend_plan(self.file.model, entry, self.limits, self.backend.capabilities(), self.kv_type)

    async def compile(self, entry: str) -> None:
        """Compiles an entry's program if that has not happened yet."""
        async with self._compiling:  # two that ask at once compile once
            if entry in self.engine.programs:
                return
            self.engine.programs[entry] = await self.backend.compile(self.plan(entry))


async def start(model: ModelName, options: LoadOptions, progress: Progress | None = None) -> RunningModel:
    """Loads a model and compiles its entries. What was opened is closed again if anything fails."""
    report = progress or _silent
    report(STAGES[0], 0, len(STAGES))
    check_sizes(options)  # before anything is read
    limits = Limits(options.chunk, options.parallel)
    file = await open_model(model, progress=progress)
    context = check_context(options.context, file.model)
    limits = limits.at_context(context)
    file = replace(file, model=at_context(file.model, context))
    declare_states(file.model.spec, options.kv_type)  # refuses what does not fit before a backend is opened
    report(STAGES[1], 1, len(STAGES))
    backend, note = await choose_backend(options, file.model, limits)
    try:
        engine = await _prepare(file, backend, limits, options, report)
    except BaseException:
        await backend.close()
        raise
    report("ready", len(STAGES), len(STAGES))
    return RunningModel(file, backend, note, limits, engine, options.record_tape, options.kv_type)


def check_sizes(options: LoadOptions) -> None:
    """RequestError for a size that is no integer."""
    check_integer("parallel", options.parallel)
    check_integer("chunk", options.chunk)
    for name in ("context", "kv_rows", "threads", "gpu_layers"):
        if getattr(options, name) is not None:
            check_integer(name, getattr(options, name))


def _silent(what: str, stage: int, of: int) -> None:
    """No progress is shown."""


async def _prepare(
    file: ModelFile, backend: Backend, limits: Limits, options: LoadOptions, report: Progress
) -> StepEngine:
    model, can = file.model, backend.capabilities()
    plans = {entry: backend_plan(model, entry, limits, can, options.kv_type) for entry in (DECODE, MIXED)}
    for plan in plans.values():
        check_plan(plan, can)
    if options.record_tape:
        _record(backend)
    report(STAGES[2], 2, len(STAGES))
    weights = _union(plans.values())
    named = {part.source for w in weights for part in w.parts}  # a directory has other files too
    await backend.load(weights, {name: file.sources[name] for name in named & file.sources.keys()})
    depth = check_depth(options.max_in_flight, can)
    state = make_state(model, limits, options.kv_type, n_rows=options.kv_rows, depth=depth)
    await backend.allocate(state.states, state.sizes())
    report(STAGES[3], 3, len(STAGES))
    programs: dict[str, Program] = {}
    for entry, plan in plans.items():
        programs[entry] = await backend.compile(plan)
    return StepEngine(
        backend,
        programs,
        state,
        limits=limits,
        vocab_size=model.spec.vocab_size,
        max_in_flight=depth,
    )


def _union(plans: Collection[Plan]) -> list[Weight]:
    """Every weight of some plan, once."""
    return list({name: w for plan in plans for name, w in plan.weights().items()}.values())


def _record(backend: Backend) -> None:
    record = getattr(backend, "record", None)
    if record is None:
        name = backend.capabilities().name
        raise RequestError(f"backend {name!r} has no tape to save; use --backend webgpu", field="save_tape")
    record()
