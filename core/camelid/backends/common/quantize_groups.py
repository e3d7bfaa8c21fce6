"""Quantizers of MLX's modes in NumPy: rows of values become words, scales and, in mode affine, biases.

The formats are those of formats/mlx_quant.py. Integers belong to the scales as they are stored, after their
rounding, so that the rounding of a scale costs no further error.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from camelid.backends.common.codecs import decode, encode
from camelid.backends.common.codecs.bits import pack_stream
from camelid.errors import ModelFormatError
from camelid.formats.mlx_quant import Groups

F32: TypeAlias = npt.NDArray[np.float32]
U8: TypeAlias = npt.NDArray[np.uint8]

LEAST_STEP = np.float32(1e-7)  # as in MLX: a group of equal values still has a step
TINY = np.finfo(np.float32).tiny


def quantize_groups(values: F32, groups: Groups, *, parameters: str) -> tuple[bytes, ...]:
    """Planes of rows [n, cols], cols a multiple of the group: words, scales and, in mode affine, biases.

    `parameters` is the type of scales and biases in mode affine, f16 or bf16. Raises ModelFormatError for a
    value that is not finite and for a scale that the type cannot hold.
    """
    if not np.isfinite(values).all():
        wrong = values[~np.isfinite(values)][0]
        raise ModelFormatError(f"a value is {wrong}: only finite values can be quantized", got=float(wrong))
    x = values.reshape(len(values), -1, groups.size)  # [n, groups, size]
    if groups.mode == "affine":
        q, *planes = _affine(x, groups.bits, parameters)
    else:
        q, *planes = _scaled(x, SCALED[groups.mode])
    words = pack_stream(q.reshape(values.shape), bits=groups.bits)
    return tuple(plane.tobytes() for plane in (words, *planes))


def _affine(x: F32, bits: int, kind: str) -> tuple[U8, U8, U8]:
    """Integers [n, groups, size], and scales and biases [n, groups] in type `kind`.

    The edge of the range that is farther from 0 is exact; 0 is so but for the rounding of the scale, if the
    range contains it.
    """
    top = (1 << bits) - 1
    low: F32 = x.min(axis=2)  # [n, groups]
    high: F32 = x.max(axis=2)
    edge = np.where(np.abs(low) > np.abs(high), low, high)
    with np.errstate(over="ignore"):  # an infinite step is refused when it is stored
        step = np.maximum((high - low) / np.float32(top), LEAST_STEP) * np.where(edge == high, -1, 1)
    steps = np.rint(edge / step)  # from the edge to 0
    step = np.divide(edge, steps, out=step.astype(np.float32), where=steps != 0)
    (d, scales), (m, biases) = _stored(step, kind), _stored(np.where(steps != 0, edge, 0), kind)
    q = np.rint((x - m[..., None]) / d[..., None])
    return np.clip(q, 0, top).astype(np.uint8), scales, biases


def _stored(values: F32, kind: str) -> tuple[F32, U8]:
    """Values rounded to type `kind`, and their bytes.

    A bf16 is rounded to a float16's steps of 2**-24, since blocks of q4_1 and its like hold float16; a value
    beyond float16 stays.
    """
    rounded = decode(kind, encode(kind, values), values.size).reshape(values.shape)
    with np.errstate(over="ignore"):
        halves = rounded.astype(np.float16).astype(np.float32)
    kept = np.where(np.isfinite(halves), halves, rounded)
    return kept, encode(kind, kept)


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A float without its sign: bits of the mantissa, exponent of the least normal value, highest code."""

    mantissa: int
    least: int
    top: int

    def codes(self, x: F32, *, up_from: float = 0.5) -> U8:
        """Codes of values from 0, rounded up from this share of a step on: 0.5 is nearest, 1 rounds down.

        Values above the highest get the highest code.
        """
        return _codes_by_head(self, up_from)[x.view(np.uint32) >> 16]

    def values(self, codes: U8) -> F32:
        """Values of codes."""
        return _values_by_code(self)[codes]


@functools.cache
def _values_by_code(row: SmallFloat) -> F32:
    n, each = 1 << row.mantissa, np.arange(row.top + 1)
    whole = np.where(each < n, each, each % n + n).astype(np.float32)
    exponent = np.maximum(each >> row.mantissa, 1) - 1 + row.least - row.mantissa
    return np.ldexp(whole, exponent).astype(np.float32)


@functools.cache
def _codes_by_head(row: SmallFloat, up_from: float) -> U8:
    """[2**15]: codes by the upper half of a float32, which tells codes apart: no border between two has more
    than 4 bits of mantissa."""
    heads = np.minimum(np.arange(1 << 15, dtype=np.uint32), 0x7F7F)  # 0x7F80 is infinity
    x = (heads << 16).view(np.float32)
    exponent = np.maximum(np.frexp(np.maximum(x, TINY))[1] - 1, row.least)
    whole = np.floor(np.ldexp(x, row.mantissa - exponent) + (1 - up_from)).astype(np.int64)
    return np.minimum((exponent - row.least << row.mantissa) + whole, row.top).astype(np.uint8)


E2M1 = SmallFloat(mantissa=1, least=0, top=7)
E4M3 = SmallFloat(mantissa=3, least=-6, top=126)
E8M0 = SmallFloat(mantissa=0, least=-126, top=254)  # code 0 is 2**-127: here 0, and so are its integers


@dataclass(frozen=True, slots=True)
class Scaled:
    """A mode without biases: the types of values and scales, and the bit of the sign."""

    value: SmallFloat
    scale: SmallFloat
    sign: int


SCALED: Mapping[str, Scaled] = {
    "mxfp4": Scaled(E2M1, E8M0, 3),
    "mxfp8": Scaled(E4M3, E8M0, 7),
    "nvfp4": Scaled(E2M1, E4M3, 3),
}


def _scaled(x: F32, row: Scaled) -> tuple[U8, U8]:
    """Codes [n, groups, size], and scales [n, groups]: of the two around the range, the better one."""
    most = float(row.value.values(np.array(row.value.top, np.uint8)))
    sizes = np.abs(x)
    below = row.scale.codes(sizes.max(axis=2) / np.float32(most), up_from=1)  # [n, groups]
    above = np.minimum(below, row.scale.top - 1) + np.uint8(1)
    (low, low_error), (high, high_error) = (_tried(sizes, scales, row) for scales in (below, above))
    is_low = low_error <= high_error
    q = np.where(is_low[..., None], low, high)
    signs = ((x < 0) & (q > 0)).astype(np.uint8) << np.uint8(row.sign)  # no -0: 4-bit blocks read it as 0
    return q | signs, np.where(is_low, below, above)


def _tried(sizes: F32, scales: U8, row: Scaled) -> tuple[U8, F32]:
    """Codes [n, groups, size] with these scales, and the squared error of each group."""
    d = row.scale.values(scales)[..., None]  # [n, groups, 1]
    divisors: F32 = np.where(d > 0, d, np.inf).astype(np.float32)
    q = row.value.codes(sizes / divisors)
    error = row.value.values(q) * d - sizes
    return q, np.einsum("ngs,ngs->ng", error, error)
