"""Kernels of the reference: keys, values and attention."""

from __future__ import annotations

import numpy as np

from camelid.backends.reference.frame import F64, Frame
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


def _attend(op: Op, f: Frame, row: StepRow, q: F64) -> F64:  # q [H, D] -> [H*D]
    n_kv_heads, v_dim = op.integer("n_kv_heads"), op.view("y").cols // len(q)
    keys = _keys(op, f, row)
    k = _cached(op.state("state"), "k", f, row, keys).reshape(len(keys), n_kv_heads, -1)  # [keys, K, D]
    v = _values(op, f, row, keys, k)[..., :v_dim]  # [keys, K, V]
    group = len(q) // n_kv_heads
    scores = [np.ascontiguousarray(k[:, h // group]) @ head for h, head in enumerate(q)]  # H of [keys]
    probs = [_probs(op, f, h, score) for h, score in enumerate(scores)]
    heads = [np.ascontiguousarray(v[:, h // group].T) @ prob for h, prob in enumerate(probs)]
    return np.concatenate(heads)


def _probs(op: Op, f: Frame, head: int, scores: F64) -> F64:  # [keys]
    scores = scores * op.number("scale")
    if op.number("softcap"):
        scores = op.number("softcap") * np.tanh(scores / op.number("softcap"))
    sink = f.store.vector(op.weight("sinks"))[head : head + 1] if op.has("sinks") else scores[:0]
    every = np.concatenate([scores, sink])
    weights = np.exp(every - every.max())
    return (weights / weights.sum())[: len(scores)]


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
