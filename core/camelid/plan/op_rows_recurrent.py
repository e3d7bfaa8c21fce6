"""Op rows, part three: recurrent ops, whose state is one slot per sequence, whatever its length.

An op reads its sequence's state from the read slot (zeros if the sequence holds no rows yet), processes the
step's rows in order, and writes the state after the last row to the write slot. State is rounded to float32
after every row, so that results do not depend on the chunks of a prompt.
"""

from __future__ import annotations

from camelid.plan.oprow import Counts, OpRow, elementwise, fits, same
from camelid.plan.plan import Op

# op -> its state tensor
SLOT_TENSORS = {
    "conv1d": "conv", "scan_mamba2": "scan", "scan_delta": "scan", "token_shift": "shift",
    "scan_rwkv6": "scan", "scan_rwkv7": "scan",
}  # fmt: skip
MAX_WKV_WIDTH = 256  # columns of an RWKV head, whose vectors a kernel keeps in fast memory; published: 64


def _conv_rule(op: Op) -> bool:
    n_channels, width = op.weight("weight").shape
    fed = same("x", "y")(op) and op.view("x").cols == n_channels
    return fed and width > 1 and fits(op, "bias", n_channels)


def _conv_flops(op: Op, counts: Counts) -> int:
    return 2 * counts.rows[op.view("y").rows] * op.weight("weight").rows * op.weight("weight").cols


def _has_heads(op: Op, n_heads: int, *roles: str) -> bool:
    """True if these weights have one number per head, in any shape."""
    return all(op.weight(r).rows * op.weight(r).cols == n_heads for r in roles if op.has(r))


def _mamba2_rule(op: Op) -> bool:
    n_heads, n_groups = op.view("dt").cols, op.integer("n_groups")
    whole = op.view("x").cols % n_heads == n_heads % n_groups == op.view("b").cols % n_groups == 0
    views = same("y", "x")(op) and same("b", "c")(op)
    return (
        whole
        and views
        and _has_heads(op, n_heads * decay_cols(op), "a")
        and _has_heads(op, n_heads, "d", "dt_bias")
    )


def decay_cols(op: Op) -> int:
    """Decays of a head in `scan_mamba2`: one, or one for each column of its state, as in Mamba 1."""
    width = op.view("b").cols // op.integer("n_groups")
    return width if op.weight("a").rows * op.weight("a").cols == op.view("dt").cols * width else 1


def _mamba2_flops(op: Op, counts: Counts) -> int:
    state = op.view("x").cols * (op.view("b").cols // op.integer("n_groups"))
    return 6 * counts.rows[op.view("y").rows] * state


def _delta_rule(op: Op) -> bool:
    n_heads, n_keys = op.view("dt").cols, op.integer("n_key_heads")
    whole = op.view("v").cols % n_heads == n_heads % n_keys == op.view("k").cols % n_keys == 0
    views = same("y", "v")(op) and same("q", "k")(op) and same("dt", "beta")(op)
    return whole and views and _has_heads(op, n_heads, "a", "dt_bias")


def _delta_flops(op: Op, counts: Counts) -> int:
    state = op.view("v").cols * (op.view("k").cols // op.integer("n_key_heads"))
    return 8 * counts.rows[op.view("y").rows] * state


def _shift_rule(op: Op) -> bool:
    x, lerp = op.view("x"), op.weight("lerp")
    fed = op.view("y").rows == x.rows and lerp.cols == x.cols
    return fed and op.view("y").cols == lerp.rows * lerp.cols and op.integer("part") >= 0


def _are_heads(op: Op) -> bool:
    """True if the columns are whole heads of RWKV."""
    cols, n_heads = op.view("r").cols, op.integer("n_heads")
    return n_heads > 0 == cols % n_heads and cols // n_heads <= MAX_WKV_WIDTH


def _rwkv6_rule(op: Op) -> bool:
    n, n_keys = op.view("r").cols, op.view("k").cols
    views = same("y", "r", "w")(op) and same("k", "v")(op) and op.view("k").rows == op.view("r").rows
    whole = _are_heads(op) and n % n_keys == n_keys % (n // op.integer("n_heads")) == 0
    return views and whole and _has_heads(op, n, "u")


def _rwkv7_rule(op: Op) -> bool:
    n = op.view("y").cols
    views = same("y", "r", "w", "k", "v", "a")(op)
    return views and fits(op, "k_k", n) and fits(op, "k_a", n) and _are_heads(op)


def _bonus_rule(op: Op) -> bool:
    n = op.view("x").cols
    return same("x", "r", "k", "v", "a")(op) and fits(op, "k_a", n) and fits(op, "r_k", n) and _are_heads(op)


def _wkv_flops(op: Op, counts: Counts) -> int:
    cols, each = op.view("y").cols, 5 if op.name == "scan_rwkv6" else 9
    return each * counts.rows[op.view("y").rows] * cols * (cols // op.integer("n_heads"))


ROWS: tuple[OpRow, ...] = (
    OpRow(
        name="conv1d",
        writes=("y",),
        reads=("x",),
        weights=("weight", "bias?"),
        states=("state",),
        defaults={"act": "none"},
        rule=_conv_rule,
        flops=_conv_flops,
        meaning="y[t] = act(bias + sum over j < n of weight[:, j] * x[t - n + 1 + j]), channel by channel; "
        "the state `conv` [n - 1, channels] holds the rows before the step's first row, oldest first",
    ),
    OpRow(
        name="scan_mamba2",
        writes=("y",),
        reads=("x", "b", "c", "dt"),
        weights=("a", "d?", "dt_bias?"),
        states=("state",),
        attrs=("n_groups",),
        rule=_mamba2_rule,
        flops=_mamba2_flops,
        meaning="dt = softplus(dt + dt_bias); for each head, with b and c of its group: "
        "S = exp(dt * a) * S + dt * outer(x, b); y = S @ c + d * x. dt has a column per "
        "head, `a` a number per head or per column of its state; the state "
        "`scan` holds S [heads, columns of x per head, columns of b per group]",
    ),
    OpRow(
        name="scan_delta",
        writes=("y",),
        reads=("q", "k", "v", "dt", "beta"),
        weights=("a", "dt_bias?"),
        states=("state",),
        attrs=("n_key_heads",),
        defaults={"scale": 1.0},
        rule=_delta_rule,
        flops=_delta_flops,
        meaning="for each head, with q and k of head h // (heads / n_key_heads): "
        "S = exp(a * softplus(dt + dt_bias)) * S; S = S + beta * outer(v - S @ k, k); y = S @ (scale * q). "
        "One column of dt per head; the state `scan` holds S [heads, columns of v per head, columns of k "
        "per key head]",
    ),
    OpRow(
        name="token_shift",
        writes=("y",),
        reads=("x",),
        weights=("lerp",),
        states=("state",),
        defaults={"part": 0},
        rule=_shift_rule,
        flops=elementwise("y", 3),
        meaning="y = x[t] + lerp[i] * (x[t - 1] - x[t]) for each row i of lerp, side by side; the columns "
        "from part * x.cols on of the state `shift` hold the row before the step's first row",
    ),
    OpRow(
        name="scan_rwkv6",
        writes=("y",),
        reads=("r", "w", "k", "v"),
        weights=("u?",),
        states=("state",),
        attrs=("n_heads",),
        rule=_rwkv6_rule,
        flops=_wkv_flops,
        meaning="for each head, with k and v of head h // (r.cols / k.cols): decay = exp(-exp(w)), one for "
        "each column. With u: y = S @ r + v * sum(r * u * k), then S = S * decay + outer(v, k). Without u: "
        "S = S * decay + outer(v, (1 - decay) * k), then y = S @ r. The state `scan` holds S [heads, columns "
        "of v per head, columns of k per head]",
    ),
    OpRow(
        name="scan_rwkv7",
        writes=("y",),
        reads=("r", "w", "k", "v", "a"),
        weights=("k_k", "k_a"),
        states=("state",),
        attrs=("n_heads",),
        rule=_rwkv7_rule,
        flops=_wkv_flops,
        meaning="for each head: u = k_k * k, divided by max(|u|, 1e-12); key = k * (1 + (a - 1) * k_a); "
        "decay = exp(-exp(-1/2) * sigmoid(w)); S = S * decay - outer(S @ u, a * u) + outer(v, key), with a "
        "decay for each column; y = S @ r. The state `scan` holds S [heads, columns of v per head, columns "
        "of k per head]",
    ),
    OpRow(
        name="bonus_rwkv7",
        updates=("x",),
        reads=("r", "k", "v", "a"),
        weights=("k_a", "r_k"),
        attrs=("n_heads",),
        rule=_bonus_rule,
        row_wise=True,
        flops=elementwise("x", 8),
        meaning="for each head: x = x + v * sum(r * r_k * k * (1 + (a - 1) * k_a))",
    ),
)
