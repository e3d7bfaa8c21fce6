"""Weights of the reference: raw bytes from mapped files, decoded to float64 when an op asks."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from camelid.backends.base import Sources
from camelid.backends.load_ops import load_rows
from camelid.backends.reference.rows import F64, per_row
from camelid.plan.weights import INLINE, Part, Weight

CACHE_BYTES = 256 << 20  # decoded weights are kept up to this; larger models are decoded op by op


class WeightStore:
    """Weights by name: raw bytes from mapped files, decoded to float64 when an op asks."""

    def __init__(self) -> None:
        self.weights: dict[str, Weight] = {}
        self._files: dict[str, npt.NDArray[np.uint8]] = {}
        self._decoded: dict[str, F64] = {}
        self._decoded_bytes = 0

    def add(self, weights: Sequence[Weight], sources: Sources) -> None:
        for name, path in sources.items():
            self._files[name] = np.memmap(path, dtype=np.uint8, mode="r")
        self.weights.update({w.name: w for w in weights})

    def matrix(self, weight: Weight) -> F64:  # [out, in]
        """All of it, decoded. Small weights only."""
        if weight.name in self._decoded:
            return self._decoded[weight.name]
        matrix = load_rows(weight, self._read, 0, weight.rows).astype(np.float64)
        if self._decoded_bytes + matrix.nbytes <= CACHE_BYTES:
            self._decoded[weight.name] = matrix
            self._decoded_bytes += matrix.nbytes
        return matrix

    def vector(self, weight: Weight) -> F64:  # [n]
        return self.matrix(weight).ravel()

    def rows(self, weight: Weight, numbers: Sequence[int]) -> F64:  # [n, in]
        """Some rows: what an embedding looks up."""
        return self.matrix(weight)[list(numbers)]

    def multiply(self, weight: Weight, x: F64) -> F64:  # x [T, in] -> [T, out]
        """weight @ row for each row alone."""
        matrix = self.matrix(weight)
        return per_row(lambda row: matrix @ row, x)

    def multiply_expert(self, weight: Weight, expert: int, x: F64) -> F64:  # x [n, in] -> [n, out]
        """The same with one matrix of a stack."""
        matrix = self.matrix(weight).reshape(weight.shape)[expert]
        return per_row(lambda row: matrix @ row, x)

    def _read(self, part: Part, offset: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        if part.source == INLINE:
            return np.frombuffer(base64.b64decode(part.data), np.uint8)[offset : offset + n_bytes]
        return self._files[part.source][part.offset + offset : part.offset + offset + n_bytes]
