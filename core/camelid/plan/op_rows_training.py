"""Op rows of training plans, which `differentiate` makes: exact products, low-rank terms, gradients, losses.

They are a table of their own beside `OPS`: no model lowers to them, and a backend without them only cannot
train. Gradients are named after what they belong to: `dx` is that of `x`. With `adds` 1 an op adds to a
gradient, with 0 it overwrites it. Rows named `*_back` are the vector-Jacobian products of `vjp.py`.

The diagonal Fisher information of a weight, [n_out, n_in], would be as large as the model. The state group
`fisher` has its sums over columns and rows, whose product is the nearest matrix of rank 1 in KL divergence
(Adafactor, arXiv 1804.04235, section 3). Each row of a step counts as a sample (K-FAC, arXiv 1503.05671).

The state group `trained` has two tensors of n floats, the values of the adapter and their gradient; `at` is
the first float of a matrix in both. Its group `moments` has AdamW's two averages.
"""

from __future__ import annotations

from camelid.plan.oprow import Cost, Counts, OpRow, elementwise, fits, matrix, same
from camelid.plan.plan import Op

TRAINED, MOMENTS, FISHER = "trained", "moments", "fisher"  # state groups
ANSWER: tuple[str, ...] = ("target", "likelihood", "kl", "unlikelihood")  # columns of `answers`
LOSSES = ANSWER[1:]  # columns of `losses`
HOW = ("rate", "first_correction", "second_correction", "most_norm", "decay", "anchor")  # columns of `how`


def _linear_rule(op: Op) -> bool:
    n = op.view("y").cols
    return op.weight("weight").shape == (n, op.view("x").cols) and fits(op, "bias", n)


def _linear_back_rule(op: Op) -> bool:
    return op.weight("weight").shape == (op.view("dy").cols, op.view("dx").cols)


def _acts_fit(op: Op, role: str) -> bool:
    return not op.has("acts") or (op.view("acts").rows, op.view("acts").cols) == (op.view(role).rows, 1)


def _attend_rule(op: Op) -> bool:
    q, k, v, y = (op.view(role) for role in ("q", "k", "v", "y"))
    n_heads, n_kv_heads = op.integer("n_heads"), op.integer("n_kv_heads")
    heads = n_heads % n_kv_heads == 0 == q.cols % n_heads == k.cols % n_kv_heads == v.cols % n_kv_heads
    widths = q.cols // n_heads == k.cols // n_kv_heads and y.cols == v.cols // n_kv_heads * n_heads
    return heads and widths and op.view("stats").cols == 2 * n_heads


def _attend_back_rule(op: Op) -> bool:
    pairs = (("q", "dq"), ("k", "dk"), ("v", "dv"))
    return all(op.view(a).cols == op.view(b).cols for a, b in pairs)


def _attend_flops(each: int) -> Cost:
    """Cost of `each` products of a query row and a key row, for the half of the keys that a row sees."""

    def flops(op: Op, counts: Counts) -> int:
        rows = counts.rows["T"] ** 2 // (2 * max(counts.rows["S"], 1))
        return 2 * each * op.view("q").cols * rows

    return flops


def _norm_back_rule(op: Op) -> bool:
    width = op.integer("size") or op.view("x").cols
    whole = op.view("x").cols % width == 0
    gain = fits(op, "gain", width) or fits(op, "gain", op.view("x").cols // width, width)
    return same("x", "dx", "dy")(op) and whole and gain


def _mul_back_rule(op: Op) -> bool:
    return same("x", "dx")(op) and same("r", "dr")(op) and op.view("x").cols % op.view("r").cols == 0


def _rope_rule(op: Op) -> bool:
    head_dim, dim, offset = op.integer("head_dim"), op.integer("dim"), op.integer("offset")
    whole = op.view("dx").cols % head_dim == 0 and dim > 0 and 0 <= offset <= head_dim - dim
    return whole and op.weight("fine").cols == dim


def _loss_rule(op: Op) -> bool:
    widths = op.view("answers").cols == len(ANSWER) and op.view("losses").cols == len(LOSSES)
    return widths and (not op.has("base") or same("logits", "base")(op))


def _low_rank(op: Op, counts: Counts) -> int:
    wide = op.view("x" if op.has("x") else "y" if op.has("y") else "z")
    return 2 * counts.rows[wide.rows] * wide.cols * op.view("u").cols


ROWS: tuple[OpRow, ...] = (
    OpRow(
        name="copy_rows",
        writes=("y",),
        reads=("x",),
        rule=same("x", "y"),
        row_wise=True,
        meaning="y = x",
    ),
    OpRow(
        name="accumulate",
        updates=("y",),
        reads=("x",),
        attrs=("scale", "adds"),
        rule=same("x", "y"),
        row_wise=True,
        flops=elementwise("y", 2),
        meaning="y = adds * y + scale * x",
    ),
    OpRow(
        name="linear_exact",
        writes=("y",),
        reads=("x",),
        weights=("weight", "bias?"),
        rule=_linear_rule,
        row_wise=True,
        flops=matrix("weight", "y"),
        meaning="y = weight @ x + bias; no backend rounds x",
    ),
    OpRow(
        name="linear_back",
        updates=("dx",),
        reads=("dy",),
        weights=("weight",),
        attrs=("adds",),
        rule=_linear_back_rule,
        row_wise=True,
        flops=matrix("weight", "dy"),
        meaning="dx = adds * dx + weight.T @ dy",
    ),
    OpRow(
        name="shrink",
        writes=("u",),
        reads=("x", "acts?"),
        states=(TRAINED,),
        attrs=("at",),
        defaults={"scale": 1.0},
        rule=lambda op: _acts_fit(op, "x"),
        row_wise=True,
        flops=_low_rank,
        meaning="u = scale * acts * (M @ x), M [R, cols of x] from value `at` on",
    ),
    OpRow(
        name="expand",
        updates=("y",),
        reads=("u", "acts?"),
        states=(TRAINED,),
        attrs=("at",),
        defaults={"scale": 1.0, "adds": 1},
        rule=lambda op: _acts_fit(op, "y"),
        row_wise=True,
        flops=_low_rank,
        meaning="y = adds * y + scale * acts * (M.T @ u), M [R, cols of y] from value `at` on",
    ),
    OpRow(
        name="outer",
        reads=("u", "z", "acts?"),
        states=(TRAINED,),
        attrs=("at",),
        defaults={"scale": 1.0},
        rule=lambda op: _acts_fit(op, "z"),
        flops=_low_rank,
        meaning="gradient of M [R, cols of z], from float `at` on, += sum over rows of scale * acts * u z.T",
    ),
    OpRow(
        name="attend_causal",
        writes=("y", "stats"),
        reads=("q", "k", "v"),
        attrs=("n_heads", "n_kv_heads", "scale"),
        defaults={"window": 0, "softcap": 0.0},
        rule=_attend_rule,
        flops=_attend_flops(2),
        meaning="y = softmax(cap(scale * q @ K.T)) @ V over the rows of the row's own sequence in this step, "
        "up to the row, with a window the last `window` of them; stats = the log-sum-exp of each head's "
        "scores, then a column per head for attend_back",
    ),
    OpRow(
        name="attend_back",
        writes=("dq", "dk", "dv"),
        updates=("stats",),
        reads=("q", "k", "v", "dy"),
        attrs=("n_heads", "n_kv_heads", "scale"),
        defaults={"window": 0, "softcap": 0.0},
        rule=_attend_back_rule,
        flops=_attend_flops(5),
        meaning="the gradients of attend_causal's inputs, from the scores anew",
    ),
    OpRow(
        name="norm_back",
        updates=("dx",),
        reads=("x", "dy"),
        weights=("gain?",),
        attrs=("eps", "kind", "size", "adds"),
        rule=_norm_back_rule,
        row_wise=True,
        flops=elementwise("x", 10),
        meaning="dx = adds * dx + the gradient of x in norm",
    ),
    OpRow(
        name="rope_back",
        updates=("dx",),
        weights=("fine", "coarse"),
        attrs=("head_dim", "dim", "style", "offset", "channel"),
        rule=_rope_rule,
        flops=elementwise("dx", 3),
        meaning="dx = rope with the negative angles, in place",
    ),
    OpRow(
        name="glu_back",
        writes=("dgate", "dup"),
        reads=("gate", "up", "dy"),
        attrs=("act",),
        rule=same("dgate", "dup", "gate", "up", "dy"),
        row_wise=True,
        flops=elementwise("dy", 12),
        meaning="dgate = act'(gate) * up * dy; dup = act(gate) * dy",
    ),
    OpRow(
        name="unary_back",
        updates=("dx",),
        reads=("x",),
        attrs=("act",),
        rule=same("dx", "x"),
        row_wise=True,
        flops=elementwise("dx", 8),
        meaning="dx = act'(x) * dx",
    ),
    OpRow(
        name="softcap_back",
        updates=("dx",),
        reads=("y",),
        attrs=("cap",),
        rule=same("dx", "y"),
        row_wise=True,
        flops=elementwise("dx", 3),
        meaning="dx = (1 - (y / cap)^2) * dx, y the result of softcap",
    ),
    OpRow(
        name="clamp_back",
        updates=("dx",),
        reads=("x",),
        attrs=("limit",),
        rule=same("dx", "x"),
        row_wise=True,
        flops=elementwise("dx", 1),
        meaning="dx = dx where |x| <= limit, else 0",
    ),
    OpRow(
        name="mul_back",
        updates=("dx",),
        writes=("dr",),
        reads=("x", "r"),
        rule=_mul_back_rule,
        row_wise=True,
        flops=elementwise("dx", 3),
        meaning="dr = sum of x * dx over the columns that a column of r scales; dx = r * dx",
    ),
    OpRow(
        name="gather_back",
        updates=("dx",),
        reads=("dy",),
        attrs=("adds",),
        rule=lambda op: op.view("dx").cols == op.view("dy").cols,
        meaning="dx = adds * dx; dx[outputs[o].row] += dy[o]",
    ),
    OpRow(
        name="loss",
        writes=("losses",),
        updates=("logits",),
        reads=("answers", "base?"),
        rule=_loss_rule,
        exact=("logits", "losses", "answers", "base"),
        flops=elementwise("logits", 8),
        meaning="target, likelihood, kl, unlikelihood = answers; p = softmax(logits), b = softmax(base): "
        "losses = -likelihood * ln(p[target]), kl * sum(b * ln(b / p)), -unlikelihood * ln(1 - p[target]); "
        "logits = the gradient of their sum",
    ),
    OpRow(
        name="measure",
        reads=("x", "dy"),
        states=(FISHER,),
        attrs=("rows_at", "cols_at"),
        rule=lambda op: op.view("x").rows == op.view("dy").rows,
        flops=lambda op, counts: (
            4 * counts.rows[op.view("x").rows] * (op.view("x").cols + op.view("dy").cols)
        ),
        meaning="rows += sum over t of dy[t]^2 * |x[t]|^2; cols += sum over t of x[t]^2 * |dy[t]|^2: the "
        "sums over columns and rows of the squared gradients dy[t] x[t].T of a weight",
    ),
    OpRow(
        name="anchor",
        reads=("how",),
        states=(TRAINED, FISHER),
        attrs=("at", "rank", "n_in", "n_out", "rows_at", "cols_at"),
        rule=lambda op: op.view("how").cols == len(HOW) and op.integer("rank") > 0,
        exact=("how",),
        meaning="gradient += that of anchor * sum(F * (B @ A)^2), F[i, j] = rows[i] * cols[j] / sum(rows)",
    ),
    OpRow(
        name="adamw",
        writes=("norm",),
        reads=("how",),
        states=(TRAINED, MOMENTS),
        attrs=("first_beta", "second_beta", "eps"),
        rule=lambda op: op.view("how").cols == len(HOW) and op.view("norm").cols == 1,
        exact=("how", "norm"),
        meaning="AdamW (Loshchilov and Hutter, arXiv 1711.05101) on all trained values, with how = its row "
        "0; norm = the length of the gradient, which is scaled to at most most_norm (0: not scaled) first, "
        "and is 0 after",
    ),
)
