"""Weights of the reference: mapped files, decoded to float64 a tile of rows at a time.

No big matrix is ever whole in memory: an embedding decodes the rows that are looked up, a product decodes,
multiplies and forgets one tile after another. A matrix that fits the cache stays decoded.
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
from camelid.backends.reference.rows import F64
from camelid.errors import ModelFormatError
from camelid.plan.weights import INLINE, Part, Weight

# A tile of 2**18 values is 2 MiB in float64, 1 MiB in float32 on its way there, and 1 MiB of bytes at most
# if the file is quantized: it stays near the core for every row of a batch. 128 rows of 2048, one row of a
# quarter of a million. Its borders come from the weight's shape alone, cached or not, whatever the batch:
# BLAS may sum a row in another order when the matrix around it has another height. From 2**19 values on a
# product took two to ten times as long (measured with 2048 columns on two cores).
TILE_VALUES = 1 << 18
CACHE_BYTES = 160 << 20  # of decoded matrices. First come stays: in a cycle, the oldest is needed next
Tile: TypeAlias = tuple[int, F64]  # its first row within the matrix, [n, in]
U8: TypeAlias = npt.NDArray[np.uint8]


class WeightStore:
    """Weights by name. `matrix` and `vector` are for small ones, `rows` and the products for any."""

    def __init__(self) -> None:
        self.weights: dict[str, Weight] = {}
        self._files: dict[str, U8] = {}
        self._inline: dict[str, U8] = {}  # by base64, which is longer and stays in the plan
        self._decoded: dict[str, dict[tuple[int, int], list[Tile]]] = {}  # by name; first row and rows
        self._decoded_bytes = 0

    def add(self, weights: Sequence[Weight], sources: Sources) -> None:
        wanted = {part.source for weight in weights for part in weight.parts}
        self._files |= {name: _mapped(path) for name, path in sources.items() if name in wanted}
        for weight in weights:
            self.weights[weight.name] = weight
            self._forget(weight.name)

    def matrix(self, weight: Weight) -> F64:  # [out, in]
        """All of it, decoded. Small weights only."""
        parts = [tile for _, tile in self._tiles(weight)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def vector(self, weight: Weight) -> F64:  # [n]
        return self.matrix(weight).ravel()

    def rows(self, weight: Weight, numbers: Sequence[int]) -> F64:  # [n, in]
        """Some rows: what an embedding looks up. Decodes these alone."""
        found = np.empty((len(numbers), weight.cols))
        for at, number in enumerate(numbers):
            found[at] = load_rows(weight, self._read, number, 1)[0]
        return found

    def multiply(self, weight: Weight, x: F64) -> F64:  # x [T, in] -> [T, out]
        """weight @ row for each row alone."""
        return products(self._tiles(weight), x, weight.rows)

    def multiply_expert(self, weight: Weight, expert: int, x: F64) -> F64:  # x [n, in] -> [n, out]
        """The same with one matrix of a stack."""
        one = replace(weight, shape=weight.shape[1:])
        return products(self._tiles(one, expert * one.rows), x, one.rows)

    def _tiles(self, weight: Weight, first: int = 0) -> Iterable[Tile]:
        """All tiles of a matrix; of a stack, that matrix whose first row is `first`."""
        decoded, key = self._decoded.setdefault(weight.name, {}), (first, weight.rows)
        if key not in decoded:
            n_bytes = 8 * weight.rows * weight.cols
            if self._decoded_bytes + n_bytes > CACHE_BYTES:
                return self._decode(weight, first)
            decoded[key] = list(self._decode(weight, first))
            self._decoded_bytes += n_bytes
        return decoded[key]

    def _forget(self, name: str) -> None:
        """A weight that is loaded anew may have another shape, or lie in another file."""
        for decoded in self._decoded.pop(name, {}).values():
            self._decoded_bytes -= sum(tile.nbytes for _, tile in decoded)

    def _decode(self, weight: Weight, first: int) -> Iterator[Tile]:
        for start, n in tiles(weight, TILE_VALUES):
            yield start, load_rows(weight, self._read, first + start, n).astype(np.float64)

    def _read(self, part: Part, offset: int, n_bytes: int) -> U8:
        if part.source != INLINE:
            return self._files[part.source][part.offset + offset : part.offset + offset + n_bytes]
        if part.data not in self._inline:
            self._inline[part.data] = np.frombuffer(base64.b64decode(part.data), np.uint8)
        return self._inline[part.data][offset : offset + n_bytes]


def _mapped(path: str) -> U8:
    try:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    except (OSError, ValueError) as error:  # ValueError: it has become empty
        raise ModelFormatError(
            f"{path}: cannot be read: {error}; did it change meanwhile?", path=path
        ) from error


def products(tiles: Iterable[Tile], x: F64, n_out: int) -> F64:  # x [T, in] -> [T, out]
    y = np.empty((len(x), n_out, 1))
    for start, tile in tiles:
        # With columns of its own each row is a product of its own, whose bits know of no other row.
        np.matmul(tile, x[:, :, None], out=y[:, start : start + len(tile)])
    return y[:, :, 0]
