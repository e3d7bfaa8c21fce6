"""Op rows, part four: a matrix per head (MLA, AltUp), concat, L2 norm, and linear combination, affine map and
threshold of activations (AltUp, Gemma 3n)."""

from __future__ import annotations

from camelid.plan.oprow import OpRow, elementwise, fits, matrix, same
from camelid.plan.plan import Op


def _heads_rule(op: Op) -> bool:
    n_heads, n_out, n_in = op.weight("weight").shape
    x, y = op.view("x"), op.view("y")
    whole = x.rows == y.rows and x.cols % n_heads == 0 == y.cols % n_heads
    return whole and x.cols // n_heads - n_in == y.cols // n_heads - n_out >= 0


def _concat_rule(op: Op) -> bool:
    a, b, y = op.view("a"), op.view("b"), op.view("y")
    return a.rows == b.rows == y.rows and a.cols + b.cols == y.cols


def _groups(op: Op, role: str) -> int:
    """Number of groups of `size` columns in a view (size 0: one group); 0 if they do not fill the view."""
    cols = op.view(role).cols
    size = op.integer("size") or cols
    return cols // size if cols % size == 0 else 0


def _length_rule(op: Op) -> bool:
    return op.view("x").rows == op.view("y").rows and op.view("y").cols == _groups(op, "x")


def _mix_rule(op: Op) -> bool:
    n_coefs = op.view("coefs").cols
    return op.view("x").rows == op.view("y").rows and n_coefs == _groups(op, "x") * _groups(op, "y") > 0


def _affine_rule(op: Op) -> bool:
    n = op.view("x").cols
    is_fit = fits(op, "weight", n) or fits(op, "weight", 1)
    return same("x", "y")(op) and is_fit and fits(op, "bias", n)


ROWS: tuple[OpRow, ...] = (
    OpRow(
        name="linear_heads",
        writes=("y",),
        reads=("x",),
        weights=("weight",),
        rule=_heads_rule,
        row_wise=True,
        flops=matrix("weight", "y"),
        meaning="for each head of x and y, with a weight [heads, out, in]: y[:out] = weight[head] @ x[:in]; "
        "the head's other columns pass unchanged: y[out:] = x[in:]",
    ),
    OpRow(
        name="concat",
        writes=("y",),
        reads=("a", "b"),
        rule=_concat_rule,
        row_wise=True,
        meaning="y = a and b side by side",
    ),
    OpRow(
        name="length",
        writes=("y",),
        reads=("x",),
        defaults={"size": 0},
        rule=_length_rule,
        row_wise=True,
        flops=elementwise("x", 2),
        meaning="y[group] = sqrt(sum(x * x)) over each group of `size` columns (0: all)",
    ),
    OpRow(
        name="mix",
        writes=("y",),
        reads=("x", "coefs"),
        attrs=("size",),
        rule=_mix_rule,
        row_wise=True,
        flops=lambda op, counts: 2 * counts.rows[op.view("y").rows] * op.view("x").cols * _groups(op, "y"),
        meaning="y[i] = sum over j of coefs[i, j] * x[j], where y[i] and x[j] are groups of `size` columns",
    ),
    OpRow(
        name="affine",
        writes=("y",),
        reads=("x",),
        weights=("weight", "bias?"),
        rule=_affine_rule,
        row_wise=True,
        flops=elementwise("x", 2),
        meaning="y = weight * x + bias, column by column; a weight of one number is that of all columns",
    ),
    OpRow(
        name="cutoff",
        updates=("x",),
        attrs=("deviations",),
        row_wise=True,
        flops=elementwise("x", 6),
        meaning="x = max(x - mean(x) - deviations * std(x), 0), mean and std over the row",
    ),
)
