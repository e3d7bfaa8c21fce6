"""Attention over stored keys and values in float64 NumPy, from the definition. The gguf package quantizes
rows; each key's tier is found by counting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

Array = Any  # float64
TAIL, BATCH = 256, 64
BLOCKS = {"q8_0": Type.Q8_0, "q4_0": Type.Q4_0}
PLAIN = {"f32": np.float32, "f16": np.float16}


def stored(kv_type: str, rows: Any) -> bytes:
    """The stored bytes of float32 rows [n, cols]."""
    if kv_type in PLAIN:
        return rows.astype(PLAIN[kv_type]).tobytes()
    return quantize(rows.astype(np.float32), BLOCKS[kv_type]).tobytes()


def held(kv_type: str, rows: Any) -> Array:
    """The decoded values of stored rows [n, cols]."""
    if kv_type in PLAIN:
        return rows.astype(PLAIN[kv_type]).astype(np.float64)
    as_stored = quantize(rows.astype(np.float32), BLOCKS[kv_type])
    return dequantize(as_stored, BLOCKS[kv_type]).astype(np.float64)


def border(row: int) -> int:
    """First row of the tail at `row`: a batch leaves the tail once each of its rows has `TAIL` later rows."""
    n_left = 0
    while all(row - key >= TAIL for key in range(n_left * BATCH, (n_left + 1) * BATCH)):
        n_left += 1
    return n_left * BATCH


def attend(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    softcap: float = 0.0,
    sinks: Any = None,
    bias: Any = None,
) -> Array:
    """Attention [H*V] of q [H, D] over keys [n, K, D] and values [n, K, V]; scores get bias [n, H]."""
    heads: list[Array] = []
    for h, query in enumerate(np.asarray(q, np.float64)):
        kv = h * k.shape[1] // len(q)
        scores = scale * (k[:, kv] @ query)
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        scores = scores + (0.0 if bias is None else bias[:, h])
        shares = np.exp(scores - scores.max())
        rest = 0.0 if sinks is None else np.exp(float(sinks[h]) - scores.max())
        heads.append(shares @ v[:, kv] / (shares.sum() + rest))
    return np.concatenate(heads)
