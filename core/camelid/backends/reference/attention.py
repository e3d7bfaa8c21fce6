"""Kernels of the reference: keys, values and attention."""

from __future__ import annotations

import numpy as np

from camelid.backends.reference.frame import F64, Frame
from camelid.backends.reference.rows import softmax
from camelid.plan.plan import Op, StateRef
from camelid.plan.step import StepRow


def op_kv_write(op: Op, f: Frame) -> None:
    state = op.state("state")
    for name in (role for role in ("k", "v") if op.has(role)):
        pool = f.state.tensor(state, name)
        for row, value in zip(f.step.rows, f.read(op.view(name)), strict=True):
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
    """One row's heads, each by itself."""
    group = len(q) // k.shape[1]
    heads: list[F64] = []
    for h, head in enumerate(q):
        scores = _capped(np.ascontiguousarray(k[:, h // group]) @ head * scale, cap)  # [keys]
        scores = scores if bias is None else scores + bias[:, h]
        sink = scores[:0] if sinks is None else sinks[h : h + 1]
        probs = softmax(np.concatenate([scores, sink]))[: len(scores)]
        heads.append(np.ascontiguousarray(v[:, h // group].T) @ probs)
    return np.concatenate(heads)


def _attend(op: Op, f: Frame, row: StepRow, q: F64) -> F64:  # q [H, D] -> [H*V]
    n_kv_heads, v_dim = op.integer("n_kv_heads"), op.view("y").cols // len(q)
    keys = _keys(op, f, row)
    k = _cached(op.state("state"), "k", f, row, keys).reshape(len(keys), n_kv_heads, -1)  # [keys, K, D]
    v = _values(op, f, row, keys, k)[..., :v_dim]  # [keys, K, V]
    sinks = f.store.vector(op.weight("sinks")) if op.has("sinks") else None
    bias = _bias(op, f, row, keys) if op.has("bias") else None
    return attend(q, k, v, scale=op.number("scale"), cap=op.number("softcap"), sinks=sinks, bias=bias)


def _capped(scores: F64, cap: float) -> F64:
    return cap * np.tanh(scores / cap) if cap else scores


def _bias(op: Op, f: Frame, row: StepRow, keys: range) -> F64:  # [keys, H]
    bias = f.store.matrix(op.weight("bias"))  # [n, H]
    return bias[np.minimum(row.state_row - np.array(keys), len(bias) - 1)]


def _keys(op: Op, f: Frame, row: StepRow) -> range:
    """State rows that this row sees."""
    _, first_kept, held = f.sequence_words(row, op.state("state").group)
    if op.word("mask") == "held":
        return range(first_kept, held)
    window = op.integer("window")
    start = row.state_row - window + 1 if window else 0
    return range(max(first_kept, start), row.state_row + 1)


def _values(op: Op, f: Frame, row: StepRow, keys: range, k: F64) -> F64:  # [keys, K, V]
    state = op.state("state")
    if "v" not in dict(f.plan.state(state.group).tensors):
        return k
    return _cached(state, "v", f, row, keys).reshape(len(keys), op.integer("n_kv_heads"), -1)


def _cached(state: StateRef, name: str, f: Frame, row: StepRow, keys: range) -> F64:  # [keys, K*D]
    table_row = f.sequence_words(row, state.group)[0]
    pool = f.state.tensor(state, name)
    n_units = -(-keys.stop // pool.shape[1])
    rows = pool[f.state.tables[state.group][table_row, :n_units]].reshape(-1, pool.shape[2])
    return rows[keys.start : keys.stop].astype(np.float64)
