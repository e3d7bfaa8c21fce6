"""Weights as data: where the bytes lie, and what is done to them while loading.

A `Weight` never holds numbers. It names byte ranges of sources and a short list of load ops; each backend
executes those in its own way (NumPy on the reference, WGSL on webgpu).
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from camelid.formats.quants import row_bytes

INLINE = "inline"  # the source of weights that travel inside the plan


@dataclass(frozen=True, slots=True)
class Part:
    """`n_bytes` bytes at `offset` of `source`. An inline part carries its bytes as base64 text."""

    source: str
    offset: int
    n_bytes: int
    data: str = ""


@dataclass(frozen=True, slots=True)
class LoadOp:
    """One step of loading, as data, in order:

    `concat` parts follow each other as rows (they always do; the word documents it); `cast(type)` the bytes
    are of this type, the weight's own type is that of the result; `transpose(rows, cols)` of a stored matrix;
    `permute_rows(n_heads, head_dim)` halves of each head's rows become adjacent pairs; `rows(start, n, of)`
    keeps n of so many; `pick(of, *numbers)` takes the rows of these numbers, out of so many;
    `add(number)` to every value; `neg_exp` makes -exp(x) of every value x.
    """

    name: str
    args: tuple[int | float | str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A parameter of the model. `shape` is row-major, `[out, in]` for matrices, `[n]` for vectors,
    `[experts, out, in]` for stacks of matrices."""

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
        """The type of the parts' bytes."""
        return next((str(op.args[0]) for op in self.load_ops if op.name == "cast"), self.type)

    def then(self, name: str, *args: int | float | str) -> Weight:
        """The same weight with one more load op."""
        return replace(self, load_ops=(*self.load_ops, LoadOp(name, args)))


def inline_f32(name: str, values: Iterable[float], shape: tuple[int, ...]) -> Weight:
    """A float32 weight that travels inside the plan, e.g. a table of RoPE angles."""
    return Weight(name=name, type="f32", shape=shape, parts=(inline_part(array("f", values).tobytes()),))


def inline_part(raw: bytes) -> Part:
    """Bytes that travel inside the plan."""
    return Part(INLINE, 0, len(raw), base64.b64encode(raw).decode("ascii"))


def concat_rows(name: str, *weights: Weight) -> Weight:
    """One weight made of the rows of several. All must share type and row length."""
    first = weights[0]
    shape = (sum(w.rows for w in weights), first.cols)
    parts = tuple(part for w in weights for part in w.parts)
    return Weight(name=name, type=first.type, shape=shape, parts=parts).then("concat", 0)


def take_rows(weight: Weight, name: str, ranges: Iterable[tuple[int, int]]) -> Weight:
    """Rows of these ranges (start, n), one after the other: cut by bytes if plain, else while loading."""
    wanted, n_rows = list(ranges), weight.shape[0]
    if len(wanted) == 1:
        return cut_rows(weight, name, *wanted[0])
    shape = (sum(n for _, n in wanted), *weight.shape[1:])
    part, *more = weight.parts
    if weight.load_ops or more or part.source == INLINE:
        numbers = (row for start, n in wanted for row in range(start, start + n))
        return replace(weight, name=name, shape=shape).then("pick", n_rows, *numbers)
    each = weight.n_bytes // n_rows
    parts = tuple(Part(part.source, part.offset + start * each, n * each) for start, n in wanted)
    return replace(weight, name=name, shape=shape, parts=parts)


def cut_rows(weight: Weight, name: str, start: int, n: int) -> Weight:
    """Rows `start .. start + n` as a weight of their own: cut by bytes if plain, else while loading."""
    n_rows, each = weight.shape[0], weight.n_bytes // weight.shape[0]
    shape = (n, *weight.shape[1:])
    part, *more = weight.parts
    if weight.load_ops or more or part.source == INLINE:
        return replace(weight, name=name, shape=shape).then("rows", start, n, n_rows)
    cut = Part(part.source, part.offset + start * each, n * each)
    return replace(weight, name=name, shape=shape, parts=(cut,))
