"""Kernels of the reference: keys, values and attention."""

from __future__ import annotations

import numpy as np

from camelid.backends.reference.frame import F64, Frame
from camelid.plan.plan import Op, StateRef
from camelid.plan.step import StepRow


def op_kv_write(op: Op, f: Frame) -> None:
    state = op.state("state")
    for name in ("k", "v"):
        pool = f.state.tensor(state, name)
        for row, value in zip(f.step.rows, f.read(op.view(name)), strict=True):
            units = f.state.tables[state.group][f.sequence_words(row, state.group)[0]]
            pool[units[row.state_row // pool.shape[1]], row.state_row % pool.shape[1]] = value


def op_attention(op: Op, f: Frame) -> None:
    q = f.read(op.view("q")).reshape(len(f.step.rows), op.integer("n_heads"), -1)  # [T, H, D]
    out = np.stack([_attend(op, f, row, heads) for row, heads in zip(f.step.rows, q, strict=True)])
    f.write(op.view("y"), out)


def _attend(op: Op, f: Frame, row: StepRow, q: F64) -> F64:  # q [H, D] -> [H*D]
    n_kv_heads, head_dim = op.integer("n_kv_heads"), op.integer("head_dim")
    cached = (_cached(op.state("state"), name, f, row) for name in ("k", "v"))
    k, v = (rows.reshape(-1, n_kv_heads, head_dim) for rows in cached)  # [keys, K, D]
    group = len(q) // n_kv_heads
    heads = [_attend_head(head, k[:, h // group], v[:, h // group], op) for h, head in enumerate(q)]
    return np.concatenate(heads)


def _attend_head(q: F64, k: F64, v: F64, op: Op) -> F64:  # q [D], k [n, D], v [n, D] -> [D]
    scores = np.ascontiguousarray(k) @ q * op.number("scale")
    probs = np.exp(scores - scores.max())
    return np.ascontiguousarray(v.T) @ (probs / probs.sum())


def _cached(state: StateRef, name: str, f: Frame, row: StepRow) -> F64:  # [keys, K*D]
    table_row, first_kept, _ = f.sequence_words(row, state.group)
    pool = f.state.tensor(state, name)
    n_units = row.state_row // pool.shape[1] + 1
    rows = pool[f.state.tables[state.group][table_row, :n_units]].reshape(-1, pool.shape[2])
    return rows[first_kept : row.state_row + 1].astype(np.float64)
