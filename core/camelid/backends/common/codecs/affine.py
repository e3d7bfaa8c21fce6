"""Codecs of types that MLX alone writes: integers of 2, 3, 6 and 8 bits with a minimum, and mxfp8."""

from __future__ import annotations

import functools

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, Floats, fields, half, unpack_stream


def decode_affine(raw: Bytes, *, bits: int) -> Floats:
    """[n, 4 + 4 * bits] -> [n, 32]; block = {d: f16, m: f16, q: u8[4 * bits]}, value = d * q + m."""
    d, m, packed = fields(raw, 2, 2, 4 * bits)
    return half(d) * unpack_stream(packed, bits=bits).astype(np.float32) + half(m)


def decode_mxfp8(raw: Bytes) -> Floats:
    """[n, 33] -> [n, 32]; block = {e: E8M0, q: E4M3[32]}, value = 2**(e - 127) * q."""
    e, q = fields(raw, 1, 32)
    return np.ldexp(_e4m3()[q], e.astype(np.int32) - 127)


@functools.cache
def _e4m3() -> Floats:
    """[256]; the values of E4M3 codes; NaN for 0x7F and 0xFF."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    whole = np.where(exponent == 0, mantissa, mantissa + 8)
    values = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - 10)
    values[code & 127 == 127] = np.nan
    return np.where(code < 128, values, -values).astype(np.float32)
