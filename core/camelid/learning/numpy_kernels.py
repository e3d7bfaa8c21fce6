"""The products of `vectors.py` in NumPy, without BLAS.

BLAS starts threads for a product of this size, which wait for each other: beside a busy engine one product
takes 30 ms instead of 0.1 ms (tests/perf/learning.md).
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from camelid.learning.signs import signs_of

ROOM = 64  # rows of an empty table


class NumpyTable:
    """As `vectors.Table`: a matrix [dim, rows], so that a sparse query reads the rows of its own places."""

    def __init__(self, dim: int) -> None:
        self._columns: Any = np.zeros((dim, ROOM), np.float32)
        self._n = 0

    def append(self, vector: array[float]) -> None:
        """As `Table.append`."""
        if self._n == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._columns[:, self._n] = np.frombuffer(vector, np.float32)
        self._n += 1

    def delete(self, at: int) -> None:
        """As `Table.delete`."""
        n = self._n
        self._columns[:, at : n - 1] = self._columns[:, at + 1 : n].copy()
        self._columns[:, n - 1] = 0.0
        self._n -= 1

    def nearest(self, query: array[float], k: int) -> list[tuple[float, int]]:
        """As `Table.nearest`."""
        n, values = self._n, np.frombuffer(query, np.float32)
        found = self._products(values)
        if n <= k:
            best = range(n)
        else:  # all that reach the k-th largest, since equal ones are ordered by row
            best = np.flatnonzero(found >= np.partition(found, n - k)[n - k]).tolist()
        return sorted(((float(found[i]), i) for i in best), reverse=True)[:k]

    def _products(self, values: Any) -> Any:
        places, columns = np.flatnonzero(values), self._columns[:, : self._n]
        if 4 * len(places) > len(values):
            return np.einsum("d,dn->n", values, columns)
        found = np.zeros(self._n, np.float32)
        for place in places.tolist():
            found += values[place] * columns[place]
        return found


class NumpyKernels:
    """As `vectors.Kernels`."""

    def __init__(self) -> None:
        self._signs: dict[int, Any] = {}

    def table(self, dim: int) -> NumpyTable:
        """As `Kernels.table`."""
        return NumpyTable(dim)

    def sketch(self, logits: memoryview[float], dim: int) -> array[float]:
        """As `Kernels.sketch`."""
        values = np.asarray(logits, np.float32)
        finite = values > -1e30
        centred = np.where(finite, values - values[finite].mean(dtype=np.float64), 0.0)
        padded = np.zeros(-(-len(values) // dim) * dim, np.float32)
        padded[: len(values)] = centred * self._signs_of(len(values))
        sums = padded.reshape(-1, dim).sum(0, dtype=np.float64)
        length = np.sqrt((sums * sums).sum())
        return array("f", (sums / length if length else sums).astype(np.float32).tobytes())

    def _signs_of(self, n: int) -> Any:
        if n not in self._signs:
            self._signs[n] = np.array(signs_of(n), np.float32)
        return self._signs[n]
