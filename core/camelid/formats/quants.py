"""Tensor types: id, values per block, bytes per block.

A row gives the size of a tensor. Computing with it needs a codec; each backend lists the codecs that it has.
Source: ggml.h and ggml-common.h of llama.cpp. The last rows are of matrices that MLX quantized, which GGUF
cannot store; their ids are our own, for kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid.errors import ModelFormatError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class QuantType:
    """A tensor type: each block of `block` values along a row is stored in `block_bytes` bytes."""

    name: str
    id: int
    block: int
    block_bytes: int


_ROWS = (
    QuantType("f32", 0, 1, 4),
    QuantType("f16", 1, 1, 2),
    QuantType("q4_0", 2, 32, 18),
    QuantType("q4_1", 3, 32, 20),
    QuantType("q5_0", 6, 32, 22),
    QuantType("q5_1", 7, 32, 24),
    QuantType("q8_0", 8, 32, 34),
    QuantType("q8_1", 9, 32, 36),  # 40 in the gguf package, but block_q8_1 in C has 2 halves and 32 bytes
    QuantType("q2_k", 10, 256, 84),
    QuantType("q3_k", 11, 256, 110),
    QuantType("q4_k", 12, 256, 144),
    QuantType("q5_k", 13, 256, 176),
    QuantType("q6_k", 14, 256, 210),
    QuantType("q8_k", 15, 256, 292),
    QuantType("iq2_xxs", 16, 256, 66),
    QuantType("iq2_xs", 17, 256, 74),
    QuantType("iq3_xxs", 18, 256, 98),
    QuantType("iq1_s", 19, 256, 50),
    QuantType("iq4_nl", 20, 32, 18),
    QuantType("iq3_s", 21, 256, 110),
    QuantType("iq2_s", 22, 256, 82),
    QuantType("iq4_xs", 23, 256, 136),
    QuantType("i8", 24, 1, 1),
    QuantType("i16", 25, 1, 2),
    QuantType("i32", 26, 1, 4),
    QuantType("i64", 27, 1, 8),
    QuantType("f64", 28, 1, 8),
    QuantType("iq1_m", 29, 256, 56),
    QuantType("bf16", 30, 1, 2),
    QuantType("tq1_0", 34, 256, 54),
    QuantType("tq2_0", 35, 256, 66),
    QuantType("mxfp4", 39, 32, 17),
    QuantType("nvfp4", 40, 64, 36),
    QuantType("q1_0", 41, 128, 18),
    QuantType("q2_0", 42, 64, 18),
)

# affineN: {d: f16, m: f16, q: u8[4 * N]}, N bits a value, lowest bits first, value = d * q + m.
# mxfp8: {e: E8M0, q: E4M3[32]}, value = 2**(e - 127) * q (OCP microscaling formats 1.0).
_MLX_ROWS = (
    QuantType("affine2", 64, 32, 12),
    QuantType("affine3", 65, 32, 16),
    QuantType("affine6", 66, 32, 28),
    QuantType("affine8", 67, 32, 36),
    QuantType("mxfp8", 68, 32, 33),
)

QUANTS: dict[str, QuantType] = {row.name: row for row in (*_ROWS, *_MLX_ROWS)}
GGUF_TYPES = frozenset(row.name for row in _ROWS)
_BY_ID: dict[int, QuantType] = {row.id: row for row in _ROWS}

# Ids of types that llama.cpp removed.
RETIRED: dict[int, str] = {
    4: "q4_2",
    5: "q4_3",
    31: "q4_0_4_4",
    32: "q4_0_4_8",
    33: "q4_0_8_8",
    36: "iq4_nl_4_4",
    37: "iq4_nl_4_8",
    38: "iq4_nl_8_8",
}


def quant(name: str) -> QuantType:
    """The tensor type of a lower-case name such as "q8_0".

    Raises UnsupportedModelError for an unknown name.
    """
    row = QUANTS.get(name)
    return row if row else _unknown(f"unknown tensor type {name!r}", name)


def name_of_id(type_id: int) -> str:
    """The name of the type of an id, of GGUF or our own; as kernels know types."""
    return next(row.name for row in QUANTS.values() if row.id == type_id)


def quant_by_id(type_id: int) -> QuantType:
    """The tensor type of a GGUF type id. Raises UnsupportedModelError for an unknown or retired id."""
    row = _BY_ID.get(type_id)
    if row:
        return row
    if type_id in RETIRED:
        _unknown(f"tensor type id {type_id} ({RETIRED[type_id]}) is retired: convert again", RETIRED[type_id])
    return _unknown(f"unknown tensor type id {type_id}", str(type_id))


def row_bytes(name: str, n: int) -> int:
    """Bytes of a row of `n` values of a type.

    Raises ModelFormatError if `n` is not a multiple of its block.
    """
    row = quant(name)
    if n % row.block:
        raise ModelFormatError(
            f"a row of {n} values cannot be {name}: its blocks hold {row.block} values each",
            got=n,
            want=row.block,
        )
    return n // row.block * row.block_bytes


def _unknown(message: str, name: str) -> QuantType:
    known = tuple(QUANTS)
    raise UnsupportedModelError(
        f"{message}; known: {', '.join(known)}", kind="tensor type", name=name, known=known
    )
