"""Decoded values of random blocks of every tensor type, computed without Camelid.

Most types: the gguf package. Types that it does not decode: exact arithmetic, one value at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import copysign, inf, nan
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize

from camelid.formats.quants import QUANTS

FILE = Path(__file__).with_name("quant_blocks.json")
NOT_STORED = ("q8_1", "q8_k")  # activations
STORED = tuple(name for name in QUANTS if name not in NOT_STORED)

FIRST, SECOND = (1, 0xBF, 0), (3, 0xBF, 0)  # a float16 at byte 0, at byte 2: below 2 without its top bit
# (byte, and, or) in each block: makes random bytes finite and of ordinary size.
FINITE: dict[str, tuple[tuple[int, int, int], ...]] = {
    **dict.fromkeys(("f16", "bf16", "q4_0", "q5_0", "q8_0", "q1_0", "q2_0"), (FIRST,)),
    **dict.fromkeys(("iq1_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"), (FIRST,)),
    **dict.fromkeys(("iq4_nl", "iq4_xs"), (FIRST,)),
    **dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (FIRST, SECOND)),
    **dict.fromkeys(("affine2", "affine3", "affine6", "affine8"), (FIRST, SECOND)),
    "f32": ((3, 0xBF, 0),),
    "f64": ((7, 0x80, 0x3F),),
    "q2_k": ((81, 0xBF, 0), (83, 0xBF, 0)),
    "q3_k": ((109, 0xBF, 0),),
    "q6_k": ((209, 0xBF, 0),),
    "iq1_m": ((55, 0xBF, 0),),
    "tq1_0": ((53, 0xBF, 0),),
    "tq2_0": ((65, 0xBF, 0),),
    "mxfp4": ((0, 0x1F, 0x60),),
    "mxfp8": ((0, 0x1F, 0x60), *((i, 0xBF, 0) for i in range(1, 33))),  # no NaN
    **dict.fromkeys(("i8", "i16", "i32", "i64", "nvfp4"), ()),
}


def random_blocks(name: str, seed: int, *, n: int, finite: bool) -> Any:  # uint8 [n, block_bytes]
    raw = np.random.default_rng(seed).integers(0, 256, (n, QUANTS[name].block_bytes), dtype=np.uint8)
    for byte, keep, add in FINITE[name] if finite else ():
        raw[:, byte] = raw[:, byte] & keep | add
    return raw


def oracle_type(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name.upper()]


def oracle_decode(name: str, raw: Any) -> Any:  # uint8 [n, block_bytes] -> float32 [n * block]
    if name in EXACT:
        values = [value for block in raw for value in EXACT[name](block.tobytes())]
        with np.errstate(over="ignore"):
            return np.array(values, dtype=np.float32)
    with np.errstate(all="ignore"):
        return dequantize(raw.reshape(-1), oracle_type(name)).reshape(-1)


def binary(block: bytes) -> Iterator[float]:
    (d,) = struct.unpack_from("<e", block)
    for byte in block[2:]:
        yield from (d if byte >> bit & 1 else -d for bit in range(8))


def quaternary(block: bytes) -> Iterator[float]:
    (d,) = struct.unpack_from("<e", block)
    for byte in block[2:]:
        yield from (d * ((byte >> bit & 3) - 1) for bit in (0, 2, 4, 6))


def whole(block: bytes) -> Iterator[float]:
    """An integer, rounded once to the 24 bits of a float32, ties to even."""
    number = int.from_bytes(block, "little", signed=True)
    step = 1 << max(0, abs(number).bit_length() - 24)
    yield float(round(Fraction(number, step)) * step)


def double(block: bytes) -> Iterator[float]:
    (number,) = struct.unpack("<d", block)
    try:
        yield struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        yield copysign(inf, number)


def affine(bits: int) -> Callable[[bytes], Iterator[float]]:
    """d * q + m of a stream of integers, lowest bits first; exact in float64, before one rounding."""

    def values(block: bytes) -> Iterator[float]:
        d, m = struct.unpack_from("<ee", block)
        stream = int.from_bytes(block[4:], "little")
        yield from (d * (stream >> bits * i & 2**bits - 1) + m for i in range(32))

    return values


def e4m3(code: int) -> float:
    """The OCP 8-bit floating point number: 4 bits of exponent, 3 of mantissa, no infinity."""
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return copysign(nan if code & 127 == 127 else size, 1 - (code >> 7) * 2)


def microscaled(block: bytes) -> Iterator[float]:
    scale = 2.0 ** (block[0] - 127)
    yield from (scale * e4m3(code) for code in block[1:])


EXACT: dict[str, Callable[[bytes], Iterator[float]]] = {
    "i8": whole,
    "i16": whole,
    "i32": whole,
    "i64": whole,
    "f64": double,
    "q1_0": binary,
    "q2_0": quaternary,
    **{f"affine{bits}": affine(bits) for bits in (2, 3, 6, 8)},
    "mxfp8": microscaled,
}
