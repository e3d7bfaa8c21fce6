"""Load ops in NumPy: decodes the bytes of a weight's parts to values, a tile of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.backends.common.codecs import decode, encode
from camelid.backends.common.join_groups import (
    joined,
    n_rows,
    plane_parts,
    plane_widths,
    values_of_groups,
)
from camelid.errors import ModelFormatError
from camelid.formats.quants import QUANTS, row_bytes
from camelid.plan.weights import LoadOp, Part, Weight, with_all_cols

F32: TypeAlias = npt.NDArray[np.float32]
U8: TypeAlias = npt.NDArray[np.uint8]
HALF_MAX = 65504.0
Encoder: TypeAlias = Callable[[str, F32], U8]
Read: TypeAlias = Callable[[Part, int, int], U8]  # (part, offset within it, n_bytes) -> bytes


def load_rows(weight: Weight, read: Read, start: int, n: int) -> F32:  # [n, cols]
    """Rows `start .. start + n` in float32, with load ops applied.

    Reads only the bytes of these rows, unless a load op needs the whole matrix (transpose, every, pick, rows
    of a vector). With `permute_rows`, `start` and `n` must be multiples of head_dim, as the tiles of `tiles`
    are.
    """
    whole = with_all_cols(weight)
    if whole is not weight:
        return _cols(load_rows(whole, read, start, n), weight.load_ops[-1])
    if weight.load_ops and weight.load_ops[-1].name == "scale_rows":
        *ops, scale = weight.load_ops
        return (
            load_rows(replace(weight, load_ops=tuple(ops)), read, start, n)
            * _factors(scale)[start : start + n]
        )
    names = {op.name for op in weight.load_ops}
    if names & {"transpose", "every", "pick"} or ("rows" in names and len(weight.shape) == 1):
        return _whole(weight, read)[start : start + n]
    first = start + sum(int(op.args[0]) for op in weight.load_ops if op.name == "rows")
    values = _stored_values(weight, read, first, n)
    for op in weight.load_ops:
        if op.name != "rows":
            values = LOAD_OPS[op.name](values.reshape(n, weight.cols), op)
    return values.reshape(n, weight.cols)


def tiles(weight: Weight, max_values: int) -> Iterator[tuple[int, int]]:
    """Yields (start, n) of consecutive tiles of up to `max_values` values. The tiles depend on the shape
    alone.

    A transposed matrix is one tile, since each of its rows needs all stored values.
    """
    if any(op.name == "transpose" for op in weight.load_ops):
        yield 0, weight.rows
        return
    heads = [int(op.args[1]) for op in weight.load_ops if op.name == "permute_rows"]
    step = heads[0] if heads else 1
    height = max(max_values // weight.cols // step, 1) * step
    for start in range(0, weight.rows, height):
        yield start, min(height, weight.rows - start)


def encode_rows(name: str, to: str, values: F32, encoder: Encoder = encode) -> bytes:
    """Encodes values in type `to`.

    Raises ModelFormatError with the tensor's name for values that overflow it.
    """
    try:
        raw = encoder(to, values)
    except ModelFormatError as error:
        raise ModelFormatError(f"{name}: {error.message}", **{**error.facts, "tensor": name}) from None
    # Half-precision values and scales end at 65504; only larger inputs need the decode to check for overflow.
    if np.abs(values).max(initial=0.0) > HALF_MAX and not np.isfinite(decode(to, raw, values.size)).all():
        most = np.abs(values).max()
        message = f"{name}: values up to {most:g} overflow {to}; convert to bf16 or f32"
        raise ModelFormatError(message, tensor=name)
    return raw.tobytes()


def _whole(weight: Weight, read: Read) -> F32:
    row = QUANTS[weight.stored_type]
    if weight.has_planes:
        values = _stored_values(weight, read, 0, n_rows(weight))
    else:
        raw = _range(weight.parts, read, 0, stored_bytes(weight))
        values = decode(row.name, raw, len(raw) // row.block_bytes * row.block)
    for op in weight.load_ops:
        values = LOAD_OPS[op.name](values, op)
    return values.reshape(-1, weight.cols)


def _stored_values(weight: Weight, read: Read, start: int, n: int) -> F32:  # [n * cols]
    """Values of stored rows, before load ops that change them."""
    if weight.has_planes:
        return values_of_groups(weight, _planes(weight, read, start, n))
    each = row_bytes(weight.stored_type, weight.cols)
    return decode(weight.stored_type, part_bytes(weight, read, start * each, n * each), n * weight.cols)


def part_bytes(weight: Weight, read: Read, start: int, n: int) -> U8:
    """Bytes `start .. start + n` of the weight in its stored type, without its load ops: of the concatenated
    parts, or of whole rows that are joined from planes."""
    if weight.has_planes:
        each = row_bytes(weight.stored_type, weight.cols)
        return joined(weight, _planes(weight, read, start // each, n // each))
    return _range(weight.parts, read, start, n)


def stored_bytes(weight: Weight) -> int:
    """Bytes of the weight in its stored type, before load ops that select rows."""
    if weight.has_planes:
        return n_rows(weight) * row_bytes(weight.stored_type, weight.cols)
    return sum(part.n_bytes for part in weight.parts)


def _planes(weight: Weight, read: Read, start: int, n: int) -> list[U8]:
    """Rows of each plane, [n, bytes of a row]."""
    widths = plane_widths(weight.load_ops[0], weight.cols)
    parts = zip(plane_parts(weight), widths, strict=True)
    return [_range(each, read, start * width, n * width).reshape(n, width) for each, width in parts]


def _range(parts: Sequence[Part], read: Read, start: int, n: int) -> U8:
    """Bytes `start .. start + n` of the concatenated parts."""
    pieces: list[U8] = []
    at = 0
    for part in parts:
        low, high = max(start, at), min(start + n, at + part.n_bytes)
        if low < high:
            pieces.append(read(part, low - at, high - low))
        at += part.n_bytes
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _same(values: F32, _: LoadOp) -> F32:
    return values


def _transpose(values: F32, op: LoadOp) -> F32:
    rows, cols = (int(n) for n in op.args)
    return np.ascontiguousarray(values.reshape(-1, rows, cols).swapaxes(1, 2))


def _permute_rows(values: F32, op: LoadOp) -> F32:
    """Moves row (head, half, i) to (head, i, half): RoPE of halves becomes RoPE of adjacent pairs."""
    head_dim = int(op.args[1])
    cols = values.shape[-1] if values.ndim > 1 and values.shape[0] > 1 else 1
    halves = values.reshape(-1, 2, head_dim // 2, cols)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def _rows(values: F32, op: LoadOp) -> F32:
    start, n, of = (int(number) for number in op.args)
    return values.reshape(of, -1)[start : start + n]


def _every(values: F32, op: LoadOp) -> F32:
    start, step, of = (int(number) for number in op.args)
    return values.reshape(of, -1)[start::step]


def _pick(values: F32, op: LoadOp) -> F32:
    of, *numbers = (int(number) for number in op.args)
    return values.reshape(of, -1)[numbers]


def _cols(values: F32, op: LoadOp) -> F32:
    start, n, of = (int(number) for number in op.args)
    return np.ascontiguousarray(values.reshape(-1, of)[:, start : start + n])


def _add(values: F32, op: LoadOp) -> F32:
    return values + np.float32(op.args[0])


def _factors(op: LoadOp) -> F32:  # [rows, 1]
    """The number by which `scale_rows` multiplies each row."""
    return np.repeat(np.array(op.args[1::2], np.float32), np.array(op.args[::2], np.intp))[:, None]


def _neg_exp(values: F32, _: LoadOp) -> F32:
    return -np.exp(values, dtype=np.float64).astype(np.float32)


LOAD_OPS: dict[str, Callable[[F32, LoadOp], F32]] = {
    "join_groups": _same,
    "concat": _same,
    "cast": _same,
    "transpose": _transpose,
    "permute_rows": _permute_rows,
    "rows": _rows,
    "every": _every,
    "pick": _pick,
    "add": _add,
    "neg_exp": _neg_exp,
}
