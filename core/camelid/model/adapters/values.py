"""The numbers of an adapter's pairs as float32, in one order, on the standard library alone."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from math import isfinite, prod

from camelid.formats.adapters.pairs import Factor, Pair
from camelid.formats.source import format_error

SIZES: Mapping[str, int] = {"f32": 4, "f16": 2, "bf16": 2}
# Upper bytes of numbers that may be infinite or NaN.
LARGEST: Mapping[str, tuple[int, ...]] = {
    "f32": (0x7F, 0xFF),
    "bf16": (0x7F, 0xFF),
    "f16": (0x7C, 0x7D, 0x7E, 0x7F, 0xFC, 0xFD, 0xFE, 0xFF),
}


@dataclass(frozen=True, slots=True)
class Values:
    """The numbers of a pair: A [rank, in] and B [out, rank] of each matrix, one behind the other."""

    pair: Pair
    a: array[float]
    b: array[float]

    def a_of(self, number: int) -> array[float]:
        """A of one matrix."""
        size = self.pair.rank * self.pair.n_in
        return self.a[number * size : (number + 1) * size]

    def b_of(self, number: int) -> array[float]:
        """B of one matrix."""
        size = self.pair.rank * self.pair.n_out
        return self.b[number * size : (number + 1) * size]


def read_values(pair: Pair, path: str) -> Generator[tuple[int, int], bytes, Values]:
    """The numbers of a pair; yields (offset, n_bytes) and receives those bytes.

    Raises ModelFormatError for numbers that are not finite, and for a file that ends early.
    """
    a = yield from _read_factor(pair.a, path)
    b = yield from _read_factor(pair.b, path)
    if pair.layout == "columns":
        return Values(pair, transposed(a, pair.n_in, pair.rank), transposed(b, pair.rank, pair.n_out))
    if pair.layout == "joined":  # the last axis of B counts experts first
        b = array("f", b"".join(b[expert :: pair.experts].tobytes() for expert in range(pair.experts)))
    return Values(pair, a, b)


def transposed(values: array[float], rows: int, cols: int) -> array[float]:
    """The transpose [cols, rows] of a matrix [rows, cols]."""
    out = array("f", bytes(4 * rows * cols))
    for col in range(cols):
        out[col * rows : (col + 1) * rows] = values[col::cols]
    return out


def _read_factor(factor: Factor, path: str) -> Generator[tuple[int, int], bytes, array[float]]:
    n_bytes = prod(factor.shape) * SIZES[factor.type]
    raw = yield factor.offset, n_bytes
    if len(raw) != n_bytes:
        raise format_error(
            path, f"{factor.name}: found {len(raw)} bytes, expected {n_bytes}; the file is truncated"
        )
    values = _decoded(factor.type, raw)
    upper = raw[SIZES[factor.type] - 1 :: SIZES[factor.type]]
    if any(byte in upper for byte in LARGEST[factor.type]) and not all(map(isfinite, values)):
        raise format_error(path, f"{factor.name}: a number is infinite or NaN; was the training stable?")
    return values


def _decoded(type_name: str, raw: bytes) -> array[float]:
    if type_name == "f16":
        return array("f", struct.unpack(f"<{len(raw) // 2}e", raw))
    if type_name == "bf16":
        wide = bytearray(2 * len(raw))
        wide[2::4], wide[3::4] = raw[::2], raw[1::2]
        raw = bytes(wide)
    values = array("f", raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values
