"""Helpers of the codecs: fields of a block, packed integers, half floats."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Signed = NDArray[np.int8]
Floats = NDArray[np.float32]


def fields(raw: Bytes, *widths: int) -> list[Bytes]:
    """[n, sum(widths)] -> one view [n, width] per field of a block."""
    borders = accumulate(widths, initial=0)
    return [raw[:, start:end] for start, end in pairwise(borders)]


def half(raw: Bytes) -> Floats:
    """[n, 2k] -> [n, k]; little-endian float16, exact in float32."""
    return raw.view("<f2").astype(np.float32)


def half_bytes(values: Floats) -> Bytes:
    """[n, k] -> [n, 2k]; float16, rounded to nearest, ties to even. Overflow becomes infinite."""
    with np.errstate(over="ignore"):
        return values.astype("<f2").view(np.uint8)


def unpack(packed: Bytes, *, bits: int, width: int = 1) -> Bytes:
    """[n, m] -> [n, m * 8 / bits]; unsigned integers, the lowest bits of a byte first.

    In each run of `width` bytes, the first fields of all bytes come before their second fields. With `width`
    1 the values of a byte are neighbours; with `width` 16 and four bits, they are 16 values apart.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]  # [8 / bits, 1]
    runs = packed.reshape(len(packed), -1, 1, width)
    return ((runs >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)


def unpack_stream(packed: Bytes, *, bits: int) -> Bytes:
    """[n, m] -> [n, m * 8 / bits]; unsigned integers that may cross bytes, the lowest bits first."""
    if 8 % bits == 0:
        return unpack(packed, bits=bits)
    each = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(packed), -1, bits)
    return np.packbits(each, axis=2, bitorder="little")[..., 0]


def pack_stream(q: Bytes, *, bits: int) -> Bytes:
    """[n, m] -> [n, m * bits / 8]; the inverse of `unpack_stream` for integers below 2**bits, m % 8 = 0."""
    shifts = np.arange(0, 8 * bits, bits, dtype=np.uint64)
    # Eight integers fill whole bytes, whatever their width.
    eights = np.bitwise_or.reduce(q.reshape(-1, 8).astype(np.uint64) << shifts, axis=1).astype("<u8")
    return eights.view(np.uint8).reshape(-1, 8)[:, :bits].reshape(len(q), -1)


def grouped(q: Bytes | Signed, scales: NDArray[np.generic]) -> Floats:
    """[n, block] -> float32 [n, k, block / k]: the values grouped by their scale of `scales` [n, k]."""
    return q.reshape(*scales.shape, -1).astype(np.float32)


def pack(q: Bytes, *, bits: int, width: int = 1) -> Bytes:
    """[n, m] -> [n, m * bits / 8]; the inverse of `unpack` for integers below 2**bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]  # [8 / bits, 1]
    runs = q.reshape(len(q), -1, len(shifts), width)
    return np.bitwise_or.reduce(runs << shifts, axis=2).reshape(len(q), -1)
