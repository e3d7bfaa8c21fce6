"""Memory forecasts of a model on backends that are not opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from camelid.backends.base import Backend, Forecast, PoolSize, stored_forecast
from camelid.backends.registry import auto_names, names_of, probe, processor_name
from camelid.errors import BackendError
from camelid.loading.choose import has_device, unopened, unopened_several
from camelid.loading.deployment import Deployment
from camelid.loading.devices import Device, devices_of
from camelid.loading.estimate import Forecaster, MemoryEstimate, estimate_memory
from camelid.loading.model_file import ModelName, open_model
from camelid.loading.options import LoadOptions
from camelid.model.arch import Model
from camelid.plan.plan import Plan


def predict(
    model: Model, whole: Backend, devices: Sequence[Device], options: LoadOptions
) -> list[MemoryEstimate]:
    """The memory estimate of each device."""
    deployment = Deployment.of(model, options, whole.capabilities())
    return estimate_devices(deployment, devices)


def estimate_devices(deployment: Deployment, devices: Sequence[Device]) -> list[MemoryEstimate]:
    """The memory estimate of each device of a deployment."""
    forecasters = [forecaster_of(device.backend) for device in devices]
    return estimate_memory(deployment, forecasters, [device.plan_of for device in devices])


def forecaster_of(backend: Backend) -> Forecaster:
    """The backend's own forecast if it has kernels for all weight types; else the stored weights' sizes."""
    known = backend.capabilities().weight_types

    def forecast(plans: Mapping[str, Plan], pools: Mapping[str, PoolSize]) -> Forecast:
        types = {w.type for plan in plans.values() for w in plan.weights().values()}
        return (backend.forecast if types <= known else stored_forecast)(plans, pools)

    return forecast


async def predict_file(name: ModelName, options: LoadOptions) -> tuple[int, int]:
    """Bytes that a model will take without the process: in the machine's memory, and on GPUs.

    Reads headers only, after the download of a hub id. Raises as `start` does before it loads weights.
    """
    options.check()
    model = (await open_model(name)).model
    whole = likely_backend(model, options)
    devices = devices_of(whole, len(model.spec.layers))
    sizes = [each.total - each.process for each in predict(model, whole, devices, options)]
    on_gpus = sum(size for size, device in zip(sizes, devices, strict=True) if device.name in names_of("gpu"))
    return sum(sizes) - on_gpus, on_gpus


def likely_backend(model: Model, options: LoadOptions) -> Backend:
    """The backend of the options, not opened; for `auto` its first choice on this machine."""
    if options.tensor_parallel > 1 or options.pipeline_parallel > 1:
        return unopened_several(model, options)
    if options.backend != "auto" or options.gpu_layers is not None:
        return unopened(model.spec, options.backend, options.gpu_layers)
    best = next(name for name in auto_names() if has_device(name) and probe(name))
    try:
        return unopened(model.spec, best, None)
    except BackendError:  # its package is missing, and so `auto` takes another
        return unopened(model.spec, processor_name(), None)
