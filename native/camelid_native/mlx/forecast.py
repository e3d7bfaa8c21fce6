"""Memory of plans before it is allocated: exact for weights and state, a bound for what ops hold besides.

Of what a GPU's ops hold besides their views, one op's is counted, the greediest. Metal frees arrays when a
group of ops has ended, so that a group may hold several: only a Mac can tell how many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.backends.base import Forecast, PoolSize
from camelid.plan.op_rows_adapters import LOW_RANK
from camelid.plan.plan import Op, Plan
from camelid_native.mlx.layouts import kept_bytes
from camelid_native.mlx.metal.attention import MOST_SPLIT_ROWS, SPLIT
from camelid_native.mlx.metal.products import MOST_FEW
from camelid_native.mlx.states import table_bytes

TERM_COPIES = 3  # of a gathered term: its indices, its floats, and these with zeros behind the rank
GATHERS, TAIL_GATHERS = 3, 1  # copies of the gathered rows: as stored, as float32, masked; of a tail besides
ORDER_WORDS = 4  # of a pair of a row and a slot: its expert, twice, and its place in the order, twice


def forecast_of(
    plans: Mapping[str, Plan], pools: Mapping[str, PoolSize], *, is_gpu: bool = False
) -> Forecast:
    """Bytes of weights as arrays, and of what the greediest op of each program holds besides its views."""
    weights = {name: w for plan in plans.values() for name, w in plan.weights().items()}
    states = {state.name: state for plan in plans.values() for state in plan.states}
    held = OF_GPU if is_gpu else OF_CPU
    programs = {
        name: max((held[op.name](op, plan, pools) for op in plan.ops if op.name in held), default=0)
        for name, plan in plans.items()
    }
    n_bytes = sum(kept_bytes(weight, has_blocks=is_gpu) for weight in weights.values())
    return Forecast(n_bytes, programs, table_bytes(list(states.values())))


def _gathered(op: Op, plan: Plan, pools: Mapping[str, PoolSize]) -> int:
    """Bytes of the rows that MLX's own attention gathers."""
    spec = plan.state(op.state("state").group)
    n_values = sum(cols for _, cols in spec.tensors) + op.integer("n_heads")
    n_copies = GATHERS + TAIL_GATHERS * op.has("tail")
    return n_copies * 4 * plan.rows[op.view("q").rows] * _most_keys(op, plan, pools) * n_values


def _split(op: Op, plan: Plan, pools: Mapping[str, PoolSize]) -> int:
    """Bytes of the splits of few rows' keys, before they are joined; many rows have no such arrays."""
    n_rows, n_heads = plan.rows[op.view("q").rows], op.integer("n_heads")
    if n_rows > MOST_SPLIT_ROWS:
        return 0
    n_splits, v_dim = -(-_most_keys(op, plan, pools) // SPLIT), op.view("y").cols // n_heads
    return 4 * n_rows * n_heads * n_splits * (v_dim + 2)


def _most_keys(op: Op, plan: Plan, pools: Mapping[str, PoolSize]) -> int:
    spec = plan.state(op.state("state").group)
    return pools[spec.name].table_cols * spec.unit_rows


def _sorted(op: Op, plan: Plan, _: Mapping[str, PoolSize]) -> int:
    """Bytes of rows sorted by expert, their order and products before these are placed or summed."""
    n_experts, outputs, cols = op.weight("weight").shape
    n_rows, n_slots = plan.rows[op.view("y").rows], op.view("ids").cols if op.has("ids") else n_experts
    n_pairs, is_heads = n_rows * n_slots, not op.has("ids")
    products = outputs * (is_heads or op.name == "linear_experts_sum")
    fed = cols * is_heads
    if n_rows <= MOST_FEW:
        return 4 * n_pairs * (products + fed)
    return 4 * n_pairs * (products + fed + cols + ORDER_WORDS + n_experts + 1)


def _terms(op: Op, plan: Plan, _: Mapping[str, PoolSize]) -> int:
    """Bytes of the terms that MLX's own ops gather for each row: their indices, as stored, and masked."""
    n_slots, copies = op.view("ids").cols if op.has("ids") else 1, TERM_COPIES
    width = op.integer("n_in") + op.view("y").cols // n_slots
    return copies * 4 * plan.rows[op.view("y").rows] * n_slots * op.integer("rank") * width


def _dots(op: Op, plan: Plan, _: Mapping[str, PoolSize]) -> int:
    """Bytes of the products with A, and of the buffer of y before its terms."""
    y, n_slots = op.view("y"), op.view("ids").cols if op.has("ids") else 1
    return 4 * plan.rows[y.rows] * (n_slots * op.integer("rank") + y.stride)


Held = Callable[[Op, Plan, Mapping[str, PoolSize]], int]
OF_CPU: Mapping[str, Held] = {"attention": _gathered, **dict.fromkeys(sorted(LOW_RANK), _terms)}
OF_GPU: Mapping[str, Held] = {
    "attention": _split,
    **dict.fromkeys(sorted(LOW_RANK), _dots),
    **dict.fromkeys(("linear_experts", "linear_experts_glu", "linear_experts_sum", "linear_heads"), _sorted),
}
