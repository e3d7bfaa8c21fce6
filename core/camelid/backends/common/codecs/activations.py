"""Activations in their dtypes: float32 rounded to nearest, ties to even.

A value beyond the dtype's largest becomes infinite, and NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.common.codecs.bits import Floats
from camelid.backends.common.codecs.plain import encode_bf16
from camelid.plan.plan import Buffer

Stored = NDArray[Any]
FORMATS = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2")}  # bf16: its bits
BF16_NAN = 0x7FC0


def empty(n_rows: int, buffer: Buffer) -> Stored:  # [n_rows, cols]
    """Rows of zeros in the buffer's dtype."""
    return np.zeros((n_rows, buffer.cols), FORMATS[buffer.dtype])


def store(values: NDArray[Any], dtype: str) -> Stored:
    """Rounds values to the dtype. A float64 is rounded to float32 first, as on a device."""
    exact = np.asarray(values, np.float32)
    if dtype == "bf16":
        return _bf16(exact)
    with np.errstate(over="ignore"):
        return exact.astype(FORMATS[dtype], copy=False)


def load(stored: Stored, dtype: str) -> Floats:
    """Converts elements of the dtype to float32, exactly."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32, copy=False)


def rounded(values: NDArray[Any], dtype: str) -> Floats:
    """Rounds values to the dtype, and returns them as float32."""
    return load(store(values, dtype), dtype)


def of_bytes(data: bytes, buffer: Buffer) -> Stored:  # [rows, cols]
    """Interprets bytes as rows of the buffer."""
    return np.frombuffer(data, FORMATS[buffer.dtype]).reshape(-1, buffer.cols)


def _bf16(exact: Floats) -> Stored:
    bits = encode_bf16(np.ascontiguousarray(exact).reshape(-1, 1)).view("<u2").reshape(exact.shape)
    return np.where(np.isnan(exact), np.uint16(BF16_NAN), bits)
