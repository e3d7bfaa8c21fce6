"""Op rows, part five: encoder ops, whose rows attend to rows of the same step on both sides."""

from __future__ import annotations

from camelid.plan.oprow import Counts, OpRow
from camelid.plan.plan import Op

ROW_MASKS = ("full", "causal", "symmetric")
POOLINGS = ("mean", "cls", "last")


def _attend_rule(op: Op) -> bool:
    q, k, v, y = (op.view(role) for role in ("q", "k", "v", "y"))
    n_heads, n_kv_heads, window = (op.integer(name) for name in ("n_heads", "n_kv_heads", "window"))
    heads = n_heads % n_kv_heads == 0 == q.cols % n_heads == k.cols % n_kv_heads == v.cols % n_kv_heads
    widths = q.cols // n_heads == k.cols // n_kv_heads and y.cols == v.cols // n_kv_heads * n_heads
    mask = op.word("mask") in ROW_MASKS and (window > 0) == (op.word("mask") == "symmetric")
    return heads and widths and len({x.rows for x in (q, k, v, y)}) == 1 and mask and _bias_fits(op)


def _bias_fits(op: Op) -> bool:
    """True if the bias has 2 * n + 1 rows: n distances on either side, and the row itself."""
    return not op.has("bias") or (op.weight("bias").rows % 2, op.weight("bias").cols) == (
        1, op.integer("n_heads"),
    )  # fmt: skip


def _attend_flops(op: Op, counts: Counts) -> int:
    """The least flops of these counts, reached when all sequences of the step are equally long."""
    return 2 * (op.view("q").cols + op.view("y").cols) * counts.rows["T"] ** 2 // max(counts.rows["S"], 1)


def _pool_rule(op: Op) -> bool:
    return op.view("y").cols == op.view("x").cols and op.word("kind") in POOLINGS


ROWS: tuple[OpRow, ...] = (
    OpRow(
        name="attend_rows",
        writes=("y",),
        reads=("q", "k", "v"),
        weights=("bias?",),
        attrs=("n_heads", "n_kv_heads", "scale"),
        defaults={"mask": "full", "window": 0},
        rule=_attend_rule,
        flops=_attend_flops,
        meaning="y = softmax(scale * q @ K.T + bias) @ V over rows of the row's own sequence in this step; "
        "full: all rows; causal: rows up to the row itself; symmetric: rows at most window / 2 away. A bias "
        "[2 * n + 1, heads] adds its row max(-n, min(key - row, n)) + n",
    ),
    OpRow(
        name="pool",
        writes=("y",),
        reads=("x",),
        attrs=("kind",),
        rule=_pool_rule,
        flops=lambda op, counts: counts.rows["T"] * op.view("x").cols,
        meaning="y[o] = mean, first (cls) or last row of the rows of x that belong to sequence "
        "outputs[o].sequence in this step",
    ),
    OpRow(
        name="emit",
        reads=("x",),
        rule=lambda op: op.view("x").rows == "O",
        meaning="result[o] = the floats x[o] in place of logits, and id 0: no id is sampled",
    ),
)
