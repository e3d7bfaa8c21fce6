"""MLX kernels of recurrent ops, which carry state from row to row in slots.

Rows of a sequence are neighbours, so a scan has one state: a sequence's first row begins with its slot, every
other row with the state behind the row before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from camelid.plan.op_rows_recurrent import SLOT_TENSORS
from camelid.plan.plan import Op
from camelid_native.mlx.arrays import I32, Array, indices, mx
from camelid_native.mlx.ops_basic import ACTS
from camelid_native.mlx.trace import Key, Trace

# (state before, row number) -> (state after, y of the row [cols])
RowStep = Callable[[Array, int], tuple[Array, Array]]


def op_conv1d(op: Op, f: Trace) -> None:
    x, weight = f.read(op.view("x")), f.weights.matrix(op.weight("weight"))  # [T, C], [C, n]
    n_before = weight.shape[1] - 1
    begun = _begun(op, f).reshape(-1, n_before, x.shape[1])  # [S, n - 1, C]
    seen = mx.concatenate([begun.reshape(-1, x.shape[1]), x])  # [S * (n - 1) + T, C]
    place = _place_in_sequence(f)[:, None] + indices(n_before + 1, I32)  # [T, n], from n - 1 before
    window = seen[_seen_row(f, f.row_word("sequence"), place, n_before)]  # [T, n, C]
    y = (window * weight.T).sum(axis=1)
    y = y + f.weights.vector(op.weight("bias")) if op.has("bias") else y
    f.write(op.view("y"), y if op.word("act") == "none" else ACTS[op.word("act")](y))
    _keep_last(op, f, seen, n_before)


def _keep_last(op: Op, f: Trace, seen: Array, n_before: int) -> None:
    """Writes the last n - 1 rows that each sequence has seen to its slot."""
    n_rows = f.sequence_word(f.sequences, "rows").astype(I32)[:, None]
    place = n_rows + indices(n_before, I32)  # [S, n - 1]
    numbers = indices(len(f.sequences), I32)
    last = seen[_seen_row(f, numbers, place, n_before)].reshape(len(numbers), -1)
    f.put(_key(op), mx.where(f.is_live_sequence, _slots(op, f, f.sequences, "write"), 0), last)


def _seen_row(f: Trace, sequence: Array, place: Array, n_before: int) -> Array:  # [n], [n, k] -> [n, k]
    """Index of a row in `seen`: place 0 is a slot's oldest row, n - 1 its sequence's first of the step."""
    first = f.sequence_word(f.sequences, "first_row")[sequence].astype(I32)[:, None]
    in_slot = sequence.astype(I32)[:, None] * n_before + place
    in_step = len(f.sequences) * n_before + first + place - n_before
    return mx.where(place < n_before, in_slot, in_step)


def op_scan_mamba2(op: Op, f: Trace) -> None:
    """State space duality in recurrent form (Dao and Gu, arXiv 2405.21060)."""
    dt = _softplus(op, f)  # [T, H]
    n_rows, n_heads = dt.shape
    x = f.read(op.view("x")).reshape(n_rows, n_heads, -1)  # [T, H, P]
    b, c = (_spread(f.read(op.view(role)), op.integer("n_groups"), n_heads) for role in "bc")  # [T, H, N]
    a = f.weights.vector(op.weight("a")).reshape(n_heads, 1, -1)
    decay = mx.exp(dt[..., None, None] * a)  # [T, H, 1, 1 or N]
    scaled = dt[..., None] * x

    def step(state: Array, t: int) -> tuple[Array, Array]:  # [H, P, N]
        state = decay[t] * state + scaled[t][..., None] * b[t][:, None]
        return state, (state * c[t][:, None]).sum(axis=-1)

    y = _each_row(op, f, step, (n_heads, x.shape[2], b.shape[2]))
    skip = f.weights.vector(op.weight("d"))[:, None] * x if op.has("d") else 0.0
    f.write(op.view("y"), (y + skip).reshape(n_rows, -1))


def op_scan_delta(op: Op, f: Trace) -> None:
    """The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv 2412.06464)."""
    beta = f.read(op.view("beta"))  # [T, H]
    n_rows, n_heads = beta.shape
    q, k = (_spread(f.read(op.view(role)), op.integer("n_key_heads"), n_heads) for role in "qk")  # [T, H, K]
    v = f.read(op.view("v")).reshape(n_rows, n_heads, -1)  # [T, H, V]
    decay = mx.exp(f.weights.vector(op.weight("a")) * _softplus(op, f))[..., None, None]
    q = op.number("scale") * q

    def step(state: Array, t: int) -> tuple[Array, Array]:  # [H, V, K]
        state = decay[t] * state
        delta = beta[t][:, None] * (v[t] - (state * k[t][:, None]).sum(axis=-1))
        state = state + delta[..., None] * k[t][:, None]
        return state, (state * q[t][:, None]).sum(axis=-1)

    y = _each_row(op, f, step, (n_heads, v.shape[2], k.shape[2]))
    f.write(op.view("y"), y.reshape(n_rows, -1))


def op_token_shift(op: Op, f: Trace) -> None:
    x, lerp = f.read(op.view("x")), f.weights.vector(op.weight("lerp"))  # [T, C], [n * C]
    start, n_cols = op.integer("part") * x.shape[1], x.shape[1]
    begun = _begun(op, f)[:, start : start + n_cols][f.row_word("sequence")]  # [T, C]
    is_first = _place_in_sequence(f)[:, None] == 0
    before = mx.where(is_first, begun, mx.concatenate([x[:1], x[:-1]]))
    y = x[:, None] + lerp.reshape(-1, n_cols) * (before - x)[:, None]  # [T, n, C]
    f.write(op.view("y"), y.reshape(len(x), -1))
    first, n_own = (f.sequence_word(f.sequences, name).astype(I32) for name in ("first_row", "rows"))
    _put_columns(op, f, start, x[mx.maximum(first + n_own - 1, 0)])


def _put_columns(op: Op, f: Trace, start: int, value: Array) -> None:
    """Writes columns from `start` on of each sequence's write slot, value [S, cols]; other columns stay."""
    slots = mx.where(f.is_live_sequence, _slots(op, f, f.sequences, "write"), 0)
    held, end = f.state[_key(op)][slots], start + value.shape[1]  # [S, cols of a slot]
    f.put(_key(op), slots, mx.concatenate([held[:, :start], value, held[:, end:]], axis=1))


def op_scan_rwkv6(op: Op, f: Trace) -> None:
    """RWKV-6 (Peng et al., arXiv 2404.05892), and without `u` gated linear attention."""
    r, w = (_heads(f.read(op.view(role)), op.integer("n_heads")) for role in "rw")  # [T, H, D] each
    n_rows, n_heads, width = r.shape
    n_key_heads = op.view("k").cols // width
    k, v = (_spread(f.read(op.view(role)), n_key_heads, n_heads) for role in "kv")  # [T, H, D] each
    rate, has_u = mx.exp(w), op.has("u")
    decay, key = mx.exp(-rate), k if has_u else -mx.expm1(-rate) * k
    bonus = (r * f.weights.vector(op.weight("u")).reshape(n_heads, -1) * k).sum(axis=-1) if has_u else None

    def step(state: Array, t: int) -> tuple[Array, Array]:  # [H, V, K]
        after = state * decay[t][:, None] + v[t][..., None] * key[t][:, None]
        y = ((state if has_u else after) * r[t][:, None]).sum(axis=-1)
        return after, y if bonus is None else y + v[t] * bonus[t][:, None]

    y = _each_row(op, f, step, (n_heads, width, width))
    f.write(op.view("y"), y.reshape(n_rows, -1))


def op_scan_rwkv7(op: Op, f: Trace) -> None:
    """RWKV-7's generalized delta rule (Peng et al., arXiv 2503.14456)."""
    n_heads = op.integer("n_heads")
    r, w, v, a = (_heads(f.read(op.view(role)), n_heads) for role in "rwva")  # [T, H, D] each
    decay, key = mx.exp(-math.exp(-0.5) * mx.sigmoid(w)), _heads(_rwkv7_key(op, f), n_heads)
    u = _heads(f.read(op.view("k")) * f.weights.vector(op.weight("k_k")), n_heads)
    u = u / mx.maximum(mx.sqrt((u * u).sum(axis=-1, keepdims=True)), 1e-12)
    correction = a * u

    def step(state: Array, t: int) -> tuple[Array, Array]:  # [H, V, K]
        removed = (state * u[t][:, None]).sum(axis=-1)[..., None] * correction[t][:, None]
        state = state * decay[t][:, None] - removed + v[t][..., None] * key[t][:, None]
        return state, (state * r[t][:, None]).sum(axis=-1)

    y = _each_row(op, f, step, (n_heads, v.shape[2], key.shape[2]))
    f.write(op.view("y"), y.reshape(len(y), -1))


def op_bonus_rwkv7(op: Op, f: Trace) -> None:
    n_heads, x = op.integer("n_heads"), f.read(op.view("x"))
    weighted = f.read(op.view("r")) * f.weights.vector(op.weight("r_k")) * _rwkv7_key(op, f)
    share = _heads(weighted, n_heads).sum(axis=-1, keepdims=True)  # [T, H, 1]
    bonus = _heads(f.read(op.view("v")), n_heads) * share
    f.write(op.view("x"), x + bonus.reshape(x.shape))


def _rwkv7_key(op: Op, f: Trace) -> Array:  # [T, H * D]
    return f.read(op.view("k")) * (1.0 + (f.read(op.view("a")) - 1.0) * f.weights.vector(op.weight("k_a")))


def _heads(x: Array, n_heads: int) -> Array:  # [T, H * D] -> [T, H, D]
    return x.reshape(len(x), n_heads, -1)


def _each_row(op: Op, f: Trace, step: RowStep, shape: tuple[int, ...]) -> Array:  # [T, H, ...]
    """Runs all rows in order, from the read slots to the write slots."""
    place, n_own = _place_in_sequence(f), f.sequence_word(f.of_rows, "rows").astype(I32)
    is_first, is_last = place == 0, f.is_live & (place == n_own - 1)
    written = mx.where(is_last, _slots(op, f, f.of_rows, "write"), 0)
    begun, sequence = _begun(op, f), f.row_word("sequence")  # [S, cols], [T]
    state, rows = mx.zeros(shape), list[Array]()
    for t in range(len(f.rows)):
        before = begun[sequence[t]].reshape(shape)
        state, y = step(mx.where(is_first[t], before, state), t)
        f.put(_key(op), written[t : t + 1], state.reshape(1, -1))
        rows.append(y)
    return mx.stack(rows)


def _begun(op: Op, f: Trace) -> Array:  # [S, cols]
    """The state of each sequence before the step: zeros, whatever is in the slot, if it holds no rows."""
    held = f.group_word(f.sequences, op.state("state").group, "held")[:, None]
    return mx.where(held > 0, f.state[_key(op)][_slots(op, f, f.sequences, "read")], 0.0)


def _key(op: Op) -> Key:
    state = op.state("state")
    return state.group, state.layer, SLOT_TENSORS[op.name]


def _slots(op: Op, f: Trace, words: Array, name: str) -> Array:  # [n, words of a sequence] -> [n]
    return f.group_word(words, op.state("state").group, name)


def _place_in_sequence(f: Trace) -> Array:  # [T]
    return f.row_numbers.astype(I32) - f.sequence_word(f.of_rows, "first_row").astype(I32)


def _softplus(op: Op, f: Trace) -> Array:  # [T, H]
    """log(1 + exp(dt + dt_bias)), without overflow."""
    x = f.read(op.view("dt"))
    return mx.logaddexp(x + f.weights.vector(op.weight("dt_bias")) if op.has("dt_bias") else x, mx.array(0.0))


def _spread(x: Array, n: int, n_heads: int) -> Array:  # [T, n * K] -> [T, H, K]
    """Repeats each of n groups for its n_heads / n neighbouring heads."""
    return mx.repeat(x.reshape(len(x), n, -1), n_heads // n, axis=1)
