"""Reference kernels of encoders: attention over the rows of the step, pooling, floats as results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from camelid.backends.base import OutputRow
from camelid.backends.reference.attention import attend
from camelid.backends.reference.frame import Frame
from camelid.backends.reference.rows import F64
from camelid.plan.plan import Op
from camelid.plan.step import STATUS, StepSequence


def op_attend_rows(op: Op, f: Frame) -> None:
    heads = {"q": op.integer("n_heads"), "k": op.integer("n_kv_heads"), "v": op.integer("n_kv_heads")}
    q, k, v = (f.read(op.view(role)).reshape(len(f.step.rows), n, -1) for role, n in heads.items())
    bias = f.store.matrix(op.weight("bias")) if op.has("bias") else None  # [2*n + 1, H]
    y = np.zeros((len(q), op.view("y").cols))
    for sequence in f.step.sequences:
        for t in range(sequence.first_row, sequence.first_row + sequence.rows):
            keys = _keys(op, sequence, t)
            near = None if bias is None else _by_distance(bias, keys, t)
            seen = slice(keys.start, keys.stop)
            y[t] = attend(q[t], k[seen], v[seen], scale=op.number("scale"), bias=near)
    f.write(op.view("y"), y)


def op_pool(op: Op, f: Frame) -> None:
    x, pooled = f.read(op.view("x")), POOLINGS[op.word("kind")]
    sequences = [f.step.sequences[number] for _, number, _ in f.step.outputs]
    rows = [pooled(x[s.first_row : s.first_row + s.rows]) for s in sequences]
    f.write(op.view("y"), np.array(rows).reshape(-1, x.shape[1]))


def op_emit(op: Op, f: Frame) -> None:
    for values in f.read(op.view("x")):
        status = STATUS[int(np.isnan(values).any())]
        logits = values.astype(np.float32).data
        f.result.append(OutputRow(token_id=0, status=status, logit=0.0, log_sum_exp=0.0, logits=logits))


def _keys(op: Op, sequence: StepSequence, t: int) -> range:
    """Rows of the step that row t attends to."""
    first, end, reach = sequence.first_row, sequence.first_row + sequence.rows, op.integer("window") // 2
    if op.word("mask") == "symmetric":
        return range(max(first, t - reach), min(end, t + reach + 1))
    return range(first, t + 1 if op.word("mask") == "causal" else end)


def _by_distance(bias: F64, keys: range, t: int) -> F64:  # [keys, H]
    n = len(bias) // 2
    return bias[[max(-n, min(key - t, n)) + n for key in keys]]


POOLINGS: dict[str, Callable[[F64], F64]] = {
    "mean": lambda rows: rows.sum(axis=0) / len(rows),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}
