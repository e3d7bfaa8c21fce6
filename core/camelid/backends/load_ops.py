"""Load ops in NumPy: from the bytes of a weight's parts to its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.backends.codecs import decode
from camelid.formats.quants import QUANTS
from camelid.plan.weights import LoadOp, Weight

F32: TypeAlias = npt.NDArray[np.float32]


def load_values(weight: Weight, raw: npt.NDArray[np.uint8]) -> F32:  # [rows, cols]
    """The whole weight in float32, its load ops done."""
    row = QUANTS[weight.stored_type]
    values = decode(row.name, raw, len(raw) // row.block_bytes * row.block)
    for op in weight.load_ops:
        values = LOAD_OPS[op.name](values, op)
    return values.reshape(weight.rows, weight.cols)


def _same(values: F32, _: LoadOp) -> F32:
    return values


def _transpose(values: F32, op: LoadOp) -> F32:
    rows, cols = (int(n) for n in op.args)
    return np.ascontiguousarray(values.reshape(rows, cols).T)


def _permute_rows(values: F32, op: LoadOp) -> F32:
    """Rows (head, half, i) become (head, i, half): rotation of halves becomes rotation of adjacent pairs."""
    n_heads, head_dim = (int(n) for n in op.args)
    halves = values.reshape(n_heads, 2, head_dim // 2, -1)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(n_heads * head_dim, -1)


def _rows(values: F32, op: LoadOp) -> F32:
    start, n, of = (int(number) for number in op.args)
    return values.reshape(of, -1)[start : start + n]


def _add(values: F32, op: LoadOp) -> F32:
    return values + np.float32(op.args[0])


LOAD_OPS: dict[str, Callable[[F32, LoadOp], F32]] = {
    "concat": _same,
    "cast": _same,
    "transpose": _transpose,
    "permute_rows": _permute_rows,
    "rows": _rows,
    "add": _add,
}
