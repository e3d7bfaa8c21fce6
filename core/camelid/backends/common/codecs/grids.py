"""Codecs of the IQ types: indices into a fixed grid of vectors, with signs or a delta; or into 16 values.

A grid is read when the first block of such a type is decoded.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.common.codecs.bits import Bytes, Floats, fields, grouped, half, unpack
from camelid.backends.common.grid_tables import GRIDS, VALUES, grid_bytes

IQ4_VALUES = np.array(VALUES["iq4"], dtype=np.int8)


@functools.cache
def grid(name: str) -> Floats:
    """A grid as [entries, values per entry]."""
    return np.frombuffer(grid_bytes(name), np.int8).reshape(GRIDS[name]).astype(np.float32)


def decode_iq2_xxs(raw: Bytes) -> Floats:
    """[n, 66] -> [n, 256]; block = {d: f16, 8 x {indices: u8[4], signs: 4 x 7 bit, scale: 4 bit}}."""
    d, rest = fields(raw, 2, 64)
    words = rest.view("<u4").reshape(len(raw), 8, 2)
    indices = np.ascontiguousarray(words[:, :, 0], dtype="<u4").view(np.uint8)  # [n, 32]
    scale = _scale(d, words[:, :, 1] >> 28, unit=0.25)
    return _signed(scale, grid("iq2_xxs")[indices], _even_signs()[_seven_bit_fields(words[:, :, 1])])


def decode_iq2_xs(raw: Bytes) -> Floats:
    """[n, 74] -> [n, 256]; block = {d: f16, q: u16[32], scales: u8[8]}; q = 9 bits of index, 7 of signs."""
    d, packed, scales = fields(raw, 2, 64, 8)
    q = packed.view("<u2")
    indices, signs = q & 511, q >> 9  # [n, 32]
    scale = _scale(d, unpack(scales, bits=4), unit=0.25)  # [n, 16]
    return _signed(scale, grid("iq2_xs")[indices], _even_signs()[signs])


def decode_iq2_s(raw: Bytes) -> Floats:
    """[n, 82] -> [n, 256]; block = {d: f16, indices: u8[32], signs: u8[32], high: u8[8], scales: u8[8]};
    `high` = bits 8 and 9 of each index."""
    d, low, signs, high, scales = fields(raw, 2, 32, 32, 8, 8)
    indices = low | unpack(high, bits=2).astype(np.uint16) << 8  # [n, 32]
    scale = _scale(d, unpack(scales, bits=4), unit=0.25)  # [n, 16]
    return _signed(scale, grid("iq2_s")[indices], _all_signs()[signs])


def decode_iq3_xxs(raw: Bytes) -> Floats:
    """[n, 98] -> [n, 256]; block = {d: f16, indices: u8[64], 8 x {signs: 4 x 7 bit, scale: 4 bit}}."""
    d, indices, rest = fields(raw, 2, 64, 32)
    words = rest.view("<u4")  # [n, 8]
    scale = _scale(d, words >> 28, unit=0.5)
    return _signed(scale, grid("iq3_xxs")[indices], _even_signs()[_seven_bit_fields(words)])


def decode_iq3_s(raw: Bytes) -> Floats:
    """[n, 110] -> [n, 256]; block = {d: f16, indices: u8[64], high: u8[8], signs: u8[32], scales: u8[4]};
    `high` = bit 8 of each index."""
    d, low, high, signs, scales = fields(raw, 2, 64, 8, 32, 4)
    indices = low | unpack(high, bits=1).astype(np.uint16) << 8  # [n, 64]
    scale = half(d) * (1 + 2 * unpack(scales, bits=4))  # [n, 8]
    return _signed(scale, grid("iq3_s")[indices], _all_signs()[signs])


def decode_iq1_s(raw: Bytes) -> Floats:
    """[n, 50] -> [n, 256]; block = {d: f16, indices: u8[32], high: u16[8]}; `high` = bits 8 to 10 of
    4 indices, 3 bits of scale, the sign of delta; value = (d * (2 * scale + 1)) * (entry + delta), 32 values
    in a group."""
    d, low, rest = fields(raw, 2, 32, 16)
    high = rest.view("<u2")  # [n, 8]
    indices = low | (_three_bit_fields(high) << 8)  # [n, 32]
    scale = half(d) * (2 * (high >> 12 & 7) + 1)  # [n, 8]
    delta = np.where(high >> 15, np.float32(-0.125), np.float32(0.125))
    values = grid("iq1")[indices].reshape(len(raw), 8, 32) + delta[:, :, None]
    return (scale[:, :, None] * values).reshape(len(raw), 256)


def decode_iq1_m(raw: Bytes) -> Floats:
    """[n, 56] -> [n, 256]; block = {indices: u8[32], high: u8[16], scales: u16[4]}; a nibble of `high` =
    bits 8 to 10 of an index, the sign of delta; a word of `scales` = 4 scales of 3 bits, a nibble of the
    float16 d."""
    low, rest, packed = fields(raw, 32, 16, 8)
    high, scales = unpack(rest, bits=4), packed.view("<u2")  # [n, 32], [n, 4]
    d_nibbles = (scales >> 12) << np.array([0, 4, 8, 12], np.uint16)
    d = np.bitwise_or.reduce(d_nibbles, axis=1, keepdims=True).view(np.float16).astype(np.float32)
    scale = d * (2 * _three_bit_fields(scales) + 1)  # [n, 16]
    delta = np.where(high >> 3, np.float32(-0.125), np.float32(0.125))  # [n, 32]
    values = grid("iq1")[low | (high & 7).astype(np.uint16) << 8] + delta[:, :, None]  # [n, 32, 8]
    return (scale[:, :, None] * values.reshape(len(raw), 16, 16)).reshape(len(raw), 256)


def decode_iq4_nl(raw: Bytes) -> Floats:
    """[n, 18] -> [n, 32]; block = {d: f16, q: u8[16]}, low nibbles first, value = d * IQ4_VALUES[q]."""
    d, packed = fields(raw, 2, 16)
    return half(d) * IQ4_VALUES[unpack(packed, bits=4, width=16)].astype(np.float32)


def decode_iq4_xs(raw: Bytes) -> Floats:
    """[n, 136] -> [n, 256]; block = {d: f16, high: 8 x 2 bit, low: 8 x 4 bit, q: u8[128]};
    `high`, `low` = the bits of the scales; value = (d * (scale - 32)) * IQ4_VALUES[q], 32 in a group."""
    d, high, low, packed = fields(raw, 2, 2, 4, 128)
    scale6 = unpack(low, bits=4) | unpack(high, bits=2) << np.uint8(4)  # [n, 8]
    scale = half(d) * (scale6.view(np.int8) - np.int8(32))
    values = IQ4_VALUES[unpack(packed, bits=4, width=16)]  # [n, 256]
    return (scale[:, :, None] * grouped(values, scale)).reshape(values.shape)


def _signed(scale: Floats, entries: Floats, signs: Floats) -> Floats:
    """scale [n, k] * entries [n, *, *] * signs [n, 32, 8] -> [n, 256]; products with signs are exact."""
    shape = (*scale.shape, 256 // scale.shape[1])
    return (scale[:, :, None] * entries.reshape(shape) * signs.reshape(shape)).reshape(len(scale), 256)


def _scale(d: Bytes, codes: NDArray[Any], *, unit: float) -> Floats:  # [n, 2], [n, k] -> [n, k]
    """Scales of the groups of a block: d * (code + 1/2) * unit."""
    centred: Floats = codes.astype(np.float32) + np.float32(0.5)
    return half(d) * centred * np.float32(unit)


def _seven_bit_fields(words: NDArray[np.uint32]) -> NDArray[np.uint32]:  # [n, 8] -> [n, 32]
    shifts = np.array([0, 7, 14, 21], np.uint32)
    return (words[:, :, None] >> shifts & np.uint32(127)).reshape(len(words), -1)


def _three_bit_fields(words: NDArray[np.uint16]) -> NDArray[np.uint16]:  # [n, k] -> [n, 4 * k]
    shifts = np.array([0, 3, 6, 9], np.uint16)
    return (words[:, :, None] >> shifts & np.uint16(7)).reshape(len(words), -1)


@functools.cache
def _all_signs() -> Floats:
    """[256, 8]; a sign is -1 if its bit of the index is set, lowest bit first."""
    return 1 - 2 * unpack(np.arange(256, dtype=np.uint8)[:, None], bits=1).astype(np.float32)


@functools.cache
def _even_signs() -> Floats:
    """[128, 8]; seven signs from the bits of the index, and an eighth that makes the count of -1 even."""
    signs = _all_signs()[:128].copy()
    signs[:, 7] = signs[:, :7].prod(axis=1)
    return signs
