"""The check before loading that a model fits its devices' free memory, and the ways out if it does not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from camelid.backends.base import Backend
from camelid.backends.registry import names_of, open_backend, processor_name
from camelid.backends.staged.backend import StagedBackend
from camelid.errors import CamelidError, OutOfMemoryError
from camelid.loading.deployment import Deployment
from camelid.loading.devices import Device, devices_of
from camelid.loading.estimate import MemoryEstimate
from camelid.loading.forecast import estimate_devices, predict
from camelid.loading.options import LoadOptions
from camelid.model.cuts import can_cut

KV_TYPES = ("f16", "q8_0", "q4_0")  # smaller ones, the most exact first
LEAST_CONTEXT = 256


@dataclass(frozen=True, slots=True)
class Crowded:
    """A device with less free memory than its part of the model takes."""

    device: Device
    want: MemoryEstimate
    free: int

    @property
    def message(self) -> str:
        want, can = self.want, self.device.backend.capabilities()
        uses = {
            "weights": want.weights,
            "state": sum(want.states.values()) + want.page_tables,
            "programs": sum(want.scratch.values()) + want.steps,
        }
        parts = ", ".join(f"{name} {n:,}" for name, n in uses.items())
        need = f"{self.device.part} need {on_device(want):,} bytes ({parts})"
        return f"{can.name}: {need}, and {can.device} has {self.free:,} free"


def on_device(estimate: MemoryEstimate) -> int:
    """The estimate's bytes on the device."""
    return estimate.total - estimate.process


def check_fit(backend: Backend, deployment: Deployment, options: LoadOptions) -> None:
    """Raises OutOfMemoryError for a device with less free memory than its part of the model will take."""
    devices = devices_of(backend, len(deployment.model.spec.layers))
    found = crowded(devices, deployment)
    if found is None:
        return
    ways = [*_options_that_fit(devices, deployment, options)]
    has_several = options.tensor_parallel > 1 or options.pipeline_parallel > 1
    if has_several:
        ways.append("more GPUs")
    elif found.device.name in names_of("gpu"):
        ways += [*_layers_that_fit(found, deployment, options), f"backend={processor_name()!r}"]
    raise OutOfMemoryError(
        f"{found.message}; use {', or '.join(ways or ['a smaller model'])}",
        want_bytes=on_device(found.want), limit_bytes=found.free,
    )  # fmt: skip


def crowded(devices: Sequence[Device], deployment: Deployment) -> Crowded | None:
    """The first device that the model does not fit; None if it fits, or if no device reports its memory."""
    frees = [device.backend.free_memory() for device in devices]
    if not any(free is not None for free in frees):
        return None
    estimates = estimate_devices(deployment, devices)
    each = zip(devices, estimates, frees, strict=True)
    return next(
        (Crowded(d, e, free) for d, e, free in each if free is not None and on_device(e) > free), None
    )


def _options_that_fit(
    devices: Sequence[Device], deployment: Deployment, options: LoadOptions
) -> Iterator[str]:
    """The first smaller `kv_type`, and the largest half of the context, with which the model fits."""

    def fits(**change: object) -> bool:
        with suppress(CamelidError):  # a kv_type that the model does not allow
            other = Deployment.of(deployment.model, replace(options, **change), deployment.capabilities)
            return crowded(devices, other) is None
        return False

    kv_type = next((kv_type for kv_type in _smaller(options.kv_type) if fits(kv_type=kv_type)), None)
    if kv_type:
        yield f"kv_type={kv_type!r} (--kv-type {kv_type})"
    context = deployment.limits.context // 2
    while context >= LEAST_CONTEXT and not fits(context=context):
        context //= 2
    if context >= LEAST_CONTEXT:
        yield f"context={context} (-c {context})"


def _smaller(kv_type: str) -> tuple[str, ...]:
    """Types of the KV cache that may take less than this one."""
    return KV_TYPES[KV_TYPES.index(kv_type) + 1 :] if kv_type in KV_TYPES else KV_TYPES


def _layers_that_fit(found: Crowded, deployment: Deployment, options: LoadOptions) -> Iterator[str]:
    """The most layers that fit the device, the rest on the processor."""
    n_layers, model = len(deployment.model.spec.layers), deployment.model
    cuts = [cut for cut in range(n_layers, 0, -1) if can_cut(model.spec, cut)]  # few layers on the GPU first

    def want(cut: int) -> int:
        whole = StagedBackend([open_backend(processor_name()), found.device.backend], (cut,), n_layers)
        return on_device(predict(model, whole, devices_of(whole, n_layers), options)[1])

    with suppress(CamelidError):  # the processor's backend is missing, or cannot run its part
        n_fitting = bisect_right(cuts, found.free, key=want)
        if n_fitting:
            n = n_layers + 1 - cuts[n_fitting - 1]
            yield f"gpu_layers={n} (-ngl {n})"
