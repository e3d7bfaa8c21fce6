"""MLX kernels of encoders: attention over the rows of the step, pooling, floats as results.

Rows are gathered by sequence first, so that a row of a sequence has the same place in all sums whatever other
sequences are in the step.
"""

from __future__ import annotations

from collections.abc import Callable

from camelid.plan.plan import Op
from camelid_native.mlx.arrays import F32, I32, U32, Array, indices, mx
from camelid_native.mlx.trace import Trace


def op_attend_rows(op: Op, f: Trace) -> None:
    n_heads, n_kv_heads = op.integer("n_heads"), op.integer("n_kv_heads")
    numbers, is_held = _rows_of(f, f.sequences)  # [S, T]
    q, k, v = (f.read(op.view(role))[numbers] for role in "qkv")  # [S, T, cols]
    q = q.reshape(*numbers.shape, n_kv_heads, n_heads // n_kv_heads, -1).transpose(0, 2, 3, 1, 4)
    k, v = (x.reshape(*numbers.shape, n_kv_heads, 1, -1).transpose(0, 2, 3, 1, 4) for x in (k, v))
    scores = (q @ k.swapaxes(3, 4)) * op.number("scale")  # [S, K, G, T, T]
    if op.has("bias"):
        scores = scores + _bias(op, f).reshape(*scores.shape[1:])
    is_seen = is_held[:, None] & _is_near(op, len(f.rows))  # [S, T, T]
    probs = mx.softmax(mx.where(is_seen[:, None, None], scores, -mx.inf), axis=-1)
    y = probs @ mx.where(is_held[:, None, None, :, None], v, 0.0)  # [S, K, G, T, V]
    by_sequence = y.transpose(0, 3, 1, 2, 4).reshape(*numbers.shape, -1)
    own = f.row_numbers - f.sequence_word(f.of_rows, "first_row")
    f.write(op.view("y"), by_sequence[f.row_word("sequence"), mx.where(f.is_live, own, 0)])


def op_pool(op: Op, f: Trace) -> None:
    numbers, is_held = _rows_of(f, f.of_outputs)  # [O, T]
    x = mx.where(is_held[..., None], f.read(op.view("x"))[numbers], 0.0)  # [O, T, C]
    n_rows = f.sequence_word(f.of_outputs, "rows")[:, None]
    f.write(op.view("y"), POOLINGS[op.word("kind")](x, n_rows))


def op_emit(op: Op, f: Trace) -> None:
    x = f.read(op.view("x"))
    zero = mx.zeros((len(x),), dtype=U32)
    status = mx.isnan(x).any(axis=1).astype(U32)
    f.results |= {"rows": mx.stack([zero, status, zero, zero], axis=1), "floats": x.astype(F32)}


def _rows_of(f: Trace, sequences: Array) -> tuple[Array, Array]:  # [n, words] -> [n, T] twice
    """Numbers of each sequence's rows in order, and whether the sequence has as many rows."""
    first, n_rows = (f.sequence_word(sequences, name)[:, None] for name in ("first_row", "rows"))
    is_held = f.row_numbers < n_rows
    return mx.where(is_held, first + f.row_numbers, 0), is_held


def _is_near(op: Op, n: int) -> Array:  # [T, T]: row, key
    """True where the mask lets a row attend to a key, by their places in the sequence."""
    row, key = indices(n, I32)[:, None], indices(n, I32)[None]
    if op.word("mask") == "symmetric":
        return mx.abs(key - row) <= op.integer("window") // 2
    return key <= row if op.word("mask") == "causal" else key >= 0


def _bias(op: Op, f: Trace) -> Array:  # [H, T, T]
    table, n = f.weights.matrix(op.weight("bias")), len(f.rows)  # [2*reach + 1, H]
    reach = len(table) // 2
    distance = indices(n, I32)[None] - indices(n, I32)[:, None]
    return table[mx.clip(distance, -reach, reach) + reach].transpose(2, 0, 1)


def _last(x: Array, n_rows: Array) -> Array:  # [O, T, C], [O, 1] -> [O, C]
    at = mx.maximum(n_rows.astype(I32) - 1, 0)[..., None]
    return mx.take_along_axis(x, mx.broadcast_to(at, (len(x), 1, x.shape[2])), axis=1).squeeze(1)


POOLINGS: dict[str, Callable[[Array, Array], Array]] = {
    "mean": lambda x, n_rows: x.sum(axis=1) / n_rows,
    "cls": lambda x, n_rows: x[:, 0],
    "last": _last,
}
