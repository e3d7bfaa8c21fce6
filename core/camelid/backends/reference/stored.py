"""Rows of the KV cache as their kv_type stores them: GGUF's bytes, row by row.

A block has values of one row only, and each operation of a codec is one IEEE operation on one value (or the
exact maximum of a block), so rows quantized together have the same bits as rows quantized alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.backends.common.codecs import CODECS
from camelid.backends.reference.rows import F64
from camelid.formats.quants import row_bytes

Stored = npt.NDArray[Any]
PLAIN = {"f32": np.float32, "f16": np.float16}


def empty_rows(kv_type: str, *shape: int) -> Stored:
    """Zero rows of a type: [..., cols], or [..., bytes of a row] for a type with blocks."""
    *rows, cols = shape
    if kv_type in PLAIN:
        return np.zeros(shape, PLAIN[kv_type])
    return np.zeros((*rows, row_bytes(kv_type, cols)), np.uint8)


def store_rows(kv_type: str, values: F64) -> Stored:
    """Stores values [T, cols] as rows of a type. Overflow becomes infinite; NaN stays NaN."""
    with np.errstate(all="ignore"):
        if kv_type in PLAIN:
            return values.astype(PLAIN[kv_type])
        codec = CODECS[kv_type]
        blocks = values.astype(np.float32).reshape(-1, codec.quant.block)
        return codec.encode(blocks).reshape(len(values), -1)


def load_rows(kv_type: str, rows: Stored) -> F64:
    """Loads stored rows as values [n, cols], exactly."""
    if kv_type in PLAIN:
        return rows.astype(np.float64)
    codec = CODECS[kv_type]
    with np.errstate(invalid="ignore"):
        values = codec.decode(rows.reshape(-1, codec.quant.block_bytes))
    return values.reshape(len(rows), -1).astype(np.float64)
