"""Op rows of fused products, which only the rewrites of `fuse.py` make.

A *deferred norm* of a row of N values is a view of N + N / 4 columns: the values times the gain of an RMS
norm, then the sum of squares of each quad of neighbouring values. The op that reads it divides its own result
by the root mean square, so that a norm needs neither a pass of its own nor all values of a row in one place.
Deferred norms, and views that a fused op writes and reads again, are float32.
"""

from __future__ import annotations

from typing import Any

from camelid.plan.oprow import Cost, Counts, OpRow, Rule, elementwise, fits, matrix, same
from camelid.plan.plan import Op

QUAD = 4  # values per sum of squares
QKV = {"qkv": "linear", "norm_qkv": "norm_linear"}  # the linear map in each
KV_OPS = frozenset({"kv_write", *QKV, "norm_rope_write"})  # ops that write the KV cache


def deferred_cols(n: int) -> int:
    """Columns of a deferred norm of n values."""
    return n + n // QUAD


def _linear_add_rule(op: Op) -> bool:
    n = op.view("y").cols
    return op.weight("weight").shape == (n, op.view("x").cols) and fits(op, "bias", n)


def _linear_add_norm_rule(op: Op) -> bool:
    n = op.view("y").cols
    return _linear_add_rule(op) and fits(op, "gain", n) and op.view("z").cols == deferred_cols(n)


def _defer_norm_rule(op: Op) -> bool:
    n = op.view("y").cols
    return op.view("z").cols == deferred_cols(n) and fits(op, "gain", n)


def _is_deferred(op: Op) -> bool:
    n = op.weight("weight").cols
    return n % (QUAD * QUAD) == 0 and op.view("x").cols == deferred_cols(n)


def _norm_linear_rule(op: Op) -> bool:
    n = op.view("y").cols
    return _is_deferred(op) and op.weight("weight").rows == n and fits(op, "bias", n)


def _norm_linear_glu_rule(op: Op) -> bool:
    return _is_deferred(op) and op.weight("weight").rows == 2 * op.view("y").cols


def _is_cut(op: Op, role: str = "y") -> bool:
    """True if the view has heads of q and k, then v; q and k, or v, may be absent."""
    n = op.view(role).cols
    k, v, head_dim = (op.integer(name) for name in ("k_cols", "v_cols", "head_dim"))
    pairs, places = op.integer("dim") // 2, op.weight("fine").cols
    is_turned = op.integer("offset") + 2 * pairs <= head_dim and places == 2 * pairs
    return 0 < k + v <= n and (n - k - v) % head_dim == 0 == k % head_dim and is_turned


def _qkv_rule(op: Op) -> bool:
    return _are_qkv_weights(op, op.view("x").cols)


def _norm_qkv_rule(op: Op) -> bool:
    return _is_deferred(op) and _are_qkv_weights(op, op.weight("weight").cols)


def _are_qkv_weights(op: Op, n_in: int) -> bool:
    v = op.integer("v_cols")
    n = op.view("y").cols - (v if op.has("v_weight") else 0)
    own = op.weight("weight").shape == (n, n_in) and fits(op, "bias", n)
    return own and fits(op, "v_weight", v, n_in) and fits(op, "v_bias", v) and _are_gains(op) and _is_cut(op)


def _qkv_flops(op: Op, counts: Counts) -> int:
    return 2 * counts.rows[op.view("y").rows] * op.view("y").cols * op.weight("weight").cols


def _are_gains(op: Op) -> bool:
    head_dim = op.integer("head_dim")
    both = op.has("q_gain") == op.has("k_gain")
    return both and fits(op, "q_gain", head_dim) and fits(op, "k_gain", head_dim)


def _heads_rule(op: Op) -> bool:
    return _are_gains(op) and _is_cut(op, "x")


def _is_fed(op: Op) -> bool:
    """True if x has one vector for all slots of a row, or one for each."""
    n_in = op.weight("weight").cols
    return op.view("x").cols in (n_in, op.view("ids").cols * n_in)


def _experts_glu_rule(op: Op) -> bool:
    n_experts, n_out, n_in = op.weight("weight").shape
    is_half = fits(op, "up_weight", n_experts, n_out, n_in) and op.has("bias") == op.has("up_bias")
    biases = all(fits(op, role, n_experts, n_out) for role in ("bias", "up_bias"))
    return is_half and biases and _is_fed(op) and op.view("y").cols == op.view("ids").cols * n_out


def _experts_sum_rule(op: Op) -> bool:
    n_experts, n_out, _ = op.weight("weight").shape
    is_whole = op.view("y").cols == n_out and fits(op, "bias", n_experts, n_out)
    return is_whole and _is_fed(op) and same("ids", "probs")(op)


def _experts_flops(n: int) -> Cost:
    """Cost of `n` products of each chosen expert."""

    def flops(op: Op, counts: Counts) -> int:
        _, n_out, n_in = op.weight("weight").shape
        return 2 * n * counts.rows[op.view("y").rows] * op.view("ids").cols * n_out * n_in

    return flops


def _norm_rope(name: str, **facts: Any) -> OpRow:
    return OpRow(
        name=name,
        updates=("x",),
        weights=("q_gain", "k_gain", "fine", "coarse"),
        attrs=("k_cols", "v_cols", "head_dim", "dim", "style", "eps"),
        defaults={"offset": 0},
        rule=_heads_rule,
        flops=elementwise("x", 7),
        exact=("x",),
        **facts,
    )


def _product(name: str, **facts: Any) -> OpRow:
    """The row of a product with one input x."""
    return OpRow(name=name, reads=("x",), flops=matrix("weight", "y"), **facts)


def _qkv(name: str, rule: Rule, *attrs: str) -> OpRow:
    return OpRow(
        name=name,
        reads=("x",),
        flops=_qkv_flops,
        writes=("y",),
        weights=("weight", "bias?", "v_weight?", "v_bias?", "q_gain?", "k_gain?", "fine", "coarse"),
        states=("state", "tail?"),
        attrs=("k_cols", "v_cols", "head_dim", "dim", "style", *attrs),
        defaults={"offset": 0, "head_eps": 0.0},
        rule=rule,
        exact=("y", "x"),
        meaning=f"y = {QKV[name]}(x, weight, bias), with a weight of v beside {QKV[name]}(x, v_weight, "
        "v_bias), its last columns; with gains the norms of norm_rope, with head_eps; then rope on all "
        "columns but the last v_cols; the last columns of y are k and v, which go to the pool as by "
        "kv_write, and to the pool of a tail",
    )


ROWS: tuple[OpRow, ...] = (
    _qkv("qkv", _qkv_rule),
    _qkv("norm_qkv", _norm_qkv_rule, "eps"),
    _norm_rope(
        "norm_rope",
        meaning="q, k, v = split(x): an RMS norm of each head of q and k, with one gain for all heads of q "
        "and one for those of k; then rope on q and k",
    ),
    _norm_rope(
        "norm_rope_write",
        states=("state",),
        meaning="norm_rope, then k and v go to the pool as by kv_write",
    ),
    _product(
        "linear_add",
        updates=("y",),
        weights=("weight", "bias?"),
        defaults={"scale": 1.0},
        rule=_linear_add_rule,
        row_wise=True,
        meaning="y = y + scale * (weight @ x + bias)",
    ),
    _product(
        "linear_add_norm",
        writes=("z",),
        updates=("y",),
        weights=("weight", "bias?", "gain"),
        defaults={"scale": 1.0},
        rule=_linear_add_norm_rule,
        row_wise=True,
        exact=("y", "z"),
        meaning="y = y + scale * (weight @ x + bias); z = deferred norm(y, gain)",
    ),
    OpRow(
        name="defer_norm",
        writes=("z",),
        reads=("y",),
        weights=("gain",),
        rule=_defer_norm_rule,
        row_wise=True,
        exact=("y", "z"),
        meaning="z = deferred norm(y, gain), with the bits of linear_add_norm",
    ),
    _product(
        "norm_linear",
        writes=("y",),
        weights=("weight", "bias?"),
        attrs=("eps",),
        rule=_norm_linear_rule,
        row_wise=True,
        exact=("x",),
        meaning="v, squares = split(x, a deferred norm of n values); "
        "y = weight @ v / sqrt(sum(squares) / n + eps) + bias",
    ),
    _product(
        "norm_linear_glu",
        writes=("y",),
        weights=("weight",),
        attrs=("act", "eps"),
        rule=_norm_linear_glu_rule,
        row_wise=True,
        exact=("x",),
        meaning="as norm_linear: gate, up = split(weight @ v / sqrt(sum(squares) / n + eps)); "
        "y = act(gate) * up",
    ),
    OpRow(
        name="linear_experts_glu",
        writes=("y",),
        reads=("x", "ids"),
        weights=("weight", "up_weight", "bias?", "up_bias?"),
        attrs=("act",),
        rule=_experts_glu_rule,
        row_wise=True,
        exact=("ids",),
        flops=_experts_flops(2),
        meaning="as linear_experts with each weight and bias: y = act(gate) * up",
    ),
    OpRow(
        name="linear_experts_sum",
        writes=("y",),
        reads=("x", "ids", "probs"),
        weights=("weight", "bias?"),
        rule=_experts_sum_rule,
        row_wise=True,
        exact=("ids",),
        flops=_experts_flops(1),
        meaning="y = sum over slots of probs[slot] * linear_experts(x)[slot]",
    ),
)

# Ops that only rewrites make: a backend without them lacks nothing.
FUSED = frozenset(row.name for row in ROWS)
