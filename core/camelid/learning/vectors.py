"""Exact nearest neighbours: rows of float32, and the products that a machine has a fast path for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import nlargest
from importlib import import_module
from math import sqrt
from operator import add, mul
from typing import Protocol, cast

from camelid.learning.signs import signs_of

Found = list[tuple[float, int]]  # (inner product, row), the largest first; of equal ones the latest row first


class Table(Protocol):
    """Vectors of one length in rows."""

    def append(self, vector: array[float]) -> None:
        """Adds a last row."""
        ...

    def delete(self, at: int) -> None:
        """Removes a row, overwriting its values; later rows move up."""
        ...

    def nearest(self, query: array[float], k: int) -> Found:
        """The k rows with the largest inner products. Zeros of the query cost nothing."""
        ...


class Kernels(Protocol):
    """Products over rows. Two implementations agree up to the rounding of float32."""

    def table(self, dim: int) -> Table:
        """An empty table."""
        ...

    def sketch(self, logits: memoryview[float], dim: int) -> array[float]:
        """The sketch of a row of logits, [dim], of length 1."""
        ...


class PythonTable:
    """As `Table`, in Python alone: some 2 us a row for the vector of a question."""

    def __init__(self) -> None:
        self._rows: list[array[float]] = []

    def append(self, vector: array[float]) -> None:
        """As `Table.append`."""
        self._rows.append(vector)

    def delete(self, at: int) -> None:
        """As `Table.delete`."""
        self._rows.pop(at)

    def nearest(self, query: array[float], k: int) -> Found:
        """As `Table.nearest`."""
        places = [i for i, value in enumerate(query) if value]
        values = [query[i] for i in places]
        products = (sum(map(mul, map(row.__getitem__, places), values)) for row in self._rows)
        return nlargest(k, zip(products, range(len(self._rows)), strict=True))


class PythonKernels:
    """As `Kernels`, in Python alone, for a web page."""

    def table(self, dim: int) -> Table:  # noqa: ARG002 - the protocol's
        """As `Kernels.table`."""
        return PythonTable()

    def sketch(self, logits: memoryview[float], dim: int) -> array[float]:
        """As `Kernels.sketch`."""
        values = cast("list[float]", logits.tolist())
        finite = [value for value in values if value > -1e30]
        mean = sum(finite) / len(finite)
        signs, sums = signs_of(len(values)), [0.0] * dim
        centred = [value - mean if value > -1e30 else 0.0 for value in values]
        for at in range(0, len(values), dim):
            part = list(map(mul, centred[at : at + dim], signs[at : at + dim]))
            sums = list(map(add, sums, part + [0.0] * (dim - len(part))))
        length = sqrt(sum(value * value for value in sums))
        return array("f", [value / length for value in sums] if length else sums)


def fast_kernels() -> Kernels:
    """NumPy's products where NumPy is installed, else Python's."""
    try:
        module = import_module("camelid.learning.numpy_kernels")
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "camelid.learning.numpy_kernels"):
            raise
        return PythonKernels()
    return module.NumpyKernels()


class Rows:
    """Vectors of one length by name, the newest last."""

    def __init__(self, dim: int, kernels: Kernels) -> None:
        self._table = kernels.table(dim)
        self._names: list[int] = []

    def __len__(self) -> int:
        return len(self._names)

    @property
    def names(self) -> Sequence[int]:
        """The names in order."""
        return self._names

    def add(self, name: int, vector: bytes | array[float]) -> None:
        """Adds a vector (float32, [dim])."""
        self._table.append(array("f", bytes(memoryview(vector).cast("B"))))
        self._names.append(name)

    def remove(self, name: int) -> None:
        """Removes a vector, if it is there."""
        if name in self._names:
            at = self._names.index(name)
            self._table.delete(at)
            self._names.pop(at)

    def nearest(self, query: array[float], k: int) -> list[tuple[float, int]]:
        """(product, name) of the k largest products, largest first; of equal ones the newest first."""
        if not self._names:
            return []
        return [(product, self._names[i]) for product, i in self._table.nearest(query, k)]
