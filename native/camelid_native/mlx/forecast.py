"""Memory of plans before it is allocated: exact for weights and state, a bound for what attention gathers."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.backends.base import Forecast, PoolSize
from camelid.plan.plan import Op, Plan
from camelid_native.mlx.layouts import kept_bytes
from camelid_native.mlx.states import table_bytes

GATHERS, TAIL_GATHERS = 3, 1  # copies of the gathered rows: as stored, as float32, masked; of a tail besides


def forecast_of(
    plans: Mapping[str, Plan], pools: Mapping[str, PoolSize], *, is_gpu: bool = False
) -> Forecast:
    """Bytes of weights as arrays, and of the greediest attention of each program; a GPU's reads in place."""
    weights = {name: w for plan in plans.values() for name, w in plan.weights().items()}
    states = {state.name: state for plan in plans.values() for state in plan.states}
    programs = {name: 0 if is_gpu else _gathered_bytes(plan, pools) for name, plan in plans.items()}
    n_bytes = sum(kept_bytes(weight, has_blocks=is_gpu) for weight in weights.values())
    return Forecast(n_bytes, programs, table_bytes(list(states.values())))


def _gathered_bytes(plan: Plan, pools: Mapping[str, PoolSize]) -> int:
    return max((_of_attention(op, plan, pools) for op in plan.ops if op.name == "attention"), default=0)


def _of_attention(op: Op, plan: Plan, pools: Mapping[str, PoolSize]) -> int:
    spec = plan.state(op.state("state").group)
    n_keys = pools[spec.name].table_cols * spec.unit_rows
    n_values = sum(cols for _, cols in spec.tensors) + op.integer("n_heads")
    n_copies = GATHERS + TAIL_GATHERS * op.has("tail")
    return n_copies * 4 * plan.rows[op.view("q").rows] * n_keys * n_values
