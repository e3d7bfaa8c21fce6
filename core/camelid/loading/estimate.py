"""What a model will take in memory, before anything is opened: the sums that loading would come to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from camelid.backends.base import Forecast, PoolSize
from camelid.backends.common.results import result_bytes
from camelid.engine.programs import DECODE, MIXED, Limits
from camelid.loading.start import check_context, make_plan, make_state
from camelid.model.arch import Model
from camelid.model.facts import at_context
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan
from camelid.plan.stages import layer_ranges, split
from camelid.plan.weights import Weight

Forecaster: TypeAlias = Callable[[Mapping[str, Plan], Mapping[str, PoolSize]], Forecast]
PROCESS_BYTES = 56_000_000  # resident after loading a model of next to no size, on Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one device by use. `states` and `scratch` are by state group and by entry; `weight_types` are
    those of its weights.

    `process` is Python with its modules, as measured once; a large vocabulary adds to it. A backend that says
    what it takes, as cpu does, counts its packed weights, and results and kernels' own memory as scratch.

    Not counted: drivers and pipelines; padding (webgpu: buffers to 16 bytes, tensors of state to 256,
    quantized rows of an odd number of blocks by 2); 4 MiB through which webgpu loads. The reference has no
    arena: it makes its buffers as it goes, and keeps up to 160 MiB of decoded weights.
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


def as_stored(plans: Mapping[str, Plan], _: Mapping[str, PoolSize]) -> Forecast:
    """For a backend that says nothing: weights as they are, and nothing beside the plans' own buffers."""
    return Forecast(sum(w.n_bytes for w in _weights(plans)), dict.fromkeys(plans, 0))


def estimate_memory(
    model: Model,
    *,
    context: int | None = None,
    limits: Limits | None = None,
    fused: Collection[str] = (),
    kv_type: str = "f32",
    depth: int = 1,
    cuts: tuple[int, ...] = (),
    forecasters: Sequence[Forecaster] = (as_stored,),
) -> list[MemoryEstimate]:
    """What loading takes: `context` rows a sequence (None: as `load` chooses), with a backend's rewrites.

    One footprint for each device of a model that is cut before the layers of `cuts`, each by its forecaster:
    a backend's own, where it has one. The first device's has the process. `depth` steps may be in flight:
    groups with a window keep the rows that these have at most. Reads no weights, so that they need not exist.
    RequestError for a context that the model does not have, and for a `kv_type` that does not fit it.
    """
    rows = check_context(context, model)
    limits, model = (limits or Limits()).at_context(rows), at_context(model, rows)
    layers = layer_ranges(cuts, len(model.spec.layers))
    plans = {
        entry: split(make_plan(model, entry, limits, fused, kv_type=kv_type, cuts=cuts), layers)
        for entry in (DECODE, MIXED)
    }
    stages = [dict(zip(plans, parts, strict=True)) for parts in zip(*plans.values(), strict=True)]
    pools = make_state(model, limits, kv_type, depth=depth).sizes()
    first, *others = (
        _footprint(stage, pools, limits, forecaster)
        for stage, forecaster in zip(stages, forecasters, strict=True)
    )
    return [replace(first, process=PROCESS_BYTES), *others]


def _footprint(
    plans: Mapping[str, Plan], pools: Mapping[str, PoolSize], limits: Limits, forecaster: Forecaster
) -> MemoryEstimate:
    """Of the device that runs these plans. It has every page table, since each step tells of all."""
    own = forecaster(plans, pools)
    return MemoryEstimate(
        context=limits.context,
        parallel=limits.parallel,
        weights=own.weights,
        weight_types=frozenset(w.type for w in _weights(plans)),
        states={s.name: s.unit_bytes * pools[s.name].units for s in plans[DECODE].states},
        page_tables=sum(_table_bytes(pool) for pool in pools.values()),
        scratch={entry: plan_arena(plan).n_bytes + own.programs[entry] for entry, plan in plans.items()},
        steps=sum(_step_bytes(plan) for plan in plans.values()),
    )


def _weights(plans: Mapping[str, Plan]) -> Collection[Weight]:
    return {name: w for plan in plans.values() for name, w in plan.weights().items()}.values()


def _table_bytes(pool: PoolSize) -> int:
    return 4 * pool.table_rows * pool.table_cols


def _step_bytes(plan: Plan) -> int:
    """The step's words, and one result a row of output."""
    return 4 * plan.layout.n_words + result_bytes(plan, plan.key.capacity.outputs)
