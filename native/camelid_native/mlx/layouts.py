"""Weights as arrays: each in the form that its products read.

A weight is decoded to float32 when it is loaded. f16 and bf16 without load ops keep their type, since float32
holds their values exactly. `Weights` is the seam for kernels that read a file's own blocks: for matrices, ops
use `product`, `expert_product` and `rows` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from camelid.backends.base import Sources
from camelid.backends.common.codecs import CODECS
from camelid.backends.common.load_ops import load_rows, tiles
from camelid.backends.common.part_reader import PartReader
from camelid.plan.weights import Weight
from camelid_native.mlx.arrays import BF16, F16, Array, mx

WEIGHT_TYPES = frozenset(CODECS)
HALVES = {"f16": F16, "bf16": BF16}
TILE_VALUES = 1 << 22  # values decoded at once while loading


class Weights:
    """Loaded weights by name. All methods belong to the thread that owns MLX."""

    def __init__(self, chain: int = 0) -> None:
        """`chain` is the most products that one chain of sums has, 0 for MLX's own order.

        The CPU's BLAS adds a whole row in one chain, whose error shows where long rows cancel (2,048 columns:
        NMSE 1e-9).
        """
        self._arrays: dict[str, Array] = {}
        self._views: dict[str, Array] = {}
        self._chain = chain

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def has_any(self, weights: Sequence[Weight]) -> bool:
        return any(weight.name in self._arrays for weight in weights)

    def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Reads weights from their sources. Raises ModelFormatError for a truncated file."""
        with PartReader(sources) as reader:
            for weight in weights:
                self._views.pop(weight.name, None)
                self._arrays[weight.name] = _loaded(weight, reader)
                mx.eval(self._arrays[weight.name])

    def clear(self) -> None:
        """Frees all weights, whoever holds this object."""
        self._arrays.clear()
        self._views.clear()

    def placed(self, weight: Weight) -> Array:
        """The array of a weight, in its shape and in the type that it is kept in."""
        return self._arrays[weight.name]

    def vector(self, weight: Weight) -> Array:  # [n]
        return _exact(self.placed(weight)).reshape(-1)

    def matrix(self, weight: Weight) -> Array:  # the weight's shape, in float32
        return _exact(self.placed(weight))

    def rows(self, weight: Weight, numbers: Array) -> Array:  # [n] -> [n, in]
        """Rows of a matrix by number; no other row is widened."""
        return _exact(self.placed(weight)[numbers])

    def product(self, x: Array, weight: Weight) -> Array:  # [T, in] -> [T, out]
        n = self._chain
        if n == 0 or weight.cols <= n or weight.cols % n:
            return x @ _exact(self._turned(weight))
        matrix = self.matrix(weight)
        chains = matrix.reshape(len(matrix), -1, n).transpose(1, 2, 0)  # [in / n, n, out]
        return (x.reshape(len(x), -1, n).swapaxes(0, 1) @ chains).sum(axis=0)

    def _turned(self, weight: Weight) -> Array:  # [in, out]
        """A view of a matrix, made once: made in each step it would be one more primitive of its graph."""
        if weight.name not in self._views:
            self._views[weight.name] = self.placed(weight).T
            mx.eval(self._views[weight.name])
        return self._views[weight.name]

    def expert_product(self, x: Array, weight: Weight, ids: Array) -> Array:  # [T, U or 1, in] -> [T, U, out]
        """Each slot's vector times the matrix of the slot's expert; ids [T, U]."""
        stack = self.matrix(weight).swapaxes(1, 2)  # [E, in, out]
        return mx.gather_mm(x[:, :, None], stack, rhs_indices=ids).squeeze(2)


def kept_bytes(weight: Weight) -> int:
    """Bytes of a weight as an array."""
    return weight.rows * weight.cols * (2 if _stays_half(weight) else 4)


def _stays_half(weight: Weight) -> bool:
    return weight.type in HALVES and {op.name for op in weight.load_ops} <= {"concat"}


def _loaded(weight: Weight, reader: PartReader) -> Array:
    if _stays_half(weight):
        raw = np.concatenate([reader.read(part, 0, part.n_bytes) for part in weight.parts])
        return mx.array(raw).view(HALVES[weight.type]).reshape(weight.shape)
    values = np.empty((weight.rows, weight.cols), np.float32)
    for start, n in tiles(weight, TILE_VALUES):
        values[start : start + n] = load_rows(weight, reader.read, start, n)
    return mx.array(values.reshape(weight.shape))


def _exact(array: Array) -> Array:
    return array if array.dtype == mx.float32 else array.astype(mx.float32)
