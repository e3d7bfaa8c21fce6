"""Weights as arrays: each in the form that its products read.

On a GPU a matrix stays in its file's blocks, which `metal/` reads (`Weights.blocks`). Any other weight is
decoded to float32 when it is loaded; f16 and bf16 without load ops keep their type, since float32 holds their
values exactly (`vector`, `matrix`, `rows`, `product`, `expert_product`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np

from camelid.backends.base import Sources
from camelid.backends.common.codecs import CODECS
from camelid.backends.common.load_ops import load_rows, tiles
from camelid.backends.common.part_reader import PartReader
from camelid.errors import BackendError
from camelid.plan.weights import Weight
from camelid_native.mlx.arrays import BF16, F16, F32, U8, Array, indices, mx
from camelid_native.mlx.blocks import TILE_VALUES, Blocks
from camelid_native.mlx.metal.products import embed, fits

WEIGHT_TYPES = frozenset(CODECS)
HALVES = {"f16": F16, "bf16": BF16}
FLOATS = {**HALVES, "f32": F32}


class Weights:
    """Loaded weights by name. All methods belong to the thread that owns MLX."""

    def __init__(self, chain: int = 0, *, has_blocks: bool = False) -> None:
        """With `has_blocks`, matrices of quantized types stay in blocks, for the kernels of `metal/`.

        `chain` is the most products that one chain of sums has, 0 for MLX's own order.

        The CPU's BLAS adds a whole row in one chain, whose error shows where long rows cancel (2,048 columns:
        NMSE 1e-9).
        """
        self._arrays: dict[str, Array] = {}
        self._views: dict[tuple[str, str], Array] = {}
        self._chain, self._has_blocks, self._blocks = chain, has_blocks, Blocks()

    @property
    def counters(self) -> Mapping[str, int]:
        """Bytes of blocks by their place: see `Blocks`."""
        return self._blocks.counters

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def bytes_without(self, names: Container[str]) -> int:
        """Bytes of the weights with other names."""
        return sum(array.nbytes for name, array in self._arrays.items() if name not in names)

    def has_any(self, weights: Sequence[Weight]) -> bool:
        return any(weight.name in self._arrays for weight in weights)

    def load(self, weights: Sequence[Weight], sources: Sources) -> None:
        """Reads weights from their sources. Raises ModelFormatError for a truncated file."""
        with PartReader(sources) as reader:
            for weight in weights:
                self._forget_views(weight)
                in_blocks = self._has_blocks and stays_in_blocks(weight)
                array = self._blocks.read(weight, sources) if in_blocks else _loaded(weight, reader)
                mx.eval(array)
                self._arrays[weight.name] = array

    def _forget_views(self, weight: Weight) -> None:
        self._views = {key: view for key, view in self._views.items() if key[0] != weight.name}

    def clear(self) -> None:
        """Frees all weights, whoever holds this object."""
        self._arrays.clear()
        self._views.clear()

    def placed(self, weight: Weight) -> Array:
        """The array of a weight, in its shape and in the type that it is kept in; of blocks, floats alone."""
        array = self._arrays[weight.name]
        if array.dtype != U8:
            return array
        if weight.type not in FLOATS:
            raise BackendError(
                f"mlx: {weight.name} is in blocks of {weight.type}, which this op does not read; choose the "
                "backend webgpu or cpu",
                backend="mlx",
            )
        return self._view(weight, "floats", lambda: array.view(FLOATS[weight.type]).reshape(weight.shape))

    def blocks(self, weight: Weight) -> Array:  # u8 [rows, bytes of a row]
        """The rows of a matrix in its own type, as `metal/` reads them."""
        return self._arrays[weight.name]

    def vector(self, weight: Weight) -> Array:  # [n]
        return _exact(self.placed(weight)).reshape(-1)

    def matrix(self, weight: Weight) -> Array:  # the weight's shape, in float32
        return _exact(self.placed(weight))

    def rows(self, weight: Weight, numbers: Array) -> Array:  # [n] -> [n, in]
        """Rows of a matrix by number; no other row is widened."""
        array = self._arrays[weight.name]
        if array.dtype == U8:
            return _rows_of_blocks(weight, array, numbers)
        return _exact(array[numbers])

    def product(self, x: Array, weight: Weight) -> Array:  # [T, in] -> [T, out]
        n = self._chain
        if n == 0 or weight.cols <= n or weight.cols % n:
            return x @ _exact(self._turned(weight))
        matrix = self.matrix(weight)
        chains = matrix.reshape(len(matrix), -1, n).transpose(1, 2, 0)  # [in / n, n, out]
        return (x.reshape(len(x), -1, n).swapaxes(0, 1) @ chains).sum(axis=0)

    def _turned(self, weight: Weight) -> Array:  # [in, out]
        return self._view(weight, "turned", lambda: self.placed(weight).T)

    def _view(self, weight: Weight, kind: str, make: Callable[[], Array]) -> Array:
        """A view of a matrix, made once: made in each step it would be one more primitive of its graph."""
        key = (weight.name, kind)
        if key not in self._views:
            self._views[key] = make()
            mx.eval(self._views[key])
        return self._views[key]

    def expert_product(self, x: Array, weight: Weight, ids: Array) -> Array:  # [T, U or 1, in] -> [T, U, out]
        """Each slot's vector times the matrix of the slot's expert; ids [T, U]."""
        stack = self.matrix(weight).swapaxes(1, 2)  # [E, in, out]
        return mx.gather_mm(x[:, :, None], stack, rhs_indices=ids).squeeze(2)


def _rows_of_blocks(weight: Weight, blocks: Array, numbers: Array) -> Array:  # [n] -> [n, in]
    n = len(numbers)
    count = indices(max(n + 1, 8))  # item n is n
    return embed(numbers, blocks, weight_type=weight.type, cols=weight.cols, count=count, count_at=n)


def stays_in_blocks(weight: Weight) -> bool:
    """True for a matrix whose rows `metal/` reads in whole units."""
    return len(weight.shape) > 1 and fits(weight.type, weight.cols)


def kept_bytes(weight: Weight, *, has_blocks: bool = False) -> int:
    """Bytes of a weight as an array."""
    if has_blocks and stays_in_blocks(weight):
        return weight.n_bytes
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
