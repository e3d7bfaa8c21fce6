"""Weights of the reference: mapped files, decoded to float64 a tile of rows at a time.

A large matrix is never in memory as a whole: an embedding decodes the requested rows, a product decodes,
multiplies and frees one tile after another. A matrix that fits the cache stays decoded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Sources
from camelid.backends.common.load_ops import load_rows, tiles
from camelid.backends.common.mapped_file import MappedFile
from camelid.backends.reference.rows import F64
from camelid.plan.weights import INLINE, Part, Weight

# A tile of 2**18 values (128 rows of 2048) has 2 MiB in float64, 1 MiB in float32 and at most 1 MiB of
# quantized bytes, so it stays in the core's cache for all rows of a batch. Products with 2**19 values took 2
# to 10 times as long (2048 columns, two cores). Tile borders depend on the weight's shape alone, cached or
# not: BLAS may sum a row in another order when the height of the matrix differs.
TILE_VALUES = 1 << 18
# Limit of decoded matrices. Nothing is evicted: with a cyclic access, the oldest matrix is needed next.
CACHE_BYTES = 160 << 20
Tile: TypeAlias = tuple[int, F64]  # first row within the matrix, values [n, in]
U8: TypeAlias = npt.NDArray[np.uint8]


class WeightStore:
    """Weights by name. `matrix` and `vector` are for small weights only."""

    def __init__(self) -> None:
        self.weights: dict[str, Weight] = {}
        self._files: dict[str, MappedFile] = {}
        self._inline: dict[str, U8] = {}  # by base64 text, which the plan keeps in memory anyway
        self._decoded: dict[str, dict[tuple[int, int], list[Tile]]] = {}  # by name, then (first row, rows)
        self._decoded_bytes = 0

    def add(self, weights: Sequence[Weight], sources: Sources) -> None:
        used = {part.source for weight in weights for part in weight.parts}
        self._files |= {name: MappedFile(path) for name, path in sources.items() if name in used}
        for weight in weights:
            self.weights[weight.name] = weight
            self._forget(weight.name)

    def check(self) -> None:
        """Raises DeviceLostError if a file was written since it was mapped."""
        for file in self._files.values():
            file.check()

    def matrix(self, weight: Weight) -> F64:  # [out, in]
        """The whole matrix, decoded; for small weights only."""
        parts = [tile for _, tile in self._tiles(weight)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def vector(self, weight: Weight) -> F64:  # [n]
        return self.matrix(weight).ravel()

    def rows(self, weight: Weight, numbers: Sequence[int]) -> F64:  # [n, in]
        """Rows of a matrix by number, for an embedding. Decodes no other rows."""
        found = np.empty((len(numbers), weight.cols))
        for at, number in enumerate(numbers):
            found[at] = load_rows(weight, self._read, number, 1)[0]
        return found

    def multiply(self, weight: Weight, x: F64) -> F64:  # x [T, in] -> [T, out]
        """weight @ row for each row of x, each as a product of its own."""
        return products(self._tiles(weight), x, weight.rows)

    def multiply_expert(self, weight: Weight, expert: int, x: F64) -> F64:  # x [n, in] -> [n, out]
        """`multiply` with one matrix of a stack."""
        one = replace(weight, shape=weight.shape[1:])
        return products(self._tiles(one, expert * one.rows), x, one.rows)

    def _tiles(self, weight: Weight, first: int = 0) -> Iterable[Tile]:
        """Tiles of a matrix; in a stack, of the matrix whose first row is `first`."""
        decoded, key = self._decoded.setdefault(weight.name, {}), (first, weight.rows)
        if key not in decoded:
            n_bytes = 8 * weight.rows * weight.cols
            if self._decoded_bytes + n_bytes > CACHE_BYTES:
                return self._decode(weight, first)
            decoded[key] = list(self._decode(weight, first))
            self._decoded_bytes += n_bytes
        return decoded[key]

    def _forget(self, name: str) -> None:
        """Drops decoded tiles of a weight: a reloaded weight may have another shape or file."""
        for decoded in self._decoded.pop(name, {}).values():
            self._decoded_bytes -= sum(tile.nbytes for _, tile in decoded)

    def _decode(self, weight: Weight, first: int) -> Iterator[Tile]:
        for start, n in tiles(weight, TILE_VALUES):
            yield start, load_rows(weight, self._read, first + start, n).astype(np.float64)

    def _read(self, part: Part, offset: int, n_bytes: int) -> U8:
        if part.source != INLINE:
            return self._files[part.source].pages[part.offset + offset : part.offset + offset + n_bytes]
        if part.data not in self._inline:
            self._inline[part.data] = np.frombuffer(base64.b64decode(part.data), np.uint8)
        return self._inline[part.data][offset : offset + n_bytes]


def products(tiles: Iterable[Tile], x: F64, n_out: int) -> F64:  # x [T, in] -> [T, out]
    y = np.empty((len(x), n_out, 1))
    for start, tile in tiles:
        # x as columns makes one matrix-vector product per row, so its bits do not depend on the other rows.
        np.matmul(tile, x[:, :, None], out=y[:, start : start + len(tile)])
    return y[:, :, 0]
