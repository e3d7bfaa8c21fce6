"""Rows of a weight in its own type, with load ops applied: the stored bytes, where the ops keep them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.backends.common.load_ops import LOAD_OPS, Read, encode_rows, load_rows, part_bytes, stored_bytes
from camelid.formats.quants import row_bytes
from camelid.plan.weights import Weight, with_all_cols

U8: TypeAlias = npt.NDArray[np.uint8]
Stored: TypeAlias = Callable[[int, int], U8]  # (first row, n rows) -> rows in the weight's type
Order: TypeAlias = npt.NDArray[np.intp]  # [rows]
# Load ops that keep every byte in place, that move whole rows, and that need the whole matrix at once.
KEEPS, MOVES, TAKES_ALL = (
    {"concat", "join_groups"},
    {"permute_rows", "rows", "every", "pick"},
    {"transpose", "every", "pick"},
)


def stored_rows(weight: Weight, read: Read) -> Stored:
    """Function that reads rows in the weight's type with load ops applied.

    Work for the whole weight (row order, transposition) is done once, here.
    """
    whole = with_all_cols(weight)
    if whole is not weight:
        return partial(_columns, weight, stored_rows(whole, read))
    names = {op.name for op in weight.load_ops}
    each = row_bytes(weight.type, weight.cols)
    if names <= KEEPS:
        return lambda start, n: part_bytes(weight, read, start * each, n * each)
    if _moves_only(weight):
        return partial(_moved, weight, read, _order(weight))
    if takes_all(weight):
        changed = _changed(weight, read, 0, weight.rows).reshape(-1, each)
        return lambda start, n: changed[start : start + n]
    return partial(_changed, weight, read)


def takes_all(weight: Weight) -> bool:
    """True if a load op needs the values of the whole matrix at once."""
    return not _moves_only(weight) and any(op.name in TAKES_ALL for op in weight.load_ops)


def _moves_only(weight: Weight) -> bool:
    """True if load ops change the order of rows only, not their bytes."""
    return {op.name for op in weight.load_ops} <= KEEPS | MOVES and len(weight.shape) > 1


def _columns(weight: Weight, stored: Stored, start: int, n: int) -> U8:  # [n, row_bytes]
    """Columns of stored rows that are whole blocks."""
    first, _, of = (int(number) for number in weight.load_ops[-1].args)
    low = row_bytes(weight.type, first)
    rows = np.ascontiguousarray(stored(start, n)).reshape(n, row_bytes(weight.type, of))
    return np.ascontiguousarray(rows[:, low : low + row_bytes(weight.type, weight.cols)])


def _moved(weight: Weight, read: Read, order: Order, start: int, n: int) -> U8:  # [n, row_bytes]
    """Rows of a weight whose load ops only move rows."""
    each, rows = row_bytes(weight.type, weight.cols), order[start : start + n]
    first, end = int(rows.min()), int(rows.max()) + 1
    return part_bytes(weight, read, first * each, (end - first) * each).reshape(-1, each)[rows - first]


def _changed(weight: Weight, read: Read, start: int, n: int) -> U8:  # [n * row_bytes]
    """Rows of a weight whose load ops change values: decoded, changed, encoded again."""
    values = load_rows(weight, read, start, n)
    return np.frombuffer(encode_rows(weight.name, weight.type, values), np.uint8)


def _order(weight: Weight) -> Order:
    """Index of the stored row for each row of a weight whose load ops only move rows."""
    n_stored = stored_bytes(weight) // row_bytes(weight.type, weight.cols)
    order = np.arange(n_stored, dtype=np.float32).reshape(-1, 1)  # exact below 2**24
    for op in weight.load_ops:
        order = LOAD_OPS[op.name](order, op)  # row indices move as the rows would
    return order.ravel().astype(np.intp)
