"""Reference kernels of the KV cache: kv_write and attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from camelid.backends.reference.frame import F64, Frame
from camelid.backends.reference.rows import softmax
from camelid.backends.reference.stored import load_rows, store_rows
from camelid.plan.plan import Op, StateRef
from camelid.plan.step import StepRow
from camelid.plan.tiers import first_tail_row


def op_kv_write(op: Op, f: Frame) -> None:
    state = op.state("state")
    for name in (role for role in ("k", "v") if op.has(role)):
        pool = f.state.tensor(state, name)
        values = store_rows(f.plan.state(state.group).kv_type, f.read(op.view(name)))
        for row, value in zip(f.step.rows, values, strict=True):
            units = f.state.tables[state.group][f.sequence_words(row, state.group)[0]]
            pool[units[row.state_row // pool.shape[1]], row.state_row % pool.shape[1]] = value


def op_attention(op: Op, f: Frame) -> None:
    q = f.read(op.view("q")).reshape(len(f.step.rows), op.integer("n_heads"), -1)  # [T, H, D]
    rows = [_attend(op, f, row, heads) for row, heads in zip(f.step.rows, q, strict=True)]
    f.write(op.view("y"), np.stack(rows))


def attend(
    q: F64,
    k: F64,
    v: F64,
    *,
    scale: float,
    cap: float = 0.0,
    sinks: F64 | None = None,
    bias: F64 | None = None,
) -> F64:  # q [H, D], k [keys, K, D], v [keys, K, V], sinks [H], bias [keys, H] -> [H*V]
    """Attention of one row, all heads."""
    n_keys, n_kv_heads, head_dim = k.shape
    groups = q.reshape(n_kv_heads, len(q) // n_kv_heads, head_dim)  # heads that share keys and values
    scores = (groups @ k.transpose(1, 2, 0)).reshape(len(q), n_keys)
    scores = _capped(scores * scale, cap)
    if bias is not None:
        scores = scores + bias.T
    if sinks is not None:
        scores = np.concatenate([scores, sinks[:, None]], axis=1)
    probs = softmax(scores)[:, :n_keys].reshape(*groups.shape[:2], n_keys)
    return (probs @ v.transpose(1, 0, 2)).ravel()


def _attend(op: Op, f: Frame, row: StepRow, q: F64) -> F64:  # q [H, D] -> [H*V]
    n_kv_heads, v_dim = op.integer("n_kv_heads"), op.view("y").cols // len(q)
    parts = _tiers(op, f, row)
    k = _cached(parts, "k", f, row, n_kv_heads)  # [keys, K, D]
    has_v = "v" in dict(f.plan.state(op.state("state").group).tensors)
    v = (_cached(parts, "v", f, row, n_kv_heads) if has_v else k)[..., :v_dim]  # [keys, K, V]
    sinks = f.store.vector(op.weight("sinks")) if op.has("sinks") else None
    bias = _bias(op, f, row, _keys(op, f, row)) if op.has("bias") else None
    return attend(q, k, v, scale=op.number("scale"), cap=op.number("softcap"), sinks=sinks, bias=bias)


def _capped(scores: F64, cap: float) -> F64:
    return cap * np.tanh(scores / cap) if cap else scores


def _bias(op: Op, f: Frame, row: StepRow, keys: range) -> F64:  # [keys, H]
    bias = f.store.matrix(op.weight("bias"))  # [n, H]
    return bias[np.minimum(row.state_row - np.array(keys), len(bias) - 1)]


def _keys(op: Op, f: Frame, row: StepRow) -> range:
    """State rows that this row attends to, in either tier."""
    _, first_kept, held = f.sequence_words(row, op.state("state").group)
    window = op.integer("window")
    start = row.state_row - window + 1 if window else 0
    if op.word("mask") == "chunked":
        start = row.state_row // window * window
    return range(max(first_kept, start), held if op.word("mask") == "held" else row.state_row + 1)


def _tiers(op: Op, f: Frame, row: StepRow) -> list[tuple[StateRef, range]]:
    """Splits the attended state rows by tier: rows before the border are in the store, later in the tail."""
    keys = _keys(op, f, row)
    if not op.has("tail"):
        return [(op.state("state"), keys)]
    tail, border = op.state("tail"), first_tail_row(row.state_row)
    _, tail_kept, _ = f.sequence_words(row, tail.group)
    recent = range(max(keys.start, border, tail_kept), keys.stop)
    return [(op.state("state"), range(keys.start, border)), (tail, recent)]


def _cached(
    parts: Sequence[tuple[StateRef, range]], name: str, f: Frame, row: StepRow, n_kv_heads: int
) -> F64:  # [keys, K, D]
    rows = [_held(state, name, f, row, keys) for state, keys in parts if keys]
    read = np.concatenate(rows) if len(rows) > 1 else rows[0]
    return read.reshape(len(read), n_kv_heads, -1)


def _held(state: StateRef, name: str, f: Frame, row: StepRow, keys: range) -> F64:  # [keys, K*D]
    pool, table_row = f.state.tensor(state, name), f.sequence_words(row, state.group)[0]
    n = pool.shape[1]
    first, end = keys.start // n, -(-keys.stop // n)
    pages = pool[f.state.tables[state.group][table_row, first:end]].reshape(-1, pool.shape[2])
    rows = pages[keys.start - first * n : keys.stop - first * n]
    return load_rows(f.plan.state(state.group).kv_type, rows)
