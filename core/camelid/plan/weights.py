"""Weights as data: byte ranges of sources, and the load ops to apply to them.

A `Weight` contains no numbers of a model file. Each backend reads the ranges and runs the load ops in its own
way (NumPy on reference, WGSL on webgpu).
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

from camelid.formats.quants import row_bytes

INLINE = "inline"  # source of weights whose bytes are part of the plan


@dataclass(frozen=True, slots=True)
class Part:
    """A byte range: `n_bytes` at `offset` of `source`. An inline part has its bytes as base64 in `data`."""

    source: str
    offset: int
    n_bytes: int
    data: str = ""


@dataclass(frozen=True, slots=True)
class LoadOp:
    """One operation of loading a weight. Load ops run in order:

    - `join_groups(mode, bits, group_size, parameters)`: the parts are planes of matrices that MLX quantized:
      of each, words, scales and, in mode affine, biases of type `parameters`. Joins them to rows of the
      weight's stored type; always the first op. See formats/mlx_quant.py.
    - `concat`: the parts follow each other as rows. No-op, since parts always do; it documents the join.
    - `cast(type)`: the stored bytes have this type; the weight's own type is that of the result.
    - `transpose(rows, cols)`: transposes the stored matrix, or each matrix of a stack.
    - `permute_rows(n_heads, head_dim)`: the two halves of each head's rows become adjacent pairs.
    - `rows(start, n, of)`: selects n rows from `start`, out of `of` rows.
    - `every(start, step, of)`: selects the rows `start`, `start + step`, ..., out of `of` rows.
    - `pick(of, *numbers)`: selects the rows of these numbers, out of `of` rows.
    - `cols(start, n, of)`: selects n columns from `start`, out of `of` columns; always the last op.
    - `add(number)`: adds a number to every value.
    - `neg_exp`: replaces every value x by -exp(x).
    - `scale_rows(n, number, n, number, ...)`: multiplies the first n rows by a number, the next n by another
      one, and so on; always the last op.
    """

    name: str
    args: tuple[int | float | str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A parameter of the model. `shape` is row-major: `[out, in]` for a matrix, `[n]` for a vector,
    `[experts, out, in]` for a stack of matrices."""

    name: str
    type: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    load_ops: tuple[LoadOp, ...] = ()

    @property
    def rows(self) -> int:
        return prod(self.shape[:-1])

    @property
    def cols(self) -> int:
        return self.shape[-1]

    @property
    def n_bytes(self) -> int:
        return self.rows * row_bytes(self.type, self.cols)

    @property
    def stored_type(self) -> str:
        """Type of the stored bytes, before a cast."""
        return next((str(op.args[0]) for op in self.load_ops if op.name == "cast"), self.type)

    @property
    def has_planes(self) -> bool:
        """True if the parts are planes of a matrix that MLX quantized."""
        return bool(self.load_ops) and self.load_ops[0].name == "join_groups"

    def then(self, name: str, *args: int | float | str) -> Weight:
        """The weight with one more load op at the end."""
        return replace(self, load_ops=(*self.load_ops, LoadOp(name, args)))


def inline_f32(name: str, values: Iterable[float], shape: tuple[int, ...]) -> Weight:
    """A float32 weight whose values are part of the plan, e.g. a table of RoPE angles."""
    return Weight(name=name, type="f32", shape=shape, parts=(inline_part(array("f", values).tobytes()),))


def inline_part(raw: bytes) -> Part:
    """A part whose bytes are in the plan."""
    return Part(INLINE, 0, len(raw), base64.b64encode(raw).decode("ascii"))


def concat_rows(name: str, *weights: Weight) -> Weight:
    """Joins matrices of equal types and row lengths by their rows, or vectors by their values.

    Their load ops are none, or one equal `join_groups` (`can_concat`).
    """
    first = weights[0]
    shape = (sum(w.shape[0] for w in weights), *first.shape[1:])
    parts = tuple(part for w in weights for part in w.parts)
    ops = first.load_ops if first.has_planes else ()
    return Weight(name=name, type=first.type, shape=shape, parts=parts, load_ops=ops).then("concat", 0)


def can_concat(*weights: Weight) -> bool:
    """True if rows of the weights can follow each other: plain ones, or planes of one kind."""
    ops = {weight.load_ops for weight in weights}
    return ops == {()} or (len(ops) == 1 and weights[0].has_planes and len(weights[0].load_ops) == 1)


def take_rows(weight: Weight, name: str, ranges: Iterable[tuple[int, int]]) -> Weight:
    """Rows of these ranges (start, n), joined in order: byte ranges of a plain weight, else a load op.

    A row of a stack is a matrix. Ranges may repeat rows.
    """
    spans, n_rows = list(ranges), weight.shape[0]
    if len(spans) == 1:
        return cut_rows(weight, name, *spans[0])
    shape = (sum(n for _, n in spans), *weight.shape[1:])
    if not _has_byte_ranges(weight):
        numbers = (row for start, n in spans for row in range(start, start + n))
        return replace(weight, name=name, shape=shape).then("pick", n_rows, *numbers)
    each = weight.n_bytes // n_rows
    parts = (part for start, n in spans for part in _byte_range(weight, start * each, n * each))
    return replace(weight, name=name, shape=shape, parts=tuple(parts))


def swap_columns(weight: Weight, outer: int, inner: int) -> Weight:
    """Columns [outer, inner, n] of a matrix in the order [inner, outer, n].

    Blocks become float32: encoded again, they would round a second time.
    """
    n = weight.cols // (outer * inner)
    weight = as_f32(weight) if weight.has_planes else weight
    weight = weight.then("transpose", outer, inner * n)  # [rows, inner, n, outer]
    return weight.then("transpose", n, outer)


def as_f32(weight: Weight) -> Weight:
    """The weight in float32, by a load op if it has another type."""
    return weight if weight.type == "f32" else replace(weight, type="f32").then("cast", weight.type)


def cut_rows(weight: Weight, name: str, start: int, n: int) -> Weight:
    """Rows `start .. start + n` as a new weight: a byte range if the weight is plain, else a load op."""
    n_rows, each = weight.shape[0], weight.n_bytes // weight.shape[0]
    shape = (n, *weight.shape[1:])
    part, *more = weight.parts
    if weight.load_ops or more or part.source == INLINE:
        return replace(weight, name=name, shape=shape).then("rows", start, n, n_rows)
    cut = Part(part.source, part.offset + start * each, n * each)
    return replace(weight, name=name, shape=shape, parts=(cut,))


def cut_cols(weight: Weight, name: str, start: int, n: int) -> Weight:
    """Columns `start .. start + n`, whole blocks of the weight's type, as a new weight."""
    cut = replace(weight, name=name, shape=(*weight.shape[:-1], n))
    return cut.then("cols", start, n, weight.cols)


def with_all_cols(weight: Weight) -> Weight:
    """The weight before its load op `cols`; the weight itself if it has none."""
    if not weight.load_ops or weight.load_ops[-1].name != "cols":
        return weight
    *ops, cols = weight.load_ops
    return replace(weight, shape=(*weight.shape[:-1], int(cols.args[2])), load_ops=tuple(ops))


def cut_each(weight: Weight, name: str, start: int, n: int) -> Weight:
    """Rows `start .. start + n` of each matrix of a stack [matrices, rows, cols]."""
    n_matrices, n_rows, cols = weight.shape
    spans = [(i * n_rows + start, n) for i in range(n_matrices)]
    flat = replace(weight, shape=(n_matrices * n_rows, cols))
    if _has_byte_ranges(weight):
        each = row_bytes(weight.type, cols)
        parts = (part for first, n in spans for part in _byte_range(weight, first * each, n * each))
        return replace(weight, name=name, shape=(n_matrices, n, cols), parts=tuple(parts))
    return replace(take_rows(flat, name, spans), shape=(n_matrices, n, cols))


def _has_byte_ranges(weight: Weight) -> bool:
    """True if every row of the weight is a range of bytes of its sources."""
    is_plain = {op.name for op in weight.load_ops} <= {"concat"}
    return is_plain and all(part.source != INLINE for part in weight.parts)


def _byte_range(weight: Weight, start: int, n: int) -> Iterator[Part]:
    """Bytes `start .. start + n` of the parts of a weight that is not inline."""
    at = 0
    for part in weight.parts:
        low, high = max(start, at), min(start + n, at + part.n_bytes)
        if low < high:
            yield Part(part.source, part.offset + low - at, high - low)
        at += part.n_bytes
