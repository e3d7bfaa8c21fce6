"""Row-wise sums, means and softmax over the last axis.

Inputs must be C-contiguous: NumPy then reduces each row separately, so the bits do not depend on the batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def sigmoid(x: F64) -> F64:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # never overflows


def softmax(x: F64) -> F64:  # [..., n]
    weights = np.exp(x - np.maximum.reduce(x, axis=-1, keepdims=True))
    return weights / row_sum(weights)


def row_sum(x: F64) -> F64:  # [..., n] -> [..., 1]
    return np.add.reduce(x, axis=-1, keepdims=True)  # the bits of x.sum() in half the time


def row_mean(x: F64) -> F64:  # [..., n] -> [..., 1]
    return row_sum(x) / x.shape[-1]
