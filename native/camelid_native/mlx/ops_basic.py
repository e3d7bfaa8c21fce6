"""MLX kernels: state changes, embeddings, norms, elementwise ops, RoPE."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from camelid.plan.plan import Op
from camelid.plan.step import COPY, FROM_ID, FROM_RING, OUTPUT, UPDATE
from camelid_native.mlx.arrays import F32, Array, indices, mx
from camelid_native.mlx.trace import TABLE, Trace


def op_tables(op: Op, f: Trace) -> None:
    group = op.state("state").group
    number, row, index, unit = (f.updates[:, i] for i in range(len(UPDATE)))
    is_own = (indices(len(number)) < f.count("updates")) & (number == f.plan.group(group))
    f.put((group, 0, TABLE), mx.where(is_own, row * f.table_cols[group] + index + 1, 0), unit)


def op_copy(op: Op, f: Trace) -> None:
    if not f.variant.copies:
        return
    group, n = op.state("state").group, f.spec(op.state("state")).unit_rows
    number, source, destination, n_copied = (f.copies[:, i : i + 1] for i in range(len(COPY)))
    is_used = indices(len(number))[:, None] < f.count("copies")
    is_own, rows = is_used & (number == f.plan.group(group)), indices(n)[None]
    read = (source * n + rows).reshape(-1)
    written = mx.where(is_own & (rows < n_copied), destination * n + rows, 0).reshape(-1)
    for key in [key for key in f.state if key[0] == group and key[2] != TABLE]:
        f.put(key, written, f.state[key][read])


def op_embed(op: Op, f: Trace) -> None:
    ids = token_ids(op, f)
    f.write(op.view("y"), f.weights.rows(op.weight("weight"), ids) * op.number("scale"))
    keep_ids(op, f)


def token_ids(op: Op, f: Trace) -> Array:  # [T]
    """The token id of each row: of the step, or drawn before it."""
    tokens = op.state("tokens")
    key, n = (tokens.group, tokens.layer, "id"), f.spec(tokens).unit_rows
    slot = f.group_word(f.of_rows, tokens.group, "read")
    drawn = f.state[key][slot * n + f.row_word("state_row") % n]
    return mx.where(f.row_word("source") == FROM_RING, drawn, f.row_word("value"))


def keep_ids(op: Op, f: Trace) -> None:
    """Writes the ids of a step to the ring, the last ones of a sequence if it has more than the ring."""
    tokens = op.state("tokens")
    key, n = (tokens.group, tokens.layer, "id"), f.spec(tokens).unit_rows
    end = f.sequence_word(f.of_rows, "first_row") + f.sequence_word(f.of_rows, "rows")
    is_kept = f.is_live & (f.row_word("source") == FROM_ID) & (f.row_numbers + n >= end)
    place = f.group_word(f.of_rows, tokens.group, "write") * n + f.row_word("state_row") % n
    f.put(key, mx.where(is_kept, place, 0), f.row_word("value"))


def op_embed_position(op: Op, f: Trace) -> None:
    rows = f.weights.rows(op.weight("weight"), f.positions(op.integer("channel")))
    f.write(op.view("x"), f.read(op.view("x")) + rows)


def op_norm(op: Op, f: Trace) -> None:
    x, width = f.read(op.view("x")), op.integer("size") or op.view("x").cols
    groups = x if width == x.shape[1] else x.reshape(len(x), -1, width)  # [T, groups, size]
    gain = f.weights.vector(op.weight("gain")) if op.has("gain") else None
    bias = f.weights.vector(op.weight("bias")) if op.has("bias") else None
    y = _normed(op, groups, gain, bias)
    f.write(op.view("y"), y.reshape(x.shape))


def _normed(op: Op, groups: Array, gain: Array | None, bias: Array | None) -> Array:
    """A norm of the last axis; a gain may have one row per group."""
    if gain is not None and gain.size > groups.shape[-1]:
        y = _normed(op, groups, None, None) * gain.reshape(-1, groups.shape[-1])
        return y if bias is None else y + bias
    return NORMS[op.word("kind")](groups, gain, bias, op.number("eps"))


def op_add(op: Op, f: Trace) -> None:
    r, scale = f.read(op.view("r")), op.number("scale")
    f.write(op.view("x"), f.read(op.view("x")) + (r if scale == 1.0 else scale * r))


def op_all_reduce(op: Op, f: Trace) -> None:
    """On one device the sum has one term."""


def op_add_norm(op: Op, f: Trace) -> None:
    op_add(op, f)
    gain = f.weights.vector(op.weight("gain"))
    f.write(op.view("y"), mx.fast.rms_norm(f.read(op.view("x")), gain, op.number("eps")))


def op_mul(op: Op, f: Trace) -> None:
    x, r = f.read(op.view("x")), f.read(op.view("r"))
    f.write(op.view("x"), (x.reshape(*r.shape, -1) * r[..., None]).reshape(x.shape))


def op_scale(op: Op, f: Trace) -> None:
    f.write(op.view("x"), op.number("by") * f.read(op.view("x")))


def op_softcap(op: Op, f: Trace) -> None:
    f.write(op.view("x"), capped(f.read(op.view("x")), op.number("cap")))


def op_clamp(op: Op, f: Trace) -> None:
    limit = op.number("limit")
    f.write(op.view("x"), mx.clip(f.read(op.view("x")), -limit, limit))


def op_unary(op: Op, f: Trace) -> None:
    f.write(op.view("x"), ACTS[op.word("act")](f.read(op.view("x"))))


def op_xielu(op: Op, f: Trace) -> None:
    """xIELU (arXiv 2411.13010)."""
    x = f.read(op.view("x"))
    p, n, b, e = f.weights.vector(op.weight("alpha"))
    f.write(op.view("x"), b * x + mx.where(x > 0.0, p * x * x, n * (mx.expm1(mx.minimum(x, e)) - x)))


def op_temperature(op: Op, f: Trace) -> None:
    steps = (f.positions(0) + 1) // op.integer("length")
    factors = 1.0 + op.number("by") * mx.log1p(steps.astype(F32))  # [T]
    f.write(op.view("x"), f.read(op.view("x")) * factors[:, None])


def op_glu(op: Op, f: Trace) -> None:
    f.write(op.view("y"), gated(op.word("act"), f.read(op.view("gate")), f.read(op.view("up"))))


def op_rope(op: Op, f: Trace) -> None:
    x, dim, head_dim = f.read(op.view("x")), op.integer("dim"), op.integer("head_dim")
    if dim == head_dim:
        f.write(op.view("x"), _turned(op, f, x))
        return
    start, end = op.integer("offset"), op.integer("offset") + dim
    heads = x.reshape(len(x), -1, head_dim)  # [T, H, D]
    sides = (heads[..., :start], _turned(op, f, heads[..., start:end]), heads[..., end:])
    whole = mx.concatenate([side for side in sides if side.shape[-1]], axis=-1)
    f.write(op.view("x"), whole.reshape(x.shape))


def op_gather_rows(op: Op, f: Trace) -> None:
    f.write(op.view("y"), f.read(op.view("x"))[f.outputs[:, OUTPUT.index("row")]])


def _turned(op: Op, f: Trace, x: Array) -> Array:  # [T, H * dim] or [T, H, dim]
    """Each pair (a, b) becomes (a cos - b sin, b cos + a sin): it times cos, plus it swapped times sin."""
    axis, n = PAIR_AXES[op.word("style")], op.integer("dim") // 2
    pairs = x.reshape(len(x), -1, *((n, 2) if axis == -1 else (2, n)))
    swapped = pairs[..., ::-1] if axis == -1 else pairs[..., ::-1, :]
    cos, sin = (mx.expand_dims(table[:, None], axis) for table in _angles(op, f))  # [T, 1, dim / 2 and 1]
    both = mx.concatenate([-sin, sin], axis=axis)
    return (pairs * cos + swapped * both).reshape(x.shape)


def _angles(op: Op, f: Trace) -> tuple[Array, Array]:  # [T, dim / 2] each
    """Cosine and sine of each row's angles: the sum of a near and a far one."""
    positions, n = f.positions(op.integer("channel")), op.weight("fine").rows
    near = f.weights.rows(op.weight("fine"), positions % n)
    far = f.weights.rows(op.weight("coarse"), positions // n)
    a, b, c, d = near[:, 0::2], near[:, 1::2], far[:, 0::2], far[:, 1::2]
    return a * c - b * d, a * d + b * c


def capped(x: Array, cap: float) -> Array:
    return cap * mx.tanh(x / cap)


def gated(act: str, gate: Array, up: Array) -> Array:
    """The activation of `gate` times `up`, or the gate function of this name."""
    if act in GATES:
        return GATES[act](gate, up)
    return ACTS[act](gate) * up


def _rms(x: Array, gain: Array | None, bias: Array | None, eps: float) -> Array:
    y = mx.fast.rms_norm(x, gain, eps)
    return y if bias is None else y + bias


def _layer(x: Array, gain: Array | None, bias: Array | None, eps: float) -> Array:
    return mx.fast.layer_norm(x, gain, bias, eps)


def _l2(x: Array, gain: Array | None, bias: Array | None, eps: float) -> Array:
    y = x / mx.sqrt(mx.maximum((x * x).sum(axis=-1, keepdims=True), eps * eps))
    y = y if gain is None else y * gain
    return y if bias is None else y + bias


def _gelu_tanh(x: Array) -> Array:
    """GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415)."""
    return 0.5 * x * (1.0 + mx.tanh(sqrt(2.0 / pi) * (x + 0.044715 * x * x * x)))


def _swiglu_oai(gate: Array, up: Array) -> Array:
    """SwiGLU of gpt-oss: gate <= 7, -7 <= up <= 7, sigmoid of 1.702 * gate, factor up + 1."""
    gate, up = mx.minimum(gate, 7.0), mx.clip(up, -7.0, 7.0)
    return gate * mx.sigmoid(1.702 * gate) * (up + 1.0)


Norm = Callable[[Array, Array | None, Array | None, float], Array]  # of x, gain, bias, eps
NORMS: dict[str, Norm] = {"rms": _rms, "layer": _layer, "l2": _l2}
PAIR_AXES = {"norm": -1, "neox": -2}  # where the two numbers of a pair are neighbours, or halves of a head
ACTS: dict[str, Callable[[Array], Array]] = {
    "silu": lambda x: x * mx.sigmoid(x),
    "gelu": _gelu_tanh,
    "gelu_erf": lambda x: 0.5 * x * (1.0 + mx.erf(x * sqrt(0.5))),
    "relu": lambda x: mx.maximum(x, 0.0),
    "relu2": lambda x: mx.square(mx.maximum(x, 0.0)),
    "sigmoid": mx.sigmoid,
    "tanh": mx.tanh,
}
GATES: dict[str, Callable[[Array, Array], Array]] = {"swiglu_oai": _swiglu_oai}
