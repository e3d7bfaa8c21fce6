"""Reference kernels of adapters: low-rank terms by each row's adapter slot (`plan/op_rows_adapters.py`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64, row_sum
from camelid.backends.reference.stored import Stored
from camelid.plan.op_rows_adapters import HEADER_FLOATS
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op


class Slot(NamedTuple):
    """The term of one site: `a` and `b` are [experts, r, in] and [experts, r, out]."""

    scales: F64  # [r]
    a: F64
    b: F64


def op_low_rank(op: Op, f: Frame) -> None:
    x, y = f.read(op.view("x")), f.read(op.view("y"))
    if op.integer("deferred"):
        x = _normed(x, op.integer("n_in"), op.number("eps"))
    for i, slot in _slots(op, f):
        if slot:
            term = _slot(op, f, slot, y.shape[1])
            y[i] += op.number("scale") * _term(term, 0, x[i])
    f.write(op.view("y"), y)


def op_low_rank_experts(op: Op, f: Frame) -> None:
    ids = f.read(op.view("ids")).astype(int)  # [T, U]
    x, y = f.read(op.view("x")), f.read(op.view("y"))
    n_used, n_in = ids.shape[1], op.integer("n_in")
    for i, slot in _slots(op, f):
        if slot:
            term, each = _slot(op, f, slot, y.shape[1] // n_used), x[i].reshape(-1, n_in)
            terms = [_term(term, e, each[u % len(each)]) for u, e in enumerate(ids[i])]
            y[i] += np.concatenate(terms)
    f.write(op.view("y"), y)


def op_defer_norm(op: Op, f: Frame) -> None:
    y = f.read(op.view("y"))
    squares = row_sum((y * y).reshape(len(y), y.shape[1] // QUAD, QUAD))[..., 0]  # [T, out / 4]
    f.write(op.view("z"), np.hstack([y * f.store.vector(op.weight("gain")), squares]))


def _slots(op: Op, f: Frame) -> list[tuple[int, int]]:
    """(row, adapter slot) of each row of y."""
    of_outputs = op.view("y").rows == "O"
    owners = [s for _, s, _ in f.step.outputs] if of_outputs else [row.sequence for row in f.step.rows]
    return [(i, f.step.sequences[owner].adapter) for i, owner in enumerate(owners)]


def _slot(op: Op, f: Frame, slot: int, n_out: int) -> Slot:
    state, most, n_in = op.state("adapters"), op.integer("rank"), op.integer("n_in")
    header, values = _parts(f.state.tensor(state, str(op.integer("tensor")))[slot, 0], most + HEADER_FLOATS)
    n_experts = max(op.integer("experts"), 1) if op.name == "low_rank_experts" else 1
    rank, b_at = int(header[most]), n_experts * most * n_in
    a = values[:b_at].reshape(n_experts, most, n_in)
    b = values[b_at : b_at + n_experts * most * n_out].reshape(n_experts, most, n_out)
    return Slot(header[:rank], a[:, :rank], b[:, :rank])


def _parts(stored: Stored, n: int) -> tuple[F64, F64]:
    """The n floats of a slot's header, which are float32 in slots of f16 too, and the values behind them."""
    is_half = stored.dtype == np.float16
    header = stored.view(np.float32)[:n] if is_half else stored[:n]
    return header.astype(np.float64), stored[2 * n if is_half else n :].astype(np.float64)


def _term(slot: Slot, expert: int, x: F64) -> F64:  # [in] -> [out]
    return (slot.scales * (slot.a[expert] @ x)) @ slot.b[expert]


def _normed(x: F64, n: int, eps: float) -> F64:  # a deferred norm [T, n + n / 4] -> [T, n]
    return x[:, :n] / np.sqrt(row_sum(x[:, n:]) / n + eps)
