"""The choice of a backend: by name, by `auto`, by layers split with a GPU, by stages, or by shares."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from camelid.backends.base import Backend, OpenSpec
from camelid.backends.common.gpus import has_driver, may_have_gpu
from camelid.backends.proof.verdicts import verdict
from camelid.backends.registry import (
    auto_names,
    names_of,
    names_with,
    open_backend,
    open_parallel,
    oracle_name,
    probe,
    processor_name,
    row_of,
)
from camelid.backends.staged.backend import StagedBackend
from camelid.errors import BackendError, OutOfMemoryError, RequestError
from camelid.loading.deployment import Deployment
from camelid.loading.options import LoadOptions
from camelid.loading.several import numbers_for, several_backend, shares_of
from camelid.model.arch import Model
from camelid.model.cuts import cut_for, even_cuts
from camelid.model.spec import ModelSpec
from camelid.plan.stages import row_bytes


@dataclass(frozen=True, slots=True)
class ChosenBackend:
    """An open backend, the model's deployment on it, and a note.

    The note states the backend's device, and the reasons against other backends.
    """

    backend: Backend
    deployment: Deployment
    note: str


OpenStages = Callable[[], Awaitable[Sequence[Backend]]]  # the backends of a model's stages, not opened


async def choose_backend(
    options: LoadOptions, model: Model, stages: OpenStages | None = None
) -> ChosenBackend:
    """Opens the backend of the load options, or those of the stages of a model."""
    if options.tensor_parallel > 1:
        return await open_shares(options, model, has_stages=bool(stages))
    if stages:
        return await open_stages(options, await stages(), model)
    if options.pipeline_parallel > 1:
        name, n = several_backend(options, "pipeline_parallel"), options.pipeline_parallel
        parts, stage = [open_backend(name) for _ in range(n)], replace(options, backend=name)
        return await open_stages(stage, parts, model, numbers_for(name, options.adapter, n))
    if options.gpu_layers is not None:
        return await open_layers(options, options.gpu_layers, model)
    if options.backend == "auto":
        return await _open_auto(options, model)
    backend = await open_named(options.backend, options.adapter, options.threads, options.activations)
    return await _deploy(backend, options, model, _describe(backend))


async def _deploy(backend: Backend, options: LoadOptions, model: Model, note: str) -> ChosenBackend:
    """Plans the model's deployment on an open backend; closes the backend if the plan fails."""
    try:
        return ChosenBackend(backend, Deployment.of(model, options, backend.capabilities()), note)
    except BaseException:
        await backend.close()
        raise


async def _open_auto(options: LoadOptions, model: Model) -> ChosenBackend:
    """Opens the first suitable backend of `auto`, else the oracle."""
    reasons: dict[str, str] = {}
    for name in auto_names():
        chosen = await _try_backend(name, options, model, reasons)
        if chosen:
            return chosen
    if sys.platform == "emscripten":  # a page has no NumPy, and so no oracle
        told = "; ".join(_against(reasons))
        raise BackendError(f"no backend can run this model here: {told}", backend="auto")
    try:
        fallback = await open_named(oracle_name(), activations=options.activations)
    except RequestError as error:
        raise RequestError("; ".join([error.message, *_against(reasons)]), **error.facts) from error
    return await _deploy(fallback, options, model, "; ".join([_describe(fallback), *_against(reasons)]))


def _against(reasons: Mapping[str, str]) -> list[str]:
    """The reasons against backends by name; backends with one reason together."""
    names = {reason: [name for name, own in reasons.items() if own == reason] for reason in reasons.values()}
    return [f"not {', '.join(each)}: {reason}" for reason, each in names.items()]


def _absence(name: str) -> str:
    """The reason against a backend without a device here; "" if it may have one. Loads no driver."""
    if has_device(name):
        return ""
    drivers = row_of(name).drivers if may_have_gpu() else ()
    return f"this machine has no GPU{' of ' * bool(drivers)}{' or '.join(drivers)}"


def has_device(name: str) -> bool:
    """False for a backend of GPUs whose device files are absent. Loads no driver."""
    row = row_of(name)
    return row.role != "gpu" or (has_driver(row.drivers) if row.drivers else may_have_gpu())


def likely_gpu() -> str:
    """The first GPU backend of `auto` with a device and its libraries on this machine, else the last one."""
    *others, last = _auto_gpus()
    return next((name for name in others if has_device(name) and probe(name)), last)


def _auto_gpus() -> list[str]:
    return [name for name in auto_names() if row_of(name).role == "gpu"]


async def _try_backend(
    name: str, options: LoadOptions, model: Model, reasons: dict[str, str]
) -> ChosenBackend | None:
    """The open backend; or None, with one more reason, if it cannot run the model or fails its gate."""
    row = row_of(name)
    if reason := _absence(name):
        reasons[name] = reason
        return None
    threads = options.threads if "threads" in row.options else None
    open_one = partial(open_named, name, options.adapter, threads, options.activations)
    try:
        backend = await open_one()
    except (BackendError, OutOfMemoryError) as error:
        reason = error.message.removeprefix(f"{name}: ")
    except RequestError as error:
        if error.field not in ("activations", "adapter"):
            raise
        reason = error.message
    except (ImportError, OSError) as error:  # a package or a driver library that does not load
        reason = f"{type(error).__name__}: {error}"
    else:
        async with AsyncExitStack() as opened:
            opened.push_async_callback(backend.close)
            deployment = Deployment.of(model, options, backend.capabilities())
            reason = deployment.reason_against() or await verdict(backend, open_one)
            if not reason:
                opened.pop_all()
                return ChosenBackend(backend, deployment, "; ".join([_describe(backend), *_against(reasons)]))
    reasons[name] = reason
    return None


async def open_named(
    name: str,
    adapter: str = "",
    threads: int | None = None,
    activations: str | None = None,
    *,
    compiles_all: bool = False,
) -> Backend:
    """Opens a backend by name; `compiles_all` as in `OpenSpec`.

    Raises RequestError for an adapter, threads or activations that it does not accept.
    """
    backend = open_backend(name)
    _check_options(name, adapter, threads)
    spec = OpenSpec(
        adapter=adapter, threads=threads, activations=activations or "", compiles_all=compiles_all
    )
    await backend.open(spec)
    await _check_activations(backend, activations)
    return backend


async def _check_activations(backend: Backend, wanted: str | None) -> None:
    """Closes the backend and raises RequestError if it does not have the wanted activations."""
    can = backend.capabilities()
    if wanted not in (None, can.activations):
        await backend.close()
        raise RequestError(
            f"activations are {wanted!r}, but backend {can.name!r} has {can.activations!r} only; omit the "
            "option, or choose another backend",
            field="activations",
        )


def _check_options(name: str, adapter: str, threads: int | None, collective: str | None = None) -> None:
    """Raises RequestError for an option that the backend does not accept."""
    options = row_of(name).options
    if adapter and "adapter" not in options:
        raise RequestError(
            f"adapter is {adapter!r}, but backend {name!r} has no adapters; only "
            f"{', '.join(names_with('adapter'))} have",
            field="adapter",
        )
    if threads is not None and "threads" not in options:
        raise RequestError(
            f"threads is {threads}, but backend {name!r} has no threads to set; it is for "
            f"{', '.join(names_with('threads'))}",
            field="threads",
        )
    if collective and "collective" not in options:
        raise RequestError(
            f"collective is {collective!r}, but backend {name!r} has one way to sum; it is for "
            f"{', '.join(names_with('collective'))}",
            field="collective",
        )


async def open_layers(options: LoadOptions, gpu_layers: int, model: Model) -> ChosenBackend:
    """Opens the backends of a split: the last `gpu_layers` layers on a GPU, the others on the processor.

    Raises RequestError if the model cannot be cut there, or if the backend is no GPU.
    """
    gpu, reasons = await _proven_gpu(options) if gpu_layers else (options.backend, [])
    names, cuts = layer_devices(model.spec, gpu, gpu_layers)
    n_layers = len(model.spec.layers)
    if not cuts:
        backend = await open_named(names[0], options.adapter, options.threads, options.activations)
        note = f"{_describe(backend)}, which has all {n_layers} layers"
        return await _deploy(backend, options, model, "; ".join([note, *reasons]))
    how = (("", options.threads, options.activations), (options.adapter, None, options.activations))
    async with AsyncExitStack() as opened:
        parts: list[Backend] = []
        for name, settings in zip(names, how, strict=True):
            parts.append(await open_named(name, *settings))
            opened.push_async_callback(parts[-1].close)
        chosen = _staged(parts, cuts, options, model)
        opened.pop_all()
    return replace(chosen, note="; ".join([chosen.note, *reasons]))


async def _proven_gpu(options: LoadOptions) -> tuple[str, list[str]]:
    """The named GPU backend; for `auto` the first that passes its gate, else the last, and the reasons."""
    if options.backend != "auto":
        return options.backend, []
    *others, last = _auto_gpus()
    reasons: dict[str, str] = {}
    for name in filter(has_device, others):
        reason = await _gate_reason(name, options)
        if not reason:
            return name, _against(reasons)
        reasons[name] = reason
    return last, _against(reasons)


async def _gate_reason(name: str, options: LoadOptions) -> str:
    """The reason against a backend: it does not open, or fails its gate; "" if it passes."""
    open_one = partial(open_named, name, options.adapter, None, options.activations)
    try:
        backend = await open_one()
    except (BackendError, OutOfMemoryError, RequestError, ImportError, OSError) as error:
        return str(error).removeprefix(f"{name}: ")
    try:
        return await verdict(backend, open_one)
    finally:
        await backend.close()


async def open_stages(
    options: LoadOptions, parts: Sequence[Backend], model: Model, adapters: Sequence[str] = ()
) -> ChosenBackend:
    """Opens the backends of stages, with about equal bytes of weights on each; all have one adapter, or
    each its own of `adapters`.

    Raises RequestError for a model that cannot be cut so, and for `gpu_layers`.
    """
    if options.gpu_layers is not None:
        raise RequestError(
            f"gpu_layers is {options.gpu_layers}, but the model is cut into {len(parts)} stages; omit it",
            field="gpu_layers",
        )
    cuts = even_cuts(model, len(parts), "pipeline_parallel" if adapters else "stages")
    _check_options(stage_backend(options), options.adapter, options.threads)
    async with AsyncExitStack() as opened:
        for part, adapter in zip(parts, adapters or [options.adapter] * len(parts), strict=True):
            spec = OpenSpec(adapter=adapter, threads=options.threads, activations=options.activations or "")
            await part.open(spec)
            await _check_activations(part, options.activations)
            opened.push_async_callback(part.close)
        chosen = _staged(parts, cuts, options, model)
        opened.pop_all()
    return chosen


async def open_shares(options: LoadOptions, model: Model, *, has_stages: bool = False) -> ChosenBackend:
    """Opens a tensor-parallel backend.

    Raises RequestError for a model that cannot be divided so, a backend without several devices, and other
    ways to divide the model.
    """
    given = {"gpu_layers": options.gpu_layers is not None, "pipeline_parallel": options.pipeline_parallel > 1}
    other = next((name for name, is_given in {**given, "stages": has_stages}.items() if is_given), "")
    if other:
        raise RequestError(
            f"tensor_parallel is {options.tensor_parallel}, but {other} is given too; omit one of them",
            field="tensor_parallel",
        )
    name = several_backend(options, "tensor_parallel")
    _check_options(name, options.adapter, options.threads, options.collective)
    backend = open_parallel(name, options.tensor_parallel, shares_of(model, options))
    adapter = ",".join(numbers_for(name, options.adapter, options.tensor_parallel))
    activations, collective = options.activations or "", options.collective or ""
    await backend.open(OpenSpec(adapter=adapter, activations=activations, collective=collective))
    await _check_activations(backend, options.activations)
    return await _deploy(backend, options, model, _describe(backend))


def stage_backend(options: LoadOptions) -> str:
    """The backend of every stage: the named one, or the processor, which every machine has."""
    return processor_name() if options.backend == "auto" else options.backend


def _staged(
    parts: Sequence[Backend], cuts: Sequence[int], options: LoadOptions, model: Model
) -> ChosenBackend:
    backend = StagedBackend(parts, cuts, len(model.spec.layers))
    deployment = Deployment.of(model, options, backend.capabilities())
    return ChosenBackend(backend, deployment, _split_note(backend, deployment))


def unopened(spec: ModelSpec, backend: str, gpu_layers: int | None) -> Backend:
    """The backend of a name or of a layer split, not opened: for forecasts."""
    if gpu_layers is None:
        return open_backend(backend)
    names, cuts = layer_devices(spec, backend, gpu_layers)
    parts = [open_backend(name) for name in names]
    return StagedBackend(parts, cuts, len(spec.layers)) if cuts else parts[0]


def unopened_several(model: Model, options: LoadOptions) -> Backend:
    """The backend of several devices, not opened: for forecasts. Raises as `choose_backend`."""
    if options.tensor_parallel > 1:
        name = several_backend(options, "tensor_parallel")
        return open_parallel(name, options.tensor_parallel, shares_of(model, options))
    name, n = several_backend(options, "pipeline_parallel"), options.pipeline_parallel
    cuts = even_cuts(model, n, "pipeline_parallel")
    return StagedBackend([open_backend(name) for _ in range(n)], cuts, len(model.spec.layers))


def layer_devices(spec: ModelSpec, backend: str, gpu_layers: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names of the one or two backends with layers, and the cut between them. Raises as `open_layers`."""
    cut, processor = cut_for(spec, gpu_layers), processor_name()
    gpu = _gpu_of(backend, gpu_layers)
    if 0 < cut <= len(spec.layers):
        return (processor, gpu), (cut,)
    return (gpu if cut == 0 else processor,), ()


def _gpu_of(backend: str, gpu_layers: int) -> str:
    """The GPU backend for the layers: the named one, else the likely one of this machine."""
    gpus = names_of("gpu")
    gpu = likely_gpu() if backend == "auto" else backend
    if gpu in gpus or (gpu == processor_name() and not gpu_layers):
        return gpu
    raise RequestError(
        f"gpu_layers is {gpu_layers}, but backend {backend!r} is no GPU; leave the backend out or name "
        f"one of {', '.join(gpus)}",
        field="gpu_layers",
    )


def _split_note(backend: StagedBackend, deployment: Deployment) -> str:
    """Describes a split: "12 of 30 layers and the head on webgpu (...), ..., boundary ... kB a row"."""
    *_, last = deployment.plan(deployment.loaded[-1]).stages
    each = [(backend.part(i), stage.capabilities()) for i, stage in enumerate(backend.backends)]
    parts = [f"{part} on {can.name} ({can.device})" for part, can in reversed(each)]
    return f"{', '.join(parts)}, boundary {row_bytes(last.inputs) / 1000:.3g} kB a row"


def _describe(backend: Backend) -> str:
    """Name and device of an open backend."""
    capabilities = backend.capabilities()
    return f"{capabilities.name} on {capabilities.device}"
