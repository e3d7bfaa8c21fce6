"""Op rows of adapters: low-rank terms of linear maps, by the adapter slot of each row's sequence.

A slot is a unit of a state group of kind `adapter`. Its tensor of one matrix [out, in], or of a stack
[experts, out, in], holds R scales, the rank r <= R and three unused floats; then A [experts, R, in]; then B
transposed, [experts, R, out]. Rows from r on are unused. Slot 0 has no adapter. A and B are of the group's
`kv_type`, f32 or f16; the floats before them are float32 in both, so that each takes two columns of f16.
"""

from __future__ import annotations

from camelid.plan.op_rows_fused import deferred_cols
from camelid.plan.oprow import Cost, Counts, OpRow
from camelid.plan.plan import Op

HEADER_FLOATS = 4  # the rank, and padding to 16 bytes
KIND = "adapter"  # of state groups of slots
SLOT_TYPES = {"f32": 1, "f16": 2}  # type of A and B -> columns of a float of the header
FEATURE = "adapters"  # of programs whose rows may have an adapter
LOW_RANK = frozenset({"low_rank", "low_rank_experts"})


def slot_cols(rank: int, n_in: int, n_out: int, experts: int = 0, kv_type: str = "f32") -> int:
    """Columns of one matrix, or of a stack of `experts` matrices, in a slot of capacity `rank`."""
    each = SLOT_TYPES[kv_type]
    n = each * (HEADER_FLOATS + rank) + max(experts, 1) * rank * (n_in + n_out)
    return -(-n // (each * HEADER_FLOATS)) * each * HEADER_FLOATS


def slot_rank(cols: int, n_in: int, n_out: int, experts: int = 0, kv_type: str = "f32") -> int:
    """The capacity of a slot whose part for this matrix has `cols` columns, as `slot_cols` counts them."""
    each = SLOT_TYPES[kv_type]
    return (cols - each * HEADER_FLOATS) // (each + max(experts, 1) * (n_in + n_out))


def _low_rank_rule(op: Op) -> bool:
    x, y = op.view("x"), op.view("y")
    n_in = op.integer("n_in")
    is_fed = x.cols == (deferred_cols(n_in) if op.integer("deferred") else n_in)
    return is_fed and x.rows == y.rows and op.integer("rank") > 0


def _experts_rule(op: Op) -> bool:
    n_used, n_in = op.view("ids").cols, op.integer("n_in")
    is_fed = op.view("x").cols in (n_in, n_used * n_in)
    return is_fed and op.view("y").cols % n_used == 0 and op.integer("rank") > 0


def _flops(role: str) -> Cost:
    """Cost of a term of the largest rank in each row; `role` has a column per slot of experts."""

    def flops(op: Op, counts: Counts) -> int:
        n_slots = op.view(role).cols if role != "x" else 1
        width = op.integer("n_in") + op.view("y").cols // n_slots
        return 2 * counts.rows[op.view("y").rows] * n_slots * op.integer("rank") * width

    return flops


ROWS: tuple[OpRow, ...] = (
    OpRow(
        name="low_rank",
        updates=("y",),
        reads=("x",),
        states=("adapters",),
        attrs=("tensor", "rank", "n_in"),
        defaults={"scale": 1.0, "deferred": 0, "eps": 0.0},
        rule=_low_rank_rule,
        flops=_flops("x"),
        meaning="of a row whose sequence has adapter slot s > 0: scales, r, A, B = state[s] of tensor number "
        "`tensor`; u = scales[:r] * (A[:r] @ x); y = y + scale * sum over i < r of u[i] * B[i]. With "
        "`deferred`, x is a deferred norm and A @ x is as in norm_linear. Rows of slot 0 keep their bits",
    ),
    OpRow(
        name="low_rank_experts",
        updates=("y",),
        reads=("x", "ids"),
        states=("adapters",),
        attrs=("tensor", "rank", "n_in", "experts"),
        rule=_experts_rule,
        exact=("ids",),
        flops=_flops("ids"),
        meaning="as low_rank for each slot of experts, with A and B of expert ids[slot]; an x of one slot "
        "serves all slots",
    ),
)
