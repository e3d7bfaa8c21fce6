"""Codecs of the K types: super-blocks of 256 values, in groups with quantized scales.

Products and sums are float32 in the order of the expression; another order gives other bits.
"""

from __future__ import annotations

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, Floats, Signed, fields, grouped, half, unpack


def decode_q2_k(raw: Bytes) -> Floats:
    """[n, 84] -> [n, 256]; block = {scales: u8[16], q: u8[64], d: f16, dmin: f16}; the low nibbles of
    `scales` are scales, the high nibbles minimums; value = (d * scale) * q - dmin * minimum, 16 values in a
    group."""
    scales, packed, d, dmin = fields(raw, 16, 64, 2, 2)
    return _affine(half(d) * (scales & 15), half(dmin) * (scales >> 4), unpack(packed, bits=2, width=32))


def decode_q3_k(raw: Bytes) -> Floats:
    """[n, 110] -> [n, 256]; block = {high: u8[32], q: u8[64], scales: u8[12], d: f16};
    value = (d * (scale - 32)) * (q - 4 where the high bit is 0), 16 values in a group."""
    high, packed, scales, d = fields(raw, 32, 64, 12, 2)
    third = unpack(high, bits=1, width=32) << np.uint8(2)  # [n, 256]
    q = (unpack(packed, bits=2, width=32) | third).view(np.int8) - np.int8(4)
    return _linear(half(d) * _six_bits_of_12(scales), q)


def decode_q4_k(raw: Bytes) -> Floats:
    """[n, 144] -> [n, 256]; block = {d: f16, dmin: f16, scales: u8[12], q: u8[128]};
    value = (d * scale) * q - dmin * minimum, 32 values in a group."""
    d, dmin, scales, packed = fields(raw, 2, 2, 12, 128)
    scale, minimum = _scales_and_minimums(scales)
    return _affine(half(d) * scale, half(dmin) * minimum, unpack(packed, bits=4, width=32))


def decode_q5_k(raw: Bytes) -> Floats:
    """[n, 176] -> [n, 256]; block of q4_k with the fifth bits as u8[32] before q."""
    d, dmin, scales, high, packed = fields(raw, 2, 2, 12, 32, 128)
    scale, minimum = _scales_and_minimums(scales)
    fifth = unpack(high, bits=1, width=32) << np.uint8(4)  # [n, 256]
    return _affine(half(d) * scale, half(dmin) * minimum, unpack(packed, bits=4, width=32) | fifth)


def decode_q6_k(raw: Bytes) -> Floats:
    """[n, 210] -> [n, 256]; block = {low: u8[128], high: u8[64], scales: i8[16], d: f16};
    value = (d * scale) * (q - 32), 16 values in a group."""
    low, high, scales, d = fields(raw, 128, 64, 16, 2)
    upper = unpack(high, bits=2, width=32) << np.uint8(4)  # [n, 256]
    q = (unpack(low, bits=4, width=64) | upper).view(np.int8) - np.int8(32)
    return _linear(half(d) * scales.view(np.int8), q)


def _linear(scale: Floats, q: Signed) -> Floats:  # [n, k], [n, 256] -> [n, 256]
    return (scale[:, :, None] * grouped(q, scale)).reshape(q.shape)


def _affine(scale: Floats, minimum: Floats, q: Bytes) -> Floats:  # [n, k] twice, [n, 256] -> [n, 256]
    return (scale[:, :, None] * grouped(q, scale) - minimum[:, :, None]).reshape(q.shape)


def _six_bits_of_12(scales: Bytes) -> Signed:
    """[n, 12] -> [n, 16]; scale - 32, from nibbles in the first 8 bytes and upper bit pairs in the last 4."""
    low, high = fields(scales, 8, 4)
    upper = unpack(high, bits=2, width=4) << np.uint8(4)
    return (unpack(low, bits=4, width=8) | upper).view(np.int8) - np.int8(32)


def _scales_and_minimums(scales: Bytes) -> tuple[Bytes, Bytes]:
    """[n, 12] -> scales [n, 8] and minimums [n, 8]. The first four scales (minimums) are the low six bits of
    bytes 0-3 (4-7). The last four have their low bits in the low (high) nibbles of bytes 8-11, and their high
    bits in the top two bits of bytes 0-3 (4-7)."""
    first, second, nibbles = fields(scales, 4, 4, 4)
    low, high, six = np.uint8(0x0F), np.uint8(0x30), np.uint8(0x3F)
    scale = (nibbles & low) | (first >> np.uint8(2) & high)
    minimum = (nibbles >> np.uint8(4)) | (second >> np.uint8(2) & high)
    return np.hstack([first & six, scale]), np.hstack([second & six, minimum])
