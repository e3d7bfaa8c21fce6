"""Codecs of the legacy types: blocks of 32 values with one scale, and one minimum for the _1 types."""

from __future__ import annotations

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, Floats, fields, half, half_bytes, unpack


def decode_q4_0(raw: Bytes) -> Floats:
    """[n, 18] -> [n, 32]; block = {d: f16, q: u8[16]}, low nibbles first, value = (q - 8) * d."""
    d, packed = fields(raw, 2, 16)
    q = unpack(packed, bits=4, width=16).astype(np.float32) - 8  # [n, 32]
    return q * half(d)


def encode_q4_0(values: Floats) -> Bytes:
    """[n, 32] -> [n, 18]; d = (value of largest magnitude) / -8, so this value maps to q = 0 exactly."""
    d = _largest(values) / np.float32(-8)  # [n, 1]
    q = _whole(values * _inverse(d) + np.float32(8.5), top=15)  # [n, 32]
    return np.concatenate([half_bytes(d), _pack_nibbles(q)], axis=1)


def decode_q4_1(raw: Bytes) -> Floats:
    """[n, 20] -> [n, 32]; block = {d: f16, m: f16, q: u8[16]}, value = d * q + m."""
    d, m, packed = fields(raw, 2, 2, 16)
    q = unpack(packed, bits=4, width=16).astype(np.float32)  # [n, 32]
    return half(d) * q + half(m)


def encode_q4_1(values: Floats) -> Bytes:
    """[n, 32] -> [n, 20]; d = (max - min) / 15, m = min."""
    d, m, q = _from_minimum(values, top=15)
    return np.concatenate([half_bytes(d), half_bytes(m), _pack_nibbles(q)], axis=1)


def decode_q5_0(raw: Bytes) -> Floats:
    """[n, 22] -> [n, 32]; block = {d: f16, high: u32, q: u8[16]}, fifth bits in `high`, (q - 16) * d."""
    d, high, packed = fields(raw, 2, 4, 16)
    return (_five_bits(high, packed) - 16) * half(d)


def encode_q5_0(values: Floats) -> Bytes:
    """[n, 32] -> [n, 22]; d = (value of largest magnitude) / -16."""
    d = _largest(values) / np.float32(-16)  # [n, 1]
    q = _whole(values * _inverse(d) + np.float32(16.5), top=31)  # [n, 32]
    return np.concatenate([half_bytes(d), _pack_fifth_bits(q), _pack_nibbles(q)], axis=1)


def decode_q5_1(raw: Bytes) -> Floats:
    """[n, 24] -> [n, 32]; block = {d: f16, m: f16, high: u32, q: u8[16]}, value = d * q + m."""
    d, m, high, packed = fields(raw, 2, 2, 4, 16)
    return half(d) * _five_bits(high, packed) + half(m)


def encode_q5_1(values: Floats) -> Bytes:
    """[n, 32] -> [n, 24]; d = (max - min) / 31, m = min."""
    d, m, q = _from_minimum(values, top=31)
    return np.concatenate([half_bytes(d), half_bytes(m), _pack_fifth_bits(q), _pack_nibbles(q)], axis=1)


def decode_q8_0(raw: Bytes) -> Floats:
    """[n, 34] -> [n, 32]; block = {d: f16, q: i8[32]}, value = q * d."""
    d, q = fields(raw, 2, 32)
    return q.view(np.int8).astype(np.float32) * half(d)


def encode_q8_0(values: Floats) -> Bytes:
    """[n, 32] -> [n, 34]; d = max|x| / 127, q rounds half away from zero (quantize_row_q8_0_ref)."""
    d = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)  # [n, 1]
    q = _round_half_away(values * _inverse(d)).astype(np.int8)  # [n, 32]
    return np.concatenate([half_bytes(d), q.view(np.uint8)], axis=1)


def _five_bits(high: Bytes, packed: Bytes) -> Floats:
    fifth = unpack(high, bits=1) << np.uint8(4)  # [n, 32]
    return (unpack(packed, bits=4, width=16) | fifth).astype(np.float32)


def _largest(values: Floats) -> Floats:  # [n, 1], with its sign
    return np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)


def _from_minimum(values: Floats, *, top: int) -> tuple[Floats, Floats, Bytes]:
    low = values.min(axis=1, keepdims=True)  # [n, 1]
    d = (values.max(axis=1, keepdims=True) - low) / np.float32(top)
    return d, low, _whole((values - low) * _inverse(d) + np.float32(0.5), top=top)


def _whole(x: Floats, *, top: int) -> Bytes:
    return np.trunc(x).astype(np.uint8).clip(0, top)


def _pack_nibbles(q: Bytes) -> Bytes:  # [n, 32] -> [n, 16]; a fifth bit is dropped
    return (q[:, :16] & np.uint8(15)) | (q[:, 16:] << np.uint8(4))


def _pack_fifth_bits(q: Bytes) -> Bytes:  # [n, 32] -> [n, 4]
    return np.packbits(q >> np.uint8(4), axis=1, bitorder="little")


def _inverse(d: Floats) -> Floats:
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


def _round_half_away(x: Floats) -> Floats:
    magnitude = np.abs(x)
    floor = np.floor(magnitude)
    return np.sign(x) * (floor + np.floor(2 * (magnitude - floor)))
