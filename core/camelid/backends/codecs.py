"""NumPy codecs: what the bits of a quantized block mean.

The rows of `CODECS` decide which tensor types the reference backend can execute. A codec works on
[n_blocks, block_bytes] uint8 and [n_blocks, block] float32. Layouts: ggml-common.h of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.quants import QUANTS, QuantType, row_bytes

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Codec:
    """Decode and encode of one tensor type, block by block."""

    quant: QuantType
    decode: Callable[[Bytes], Floats]
    encode: Callable[[Floats], Bytes]


def decode_f32(raw: Bytes) -> Floats:
    """[n, 4] -> [n, 1]; little-endian float32."""
    return raw.view("<f4").astype(np.float32)


def encode_f32(values: Floats) -> Bytes:
    """[n, 1] -> [n, 4]."""
    return values.astype("<f4").view(np.uint8)


def decode_f16(raw: Bytes) -> Floats:
    """[n, 2] -> [n, 1]; little-endian float16."""
    return raw.view("<f2").astype(np.float32)


def encode_f16(values: Floats) -> Bytes:
    """[n, 1] -> [n, 2]; rounds to nearest, ties to even."""
    return values.astype("<f2").view(np.uint8)


def decode_q8_0(raw: Bytes) -> Floats:
    """[n, 34] -> [n, 32]; block = {d: f16, q: i8[32]}, value = q * d."""
    q = raw[:, 2:].view(np.int8).astype(np.float32)  # [n, 32]
    return q * decode_f16(raw[:, :2])


def encode_q8_0(values: Floats) -> Bytes:
    """[n, 32] -> [n, 34]; d = max|x| / 127, q rounds half away from zero (quantize_row_q8_0_ref)."""
    d = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)  # [n, 1]
    q = _round_half_away(values * _inverse(d)).astype(np.int8)  # [n, 32]
    return np.concatenate([encode_f16(d), q.view(np.uint8)], axis=1)


def decode_q4_0(raw: Bytes) -> Floats:
    """[n, 18] -> [n, 32]; block = {d: f16, q: u8[16]}, low nibbles first, value = (q - 8) * d."""
    packed = raw[:, 2:]  # [n, 16]
    q = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32) - 8  # [n, 32]
    return q * decode_f16(raw[:, :2])


def encode_q4_0(values: Floats) -> Bytes:
    """[n, 32] -> [n, 18]; d = (value of largest magnitude) / -8, so that it maps to q = 0 exactly."""
    largest = np.abs(values).argmax(axis=1, keepdims=True)  # [n, 1]
    d = np.take_along_axis(values, largest, axis=1) / np.float32(-8)  # [n, 1]
    q = np.trunc(values * _inverse(d) + np.float32(8.5)).astype(np.uint8).clip(0, 15)  # [n, 32]
    packed = np.bitwise_or(q[:, :16], q[:, 16:] << 4, dtype=np.uint8)  # [n, 16]
    return np.concatenate([encode_f16(d), packed], axis=1)


CODECS: dict[str, Codec] = {
    "f32": Codec(QUANTS["f32"], decode_f32, encode_f32),
    "f16": Codec(QUANTS["f16"], decode_f16, encode_f16),
    "q8_0": Codec(QUANTS["q8_0"], decode_q8_0, encode_q8_0),
    "q4_0": Codec(QUANTS["q4_0"], decode_q4_0, encode_q4_0),
}


def codec(name: str) -> Codec:
    """The codec of a tensor type; UnsupportedModelError names the types that have one."""
    row = CODECS.get(name)
    if row is None:
        known = tuple(CODECS)
        message = f"no codec for tensor type {name!r}; types with one: {', '.join(known)}"
        raise UnsupportedModelError(message, kind="codec", name=name, known=known)
    return row


def decode(name: str, raw: bytes | bytearray | memoryview | Bytes, n: int) -> Floats:
    """`n` stored values of a type as float32 [n]. ModelFormatError unless `raw` holds exactly `n`."""
    row = codec(name)
    data = np.frombuffer(raw, dtype=np.uint8)
    want = row_bytes(name, n)
    if data.size != want:
        raise ModelFormatError(
            f"{n} {name} values take {want} bytes, got {data.size}", got=data.size, want=want
        )
    with np.errstate(invalid="ignore"):  # inf * 0 in a broken block is NaN, and stays visible as NaN
        return row.decode(data.reshape(-1, row.quant.block_bytes)).reshape(n)


def encode(name: str, values: NDArray[Any]) -> Bytes:
    """The bytes of `values` [..., row] in a type, uint8 [n_bytes]; a block never spans two rows."""
    row = codec(name)
    row_bytes(name, values.shape[-1])
    blocks = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, row.quant.block)
    return row.encode(blocks).reshape(-1)


def _inverse(d: Floats) -> Floats:
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(d == 0, np.float32(0), np.float32(1) / d)


def _round_half_away(x: Floats) -> Floats:
    magnitude = np.abs(x)
    floor = np.floor(magnitude)
    return np.sign(x) * (floor + np.floor(2 * (magnitude - floor)))
