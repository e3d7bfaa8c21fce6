"""Codecs of 1 to 4 bits without a grid: 4-bit floats, ternary and binary types."""

from __future__ import annotations

import functools

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, Floats, fields, grouped, half, unpack
from camelid.backends.common.grid_tables import VALUES

E2M1 = np.array(VALUES["e2m1"], dtype=np.int8)  # doubled; the scales are halved
POWERS_OF_3 = np.array([1, 3, 9, 27, 81], dtype=np.uint8)


def decode_mxfp4(raw: Bytes) -> Floats:
    """[n, 17] -> [n, 32]; block = {e: E8M0, q: u8[16]}, low nibbles first, value = 2**(e - 127) * E2M1."""
    e, packed = fields(raw, 1, 16)
    return _e8m0()[e] * E2M1[unpack(packed, bits=4, width=16)].astype(np.float32)


def decode_nvfp4(raw: Bytes) -> Floats:
    """[n, 36] -> [n, 64]; block = {scales: UE4M3[4], q: u8[32]}, 16 values of E2M1 in a group."""
    scales, packed = fields(raw, 4, 32)
    q = E2M1[unpack(packed, bits=4, width=8)]  # [n, 64]
    return (_ue4m3()[scales][:, :, None] * grouped(q, scales)).reshape(q.shape)


def decode_tq1_0(raw: Bytes) -> Floats:
    """[n, 54] -> [n, 256]; block = {q: u8[48], high: u8[4], d: f16}; a byte is a fraction of 256 with 5 (in
    `high` 4) base-3 digits; a multiplication by 3 extracts the next digit; value = (digit - 1) * d."""
    first, second, last, d = fields(raw, 32, 16, 4, 2)
    runs = ((first, POWERS_OF_3), (second, POWERS_OF_3), (last, POWERS_OF_3[:4]))
    shifted = np.hstack([(q[:, None] * powers[:, None]).reshape(len(raw), -1) for q, powers in runs])
    return ((shifted.astype(np.uint16) * 3 >> 8).astype(np.float32) - 1) * half(d)


def decode_tq2_0(raw: Bytes) -> Floats:
    """[n, 66] -> [n, 256]; block = {q: u8[64], d: f16}, value = (q - 1) * d."""
    packed, d = fields(raw, 64, 2)
    return (unpack(packed, bits=2, width=32).astype(np.float32) - 1) * half(d)


def decode_q1_0(raw: Bytes) -> Floats:
    """[n, 18] -> [n, 128]; block = {d: f16, q: u8[16]}, lowest bit first; value = d if set, else -d."""
    d, packed = fields(raw, 2, 16)
    scale = half(d)
    return np.where(unpack(packed, bits=1).view(np.bool_), scale, -scale)


def decode_q2_0(raw: Bytes) -> Floats:
    """[n, 18] -> [n, 64]; block = {d: f16, q: u8[16]}, lowest bits first, value = (q - 1) * d."""
    d, packed = fields(raw, 2, 16)
    return (unpack(packed, bits=2).astype(np.float32) - 1) * half(d)


@functools.cache
def _e8m0() -> Floats:
    """[256]; half of 2**(e - 127); the value of e = 0 is subnormal."""
    return np.ldexp(np.float32(1), np.arange(256) - 128, dtype=np.float32)


@functools.cache
def _ue4m3() -> Floats:
    """[256]; half of the E4M3 value in the low 7 bits. Code 0x7F (NaN in E4M3) is 0, but 0xFF is not."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    whole = np.where(exponent == 0, mantissa, mantissa + 8)
    values = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - 11)
    values[0x7F] = 0
    return values.astype(np.float32)
