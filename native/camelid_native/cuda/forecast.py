"""Memory of plans as it will be allocated, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.backends.base import Forecast, PoolSize
from camelid.backends.common.results import result_bytes
from camelid.plan.memory import plan_arena
from camelid.plan.plan import Plan
from camelid_native.cuda.kernel import Context
from camelid_native.cuda.lower import scratch_of
from camelid_native.cuda.program import memory_sizes
from camelid_native.cuda.states import table_bytes
from camelid_native.cuda.weights import books_bytes, device_bytes


def forecast_of(
    plans: Mapping[str, Plan], pools: Mapping[str, PoolSize], context: Callable[[Plan], Context]
) -> Forecast:
    """Bytes of weights in planes, of tables of state, and of scratch and padding."""
    weights = {name: w for plan in plans.values() for name, w in plan.weights().items()}
    books = books_bytes(weight.type for weight in weights.values())
    states = list({state.name: state for plan in plans.values() for state in plan.states}.values())
    programs = {name: _program_bytes(context(plan)) for name, plan in plans.items()}
    tables = table_bytes(states, pools)
    return Forecast(sum(map(device_bytes, weights.values())) + books, programs, tables)


def _program_bytes(context: Context) -> int:
    """Bytes of a program beside its arena, step and results."""
    plan = context.plan
    arena, scratch = plan_arena(plan).n_bytes, scratch_of(context).n_bytes
    own = arena + 4 * plan.layout.n_words + result_bytes(plan, plan.key.capacity.outputs)
    return sum(memory_sizes(plan, arena, scratch).values()) - own
