"""Weights above a binding's limit: cut by rows into pieces, each with its own buffer.

An op on such a weight becomes one dispatch per piece. The order of a row's sum does not depend on the piece,
so its bits do not either.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from camelid.backends.webgpu.kernel import Constants
from camelid.backends.webgpu.layouts import bound_bytes, more_bytes
from camelid.errors import OutOfMemoryError
from camelid.formats.quants import row_bytes
from camelid.plan.op_rows_fused import QUAD
from camelid.plan.plan import Op, View
from camelid.plan.weights import INLINE, Part, Weight, inline_part

ROWS = 64  # pieces have a multiple of these rows, so that a workgroup's rows are all in one piece


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a weight as a weight of their own; `first` is the number of the first of all rows."""

    weight: Weight
    first: int = 0


def pieces(weight: Weight, most_bytes: int) -> list[Piece]:
    """The pieces of at most `most_bytes` bytes on the device; a vector and a small weight are one piece.

    A piece of a stack has whole matrices, or rows of one matrix that is itself too large.
    """
    if bound_bytes(weight) <= most_bytes or len(weight.shape) == 1:
        return [Piece(weight)]
    most = (most_bytes - more_bytes(weight.type)) // row_bytes(weight.type, weight.cols)
    if most < 1:
        return [Piece(weight)]
    return [Piece(_cut(weight, first, n), first) for first, n in _spans(weight, most)]


def _spans(weight: Weight, most: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each piece of at most `most` rows."""
    n_out = weight.shape[-2]
    span, step = (weight.rows, most // n_out * n_out) if most >= n_out else (n_out, _rounded(most))
    for start in range(0, weight.rows, span):
        for at in range(0, span, step):
            yield start + at, min(step, span - at)


def _rounded(n_rows: int) -> int:
    return n_rows // ROWS * ROWS or n_rows // QUAD * QUAD or n_rows


def _cut(weight: Weight, first: int, n: int) -> Weight:
    """Rows `first .. first + n`: byte ranges of a weight that loads unchanged, else a load op."""
    name = f"{weight.name}[{first}:{first + n}]"
    stack = (max(n // weight.shape[-2], 1),) if len(weight.shape) > 2 else ()
    shape = (*stack, n // (stack[0] if stack else 1), weight.cols)
    if any(op.name != "concat" for op in weight.load_ops):
        return replace(weight, name=name, shape=shape).then("rows", first, n, weight.rows)
    each = row_bytes(weight.type, weight.cols)
    parts = tuple(_ranges(weight, first * each, (first + n) * each))
    return replace(weight, name=name, shape=shape, parts=parts, load_ops=())


def _ranges(weight: Weight, start: int, end: int) -> Iterator[Part]:
    """The parts of bytes `start .. end` of a weight."""
    at = 0
    for part in weight.parts:
        low, high = max(start - at, 0), min(end - at, part.n_bytes)
        if low < high and part.source == INLINE:
            yield inline_part(base64.b64decode(part.data)[low:high])
        elif low < high:
            yield replace(part, offset=part.offset + low, n_bytes=high - low)
        at += part.n_bytes


def op_pieces(op: Op, most_bytes: int) -> Iterator[tuple[Op, Constants]]:
    """The op on each piece of its weight, with the constants that place the piece.

    Raises OutOfMemoryError for a large weight of an op that runs on whole weights only.
    """
    large = {role: w for role, w in op.operands if isinstance(w, Weight) and len(pieces(w, most_bytes)) > 1}
    if not large:
        yield op, {}
    elif op.name in PLACED and [*large] == ["weight"]:
        yield from (PLACED[op.name](op, piece) for piece in pieces(large["weight"], most_bytes))
    else:
        weight = next(iter(large.values()))
        raise OutOfMemoryError(
            f"{op.name} binds {weight.name} of {weight.n_bytes:,} bytes as a whole, this device allows at "
            f"most {most_bytes:,}; use a smaller quantization, another device, or --backend reference",
            want_bytes=weight.n_bytes, limit_bytes=most_bytes,
        )  # fmt: skip


def _with(op: Op, **operands: View | Weight) -> Op:
    return replace(op, operands=tuple((role, operands.get(role, one)) for role, one in op.operands))


def _columns(op: Op, piece: Piece) -> tuple[Op, Constants]:
    """Linear maps: a piece makes columns of y."""
    y = op.view("y")
    columns = View(y.buffer, piece.weight.rows, y.offset + piece.first)
    return _with(op, weight=piece.weight, y=columns), {"FIRST_ROW": piece.first}


def _columns_and_norm(op: Op, piece: Piece) -> tuple[Op, Constants]:
    """`linear_add_norm`: also columns of both parts of z."""
    z, y = op.view("z"), op.view("y")
    own, places = _columns(op, piece)
    squares = y.cols + piece.first // QUAD - piece.first  # from the place of the piece's values
    return own, places | {
        "Z_OFFSET": z.offset + piece.first,
        "SQUARES_AT": squares,
        "GAIN_AT": piece.first,
    }


def _rows(op: Op, piece: Piece) -> tuple[Op, Constants]:
    """`embed`, `embed_position`: a row of y or x is of one piece, and the other pieces leave it."""
    places: Constants = {
        "PLACES": op.weight("weight").rows,
        "FIRST_ROW": piece.first,
        "PIECE_ROWS": piece.weight.rows,
    }
    return _with(op, weight=piece.weight), places


def _experts(op: Op, piece: Piece) -> tuple[Op, Constants]:
    """`linear_experts`: a piece makes the slots of its experts, or some of their columns."""
    n_experts, n_out, _ = op.weight("weight").shape
    return _with(op, weight=piece.weight), {
        "EXPERTS": n_experts,
        "FIRST_EXPERT": piece.first // n_out,
        "PIECE_EXPERTS": piece.weight.shape[0],
        "Y_SLOT": n_out,
        "Y_OFFSET": op.view("y").offset + piece.first % n_out,
        "FIRST_ROW": piece.first,
    }


PLACED: Mapping[str, Callable[[Op, Piece], tuple[Op, Constants]]] = {
    "linear": _columns,
    "norm_linear": _columns,
    "linear_add": _columns,
    "linear_add_norm": _columns_and_norm,
    "embed": _rows,
    "embed_position": _rows,
    "linear_experts": _experts,
}
