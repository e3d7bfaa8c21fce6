"""Memory estimates of a model before loading, per device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from camelid.backends.base import Forecast, PoolSize, stored_forecast
from camelid.backends.common.results import result_bytes
from camelid.engine.programs import Limits
from camelid.loading.deployment import Deployment
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan
from camelid.plan.weights import Weight

Forecaster: TypeAlias = Callable[[Mapping[str, Plan], Mapping[str, PoolSize]], Forecast]
PROCESS_BYTES = 56_000_000  # resident size of the process with a tiny model, on Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one device, by use. `states` and `scratch` are by state group and by entry.

    `weight_types` are the types of the device's weights. `page_tables` includes a backend's own tables of
    state. A program with row buckets has scratch for each. `process` is Python with its modules, measured
    once; a large vocabulary adds to it. A backend with its own forecast counts weights in its own layout, and
    as scratch also its kernels' memory: cpu's results, webgpu's sums of the runs of attention on a GPU.

    Not counted: drivers and pipelines; padding of webgpu's state (tensors to 256 bytes, quantized rows of an
    odd number of blocks by 2); its 4 MiB staging buffer. The reference has no arena: it allocates buffers as
    it runs, and keeps up to 160 MiB of decoded weights.
    """

    context: int
    parallel: int
    weights: int
    weight_types: frozenset[str]
    states: Mapping[str, int]
    page_tables: int
    scratch: Mapping[str, int]
    steps: int
    process: int = 0

    @property
    def total(self) -> int:
        return (
            self.weights + sum(self.states.values()) + self.page_tables
            + sum(self.scratch.values()) + self.steps + self.process
        )  # fmt: skip


def estimate_memory(
    deployment: Deployment,
    forecasters: Sequence[Forecaster] = (stored_forecast,),
    parts: Sequence[Callable[[Plan], Plan]] = (lambda plan: plan,),
) -> list[MemoryEstimate]:
    """Memory of a deployment after loading: one estimate per device, each by the forecaster of its backend.

    `parts` are the parts of a plan that the devices run. The first device's estimate includes the process.
    Reads no weights, so the weights need not exist.
    """
    plans = dict(_loaded_plans(deployment))
    stages = [{name: part(plan) for name, plan in plans.items()} for part in parts]
    pools = deployment.kv_cache().sizes()
    first, *others = (
        _footprint(stage, pools, deployment.limits, forecaster)
        for stage, forecaster in zip(stages, forecasters, strict=True)
    )
    return [replace(first, process=PROCESS_BYTES), *others]


def _loaded_plans(deployment: Deployment) -> Iterator[tuple[str, Plan]]:
    """The plans compiled at load: by the program's name, smaller row buckets with their rows."""
    for program in deployment.loaded:
        *smaller, largest = deployment.plans(program)
        yield from ((f"{program}_{plan.key.capacity.rows}", plan) for plan in smaller)
        yield program, largest


def _footprint(
    plans: Mapping[str, Plan], pools: Mapping[str, PoolSize], limits: Limits, forecaster: Forecaster
) -> MemoryEstimate:
    """The estimate of the device that runs these plans.

    It has every page table, since each step updates all.
    """
    forecast = forecaster(plans, pools)
    return MemoryEstimate(
        context=limits.context,
        parallel=limits.parallel,
        weights=forecast.weights,
        weight_types=frozenset(w.type for w in _weights(plans)),
        states={s.name: s.unit_bytes * pools[s.name].units for s in next(iter(plans.values())).states},
        page_tables=sum(_table_bytes(pool) for pool in pools.values()) + forecast.tables,
        scratch={entry: plan_arena(plan).n_bytes + forecast.programs[entry] for entry, plan in plans.items()},
        steps=sum(_step_bytes(plan) for plan in plans.values()),
    )


def _weights(plans: Mapping[str, Plan]) -> Collection[Weight]:
    return {name: w for plan in plans.values() for name, w in plan.weights().items()}.values()


def _table_bytes(pool: PoolSize) -> int:
    return 4 * pool.table_rows * pool.table_cols


def _step_bytes(plan: Plan) -> int:
    """Bytes of a step's words, and of one result per output row."""
    return 4 * plan.layout.n_words + result_bytes(plan, plan.key.capacity.outputs)
