"""One row at a time: what makes the reference's bits independent of the batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def per_row(function: Callable[[F64], F64], x: F64) -> F64:
    # A chunk of a prompt may have no output rows; the result keeps its width.
    rows: list[F64] = [function(row) for row in x] or [function(np.zeros_like(x, shape=x.shape[1]))]
    return np.stack(rows)[: len(x)]


def sigmoid(x: F64) -> F64:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # never overflows


def softmax(x: F64) -> F64:
    weights = np.exp(x - np.maximum.reduce(x))  # half the time of x.max(), and the same bits
    return weights / np.add.reduce(weights)


def mean(x: F64) -> F64:  # [n] -> []
    return np.add.reduce(x) / len(x)
