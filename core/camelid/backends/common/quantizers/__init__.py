"""Quantizers: encoders that search for the scales and codes of the least weighted squared error.

The NumPy code here is the definition; `camelid_native` has the same bits in C. The algorithms are our own:
alternating least squares for scales, exhaustive search for points of grids.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from camelid.backends.common.codecs.bits import Bytes
from camelid.backends.common.quantizers import codebooks, grid_types, k_types, small_types
from camelid.backends.common.quantizers.blocks import Blocks, blocks_of
from camelid.backends.common.quantizers.fit import Floats
from camelid.formats.quants import quant, row_bytes

QUANTIZERS: dict[str, Callable[[Blocks], Bytes]] = {
    "q4_0": small_types.quantize_q4_0,
    "q4_1": small_types.quantize_q4_1,
    "q5_0": small_types.quantize_q5_0,
    "q5_1": small_types.quantize_q5_1,
    "q2_k": k_types.quantize_q2_k,
    "q3_k": k_types.quantize_q3_k,
    "q4_k": k_types.quantize_q4_k,
    "q5_k": k_types.quantize_q5_k,
    "q6_k": k_types.quantize_q6_k,
    "iq2_xxs": grid_types.quantize_iq2_xxs,
    "iq2_xs": grid_types.quantize_iq2_xs,
    "iq3_xxs": grid_types.quantize_iq3_xxs,
    "iq1_s": grid_types.quantize_iq1_s,
    "iq4_nl": codebooks.quantize_iq4_nl,
    "iq4_xs": codebooks.quantize_iq4_xs,
    "iq3_s": grid_types.quantize_iq3_s,
    "iq2_s": grid_types.quantize_iq2_s,
    "iq1_m": grid_types.quantize_iq1_m,
    "tq1_0": small_types.quantize_tq1_0,
    "tq2_0": small_types.quantize_tq2_0,
    "mxfp4": codebooks.quantize_mxfp4,
    "nvfp4": codebooks.quantize_nvfp4,
    "q1_0": small_types.quantize_q1_0,
    "q2_0": small_types.quantize_q2_0,
}
CHUNK = 1 << 8  # blocks at a time


def search(name: str, values: Floats, importance: Floats | None) -> Bytes:
    """Quantizes finite rows [rows, cols] to uint8 [n_bytes] by search; `importance` as of `RowQuantizer`."""
    block = quant(name).block
    row_bytes(name, values.shape[1])
    weights = np.ones(values.shape[1], np.float32) if importance is None else importance
    x, w = values.reshape(-1, block), np.broadcast_to(weights, values.shape).reshape(-1, block)
    run = QUANTIZERS[name]
    with np.errstate(all="ignore"):  # scales may overflow or underflow
        parts = [run(blocks_of(x[at : at + CHUNK], w[at : at + CHUNK])) for at in range(0, len(x), CHUNK)]
    return np.concatenate(parts).reshape(-1)
