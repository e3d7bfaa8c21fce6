"""Codecs of types without blocks: floats and integers, little-endian."""

from __future__ import annotations

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, Floats, half, half_bytes


def decode_f32(raw: Bytes) -> Floats:
    """[n, 4] -> [n, 1]."""
    return raw.view("<f4").astype(np.float32)


def encode_f32(values: Floats) -> Bytes:
    """[n, 1] -> [n, 4]."""
    return values.astype("<f4").view(np.uint8)


def decode_f16(raw: Bytes) -> Floats:
    """[n, 2] -> [n, 1]."""
    return half(raw)


def encode_f16(values: Floats) -> Bytes:
    """[n, 1] -> [n, 2]; rounds to nearest, ties to even."""
    return half_bytes(values)


def decode_bf16(raw: Bytes) -> Floats:
    """[n, 2] -> [n, 1]; the upper half of a float32."""
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def encode_bf16(values: Floats) -> Bytes:
    """[n, 1] -> [n, 2]; rounds to nearest, ties to even, for finite values."""
    bits = values.view(np.uint32)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1))  # no overflow: a finite value has a zero exponent bit
    return (rounded >> 16).astype("<u2").view(np.uint8)


def decode_f64(raw: Bytes) -> Floats:
    """[n, 8] -> [n, 1]; rounded to float32; overflow becomes infinite."""
    return raw.view("<f8").astype(np.float32)


def decode_i8(raw: Bytes) -> Floats:
    """[n, 1] -> [n, 1]."""
    return raw.view(np.int8).astype(np.float32)


def decode_i16(raw: Bytes) -> Floats:
    """[n, 2] -> [n, 1]."""
    return raw.view("<i2").astype(np.float32)


def decode_i32(raw: Bytes) -> Floats:
    """[n, 4] -> [n, 1]; values beyond 2**24 are rounded to nearest."""
    return raw.view("<i4").astype(np.float32)


def decode_i64(raw: Bytes) -> Floats:
    """[n, 8] -> [n, 1]; values beyond 2**24 are rounded to nearest, once."""
    return raw.view("<i8").astype(np.float32)
