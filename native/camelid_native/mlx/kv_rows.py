"""Rows of the KV cache as their kv_type stores them: GGUF's bytes, as on every backend.

Each operation of an encoder is one operation of IEEE's, in the order of `backends/common/codecs/legacy.py`,
so the bytes are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from camelid.formats.quants import row_bytes
from camelid_native.mlx.arrays import F16, F32, I8, U8, Array, Dtype, mx

BLOCK = 32  # values of a block of q8_0 and q4_0


@dataclass(frozen=True, slots=True)
class KvType:
    """How rows of a type are kept: the elements of an array, and functions to and from float32."""

    dtype: Dtype
    encode: Callable[[Array], Array]  # [n, cols] -> [n, width]
    decode: Callable[[Array], Array]  # [..., width] -> [..., cols]


def width_of(kv_type: str, cols: int) -> int:
    """Elements of a stored row."""
    return cols if kv_type in PLAIN else row_bytes(kv_type, cols)


def _encode_q8_0(x: Array) -> Array:
    blocks = _blocks(x)
    scale = mx.abs(blocks).max(axis=2, keepdims=True) / 127.0
    exact = blocks * _inverse(scale)
    size = mx.abs(exact)
    whole = mx.floor(size)
    q = mx.sign(exact) * (whole + mx.floor(2.0 * (size - whole)))  # halves go away from zero
    return _joined(scale, q.astype(I8).view(U8))


def _decode_q8_0(rows: Array) -> Array:
    scale, q = _cut(rows, BLOCK)
    return _flat(q.view(I8).astype(F32) * scale)


def _encode_q4_0(x: Array) -> Array:
    blocks = _blocks(x)
    at = mx.abs(blocks).argmax(axis=2, keepdims=True)
    scale = mx.take_along_axis(blocks, at, axis=2) / -8.0
    q = mx.minimum(mx.floor(blocks * _inverse(scale) + 8.5), 15.0).astype(U8)
    return _joined(scale, q[..., : BLOCK // 2] | (q[..., BLOCK // 2 :] << 4))


def _decode_q4_0(rows: Array) -> Array:
    scale, q = _cut(rows, BLOCK // 2)
    nibbles = mx.concatenate([q & 15, q >> 4], axis=-1)
    return _flat((nibbles.astype(F32) - 8.0) * scale)


def _blocks(x: Array) -> Array:  # [n, cols] -> [n, blocks, 32]
    return x.reshape(len(x), -1, BLOCK)


def _inverse(scale: Array) -> Array:
    return mx.where(scale == 0.0, 0.0, 1.0 / scale)


def _joined(scale: Array, q: Array) -> Array:  # [n, blocks, 1], [n, blocks, bytes] -> [n, row bytes]
    return mx.concatenate([scale.astype(F16).view(U8), q], axis=2).reshape(len(q), -1)


def _cut(rows: Array, n: int) -> tuple[Array, Array]:  # [..., row bytes] -> [..., blocks, 1 and n]
    """The scales, and the n bytes of each block behind its scale."""
    blocks = rows.reshape(*rows.shape[:-1], -1, n + 2)
    return blocks[..., :2].view(F16).astype(F32), blocks[..., 2:]


def _flat(blocks: Array) -> Array:  # [..., blocks, 32] -> [..., cols]
    return blocks.reshape(*blocks.shape[:-2], -1)


PLAIN = ("f32", "f16")
KV_TYPES: dict[str, KvType] = {
    "f32": KvType(F32, lambda x: x, lambda rows: rows),
    "f16": KvType(F16, lambda x: x.astype(F16), lambda rows: rows.astype(F32)),
    "q8_0": KvType(U8, _encode_q8_0, _decode_q8_0),
    "q4_0": KvType(U8, _encode_q4_0, _decode_q4_0),
}
