"""NumPy codecs: encode and decode of tensor types.

The reference backend supports the types of `CODECS`. A codec converts between [n_blocks, block_bytes] uint8
and [n_blocks, block] float32. Layouts: ggml-common.h of llama.cpp; values: the gguf package, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.common.codecs import affine, grids, legacy, plain, superblock, tiny
from camelid.backends.common.codecs.bits import Bytes, Floats
from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.quants import QUANTS, QuantType, row_bytes

CHUNK = 1 << 16  # values decoded at once: a chunk and its temporaries fit the second-level cache
# Types of the temporary right-hand side of dot products; files store no weights in them.
ACTIVATIONS = ("q8_1", "q8_k")


@dataclass(frozen=True, slots=True)
class Codec:
    """The decoder and encoder of one tensor type, block by block."""

    quant: QuantType
    decode: Callable[[Bytes], Floats]
    encode: Callable[[Floats], Bytes]  # raises UnsupportedModelError unless `encodes`
    encodes: bool


def _row(
    name: str, decode: Callable[[Bytes], Floats], encode: Callable[[Floats], Bytes] | None = None
) -> tuple[str, Codec]:
    return name, Codec(QUANTS[name], decode, encode or _no_encoder(name), encode is not None)


def _no_encoder(name: str) -> Callable[[Floats], Bytes]:
    def encode(_: Floats) -> Bytes:
        known = tuple(n for n, row in CODECS.items() if row.encodes)
        message = (
            f"no encoder for tensor type {name!r}, only a decoder; types with an encoder: {', '.join(known)}"
        )
        raise UnsupportedModelError(message, kind="encoder", name=name, known=known)

    return encode


CODECS: dict[str, Codec] = dict(
    (
        _row("f32", plain.decode_f32, plain.encode_f32),
        _row("f16", plain.decode_f16, plain.encode_f16),
        _row("bf16", plain.decode_bf16, plain.encode_bf16),
        _row("f64", plain.decode_f64),
        _row("i8", plain.decode_i8),
        _row("i16", plain.decode_i16),
        _row("i32", plain.decode_i32),
        _row("i64", plain.decode_i64),
        _row("q4_0", legacy.decode_q4_0, legacy.encode_q4_0),
        _row("q4_1", legacy.decode_q4_1, legacy.encode_q4_1),
        _row("q5_0", legacy.decode_q5_0, legacy.encode_q5_0),
        _row("q5_1", legacy.decode_q5_1, legacy.encode_q5_1),
        _row("q8_0", legacy.decode_q8_0, legacy.encode_q8_0),
        _row("q2_k", superblock.decode_q2_k),
        _row("q3_k", superblock.decode_q3_k),
        _row("q4_k", superblock.decode_q4_k),
        _row("q5_k", superblock.decode_q5_k),
        _row("q6_k", superblock.decode_q6_k),
        _row("iq1_s", grids.decode_iq1_s),
        _row("iq1_m", grids.decode_iq1_m),
        _row("iq2_xxs", grids.decode_iq2_xxs),
        _row("iq2_xs", grids.decode_iq2_xs),
        _row("iq2_s", grids.decode_iq2_s),
        _row("iq3_xxs", grids.decode_iq3_xxs),
        _row("iq3_s", grids.decode_iq3_s),
        _row("iq4_nl", grids.decode_iq4_nl),
        _row("iq4_xs", grids.decode_iq4_xs),
        _row("tq1_0", tiny.decode_tq1_0),
        _row("tq2_0", tiny.decode_tq2_0),
        _row("mxfp4", tiny.decode_mxfp4),
        _row("nvfp4", tiny.decode_nvfp4),
        _row("q1_0", tiny.decode_q1_0),
        _row("q2_0", tiny.decode_q2_0),
        *(_row(f"affine{bits}", partial(affine.decode_affine, bits=bits)) for bits in (2, 3, 6, 8)),
        _row("mxfp8", affine.decode_mxfp8),
    )
)


def codec(name: str) -> Codec:
    """The codec of a tensor type. Raises UnsupportedModelError for a type without a codec."""
    row = CODECS.get(name)
    if row is None:
        known = tuple(CODECS)
        why = " (it is for activations, not for stored weights)" if name in ACTIVATIONS else ""
        message = f"no codec for tensor type {name!r}{why}; types with a codec: {', '.join(known)}"
        raise UnsupportedModelError(message, kind="codec", name=name, known=known)
    return row


def decode(name: str, raw: bytes | bytearray | memoryview | Bytes, n: int) -> Floats:
    """Decodes `n` values of a type to float32 [n].

    Raises ModelFormatError unless `raw` has exactly their bytes.
    """
    row = codec(name)
    data = np.frombuffer(raw, dtype=np.uint8)
    want = row_bytes(name, n)
    if data.size != want:
        raise ModelFormatError(
            f"{n} {name} values need {want} bytes, got {data.size}", got=data.size, want=want
        )
    blocks = data.reshape(-1, row.quant.block_bytes)
    values = np.empty((len(blocks), row.quant.block), np.float32)
    step = CHUNK // row.quant.block
    # inf * 0 in a broken block becomes NaN, and overflow of float32 infinite: both stay visible in the
    # values.
    with np.errstate(invalid="ignore", over="ignore"):
        for at in range(0, len(blocks), step):
            values[at : at + step] = row.decode(blocks[at : at + step])
    return values.reshape(n)


def encode(name: str, values: NDArray[Any]) -> Bytes:
    """Encodes `values` [..., row] in a type as uint8 [n_bytes]; a block never spans two rows.

    Raises ModelFormatError for an infinite value or NaN, since no scale can represent their block. Finite
    values too large for a float16 scale become infinite, as in other writers of these types.
    """
    row = codec(name)
    row_bytes(name, values.shape[-1])
    blocks = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, row.quant.block)
    check_finite(name, blocks)
    with np.errstate(all="ignore"):  # scales may overflow or underflow, see the docstring
        return row.encode(blocks).reshape(-1)


def check_finite(name: str, values: Floats) -> None:
    """Raises ModelFormatError for an infinite value or NaN, which no scale can represent."""
    finite = np.isfinite(values)
    if not finite.all():
        at = int(finite.argmin())
        raise ModelFormatError(
            f"value {at} is {values.reshape(-1)[at]}: only finite values can be stored as {name}", offset=at
        )
