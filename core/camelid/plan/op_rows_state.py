"""Op rows, part two: ops that read positions or the KV cache."""

from __future__ import annotations

from camelid.plan.oprow import Counts, OpRow, elementwise
from camelid.plan.plan import Op

MASKS = ("causal", "held", "chunked")


def attended(op: Op, counts: Counts) -> int:
    """Number of keys that an attention op reads, summed over its rows; a window bounds the keys of a row."""
    window = op.integer("window")
    return min(counts.keys, counts.rows["T"] * window) if window else counts.keys


def _attention_flops(op: Op, counts: Counts) -> int:
    return 2 * (op.view("q").cols + op.view("y").cols) * attended(op, counts)


def _rope_rule(op: Op) -> bool:
    head_dim, dim, offset = op.integer("head_dim"), op.integer("dim"), op.integer("offset")
    whole = op.view("x").cols % head_dim == 0 and dim > 0 and 0 <= offset <= head_dim - dim
    return whole and op.weight("fine").cols == dim


def _kv_rule(op: Op) -> bool:
    return not op.has("v") or op.view("k").rows == op.view("v").rows


def _attention_rule(op: Op) -> bool:
    q, y, n_heads = op.view("q"), op.view("y"), op.integer("n_heads")
    heads = n_heads % op.integer("n_kv_heads") == 0 == q.cols % n_heads
    widths = q.rows == y.rows and y.cols % n_heads == 0
    mask = op.word("mask") in MASKS and (op.word("mask") != "chunked" or op.integer("window") > 0)
    return heads and widths and mask and _bias_fits(op, n_heads) and _tail_fits(op)


def _bias_fits(op: Op, n_heads: int) -> bool:
    """True if the bias has a column per head and the mask is causal: a bias goes by distance, which rows of
    another sequence do not have."""
    return not op.has("bias") or (op.weight("bias").cols == n_heads and op.word("mask") == "causal")


def _tail_fits(op: Op) -> bool:
    """True without a tail, or with a causal mask and no window, for which the tier border is defined."""
    return not op.has("tail") or (op.word("mask"), op.integer("window")) == ("causal", 0)


ROWS: tuple[OpRow, ...] = (
    OpRow(
        name="rope",
        updates=("x",),
        weights=("fine", "coarse"),
        attrs=("head_dim", "dim", "style"),
        defaults={"offset": 0, "channel": 0},
        rule=_rope_rule,
        flops=elementwise("x", 3),
        meaning="rotate pairs among floats offset .. offset + dim of each head by the channel's position "
        "* frequency; the tables hold cos and sin of position % n * frequency (fine) and of "
        "position // n * n * frequency (coarse)",
    ),
    OpRow(
        name="temperature",
        updates=("x",),
        attrs=("by", "length"),
        rule=lambda op: op.integer("length") > 0,
        flops=elementwise("x", 1),
        meaning="x = (1 + by * ln(1 + (position + 1) // length)) * x",
    ),
    OpRow(
        name="kv_write",
        reads=("k", "v?"),
        states=("state",),
        rule=_kv_rule,
        meaning="pool[table[state_row // n], state_row % n] = k, v; rows are quantized one by one if the "
        "state's kv_type has blocks",
    ),
    OpRow(
        name="attention",
        writes=("y",),
        reads=("q",),
        weights=("sinks?", "bias?"),
        states=("state", "tail?"),
        attrs=("n_heads", "n_kv_heads", "scale"),
        defaults={"mask": "causal", "window": 0, "softcap": 0.0},
        rule=_attention_rule,
        flops=_attention_flops,
        meaning="y = softmax(cap(scale * q @ K.T) + bias) @ V; over keys from max(first_kept, state_row - "
        "window + 1) on (window 0: no such bound), causal: to state_row; held: to the group's last held row; "
        "chunked: from state_row // window * window on, to state_row. "
        "Without v in the state, the values are the first columns of k. A sink is one more score per head, "
        "with no value. A bias [n, heads] adds its row min(state_row - key, n - 1). With a tail "
        "(plan/tiers.py), keys from first_tail_row(state_row) on come from the tail, earlier keys from the "
        "state, under one softmax",
    ),
)
