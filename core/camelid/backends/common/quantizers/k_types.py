"""Quantizers of the K types: scales of groups are fitted first, then rounded to codes of a scale of
scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from camelid.backends.common.codecs.bits import Bytes, pack
from camelid.backends.common.quantizers.blocks import Blocks
from camelid.backends.common.quantizers.fit import (
    ZERO,
    Floats,
    fit_affine,
    fit_scale,
    inverse,
    quotient,
    total,
    whole,
)


@dataclass(frozen=True, slots=True)
class Linear:
    """Values d * scale * q: size of a group, codes q, starts of their fits; codes of scales and their
    starts."""

    size: int
    codes: tuple[int, int]
    starts: Sequence[float]
    scales: tuple[int, int]
    scale_starts: Sequence[float]


@dataclass(frozen=True, slots=True)
class WithMinimum:
    """Values d * scale * q - dmin * minimum: size of a group, largest q, shares of the smallest value that
    are tried as minimums; largest code of scales and minimums."""

    size: int
    top: int
    shares: Sequence[float]
    scale_top: int


Q3 = Linear(16, (-4, 3), (-3.0, -3.5, -4.0, -4.5, -5.0, 3.0, 3.5), (-32, 31), (-31.0, -32.0, -33.0))
Q6 = Linear(16, (-32, 31), tuple(-30.5 - i / 2 for i in range(9)), (-128, 127), (-127.0, -128.0, -129.0))
Q2 = WithMinimum(16, 3, (0.6, 0.8, 1.0), 15)
Q4 = WithMinimum(32, 15, (0.8, 0.9, 1.0), 63)
Q5 = WithMinimum(32, 31, (0.8, 0.9, 1.0), 63)
PAST_TOP = (-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)  # starts of codes, beside the largest code
SCALES_PAST_TOP = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class LinearCodes:
    """Codes of blocks: q [256, n], scales [groups, n] and d [n, 2] as float16."""

    q: Floats
    scales: Floats
    d: Bytes


def linear_codes(blocks: Blocks, kind: Linear) -> LinearCodes:
    """Codes of blocks without minimums."""
    xs, ws = blocks.groups(kind.size)
    nearest, near_scale = whole(*kind.codes), whole(*kind.scales)
    lines = [fit_scale(x, w, nearest, kind.starts) for x, w in zip(xs, ws, strict=True)]
    scales = np.stack([line.scale for line in lines])  # [groups, n]
    curvatures = np.stack([line.curvature for line in lines])
    d, step = blocks.stored(fit_scale(scales, curvatures, near_scale, kind.scale_starts).scale)
    codes = near_scale(scales * inverse(step))
    q = [nearest(x * inverse(step * code)) for x, code in zip(xs, codes, strict=True)]
    return LinearCodes(np.concatenate(q), codes, d)


@dataclass(frozen=True, slots=True)
class AffineCodes:
    """Codes of blocks: q [256, n], scales and minimums [groups, n], d and dmin [n, 2] as float16."""

    q: Floats
    scales: Floats
    minimums: Floats
    d: Bytes
    dmin: Bytes


def affine_codes(blocks: Blocks, kind: WithMinimum) -> AffineCodes:
    """Codes of blocks with minimums; a minimum is solved for again with the rounded scale."""
    xs, ws = blocks.groups(kind.size)
    nearest, near_scale = whole(0, kind.top), whole(0, kind.scale_top)
    starts = [kind.top + past for past in PAST_TOP]
    scale_starts = [kind.scale_top + past for past in SCALES_PAST_TOP]
    pairs = list(zip(xs, ws, strict=True))
    fits = [fit_affine(x, w, kind.top, starts, kind.shares) for x, w in pairs]
    qs = [nearest((x - f.minimum) * inverse(f.scale)) for (x, _), f in zip(pairs, fits, strict=True)]
    scales = np.stack([fit.scale for fit in fits])
    curvatures = np.stack([total(w * q * q) for (_, w), q in zip(pairs, qs, strict=True)])
    d, step = blocks.stored(fit_scale(scales, curvatures, near_scale, scale_starts).scale)
    codes = near_scale(scales * inverse(step))  # [groups, n]
    weights = np.stack([total(w) for w in ws])
    minimums = np.stack([
        _minimum(x, w, q, step * code, sw)
        for (x, w), q, code, sw in zip(pairs, qs, codes, weights, strict=True)
    ])  # fmt: skip
    dmin, low_step = blocks.stored(fit_scale(minimums, weights, near_scale, scale_starts).scale)
    low_codes = near_scale(minimums * inverse(low_step))
    q = [
        nearest((x + low_step * low) * inverse(step * code))
        for x, code, low in zip(xs, codes, low_codes, strict=True)
    ]
    return AffineCodes(np.concatenate(q), codes, low_codes, d, dmin)


def _minimum(x: Floats, w: Floats, q: Floats, scale: Floats, sw: Floats) -> Floats:
    """The best minimum, as a magnitude, of a group with given codes and scale."""
    return np.maximum(quotient(scale * total(w * q) - total(w * x), sw), ZERO)


def _bytes(codes: Floats, above: int = 0) -> Bytes:
    """[k, n] -> [n, k]; codes + above as bytes."""
    return (codes.T + np.float32(above)).astype(np.uint8)


def quantize_q2_k(blocks: Blocks) -> Bytes:
    """Blocks as q2_k; see `decode_q2_k` for the layout, here and below."""
    codes = affine_codes(blocks, Q2)
    scales = _bytes(codes.scales) | _bytes(codes.minimums) << np.uint8(4)
    return np.hstack([scales, pack(_bytes(codes.q), bits=2, width=32), codes.d, codes.dmin])


def quantize_q3_k(blocks: Blocks) -> Bytes:
    codes = linear_codes(blocks, Q3)
    q, scales = _bytes(codes.q, 4), _bytes(codes.scales, 32)
    high = pack(q >> np.uint8(2), bits=1, width=32)
    low = pack(q & np.uint8(3), bits=2, width=32)
    nibbles = pack(scales & np.uint8(15), bits=4, width=8)
    return np.hstack([high, low, nibbles, pack(scales >> np.uint8(4), bits=2, width=4), codes.d])


def quantize_q4_k(blocks: Blocks) -> Bytes:
    codes = affine_codes(blocks, Q4)
    return np.hstack([codes.d, codes.dmin, _scales_of_12(codes), pack(_bytes(codes.q), bits=4, width=32)])


def quantize_q5_k(blocks: Blocks) -> Bytes:
    codes = affine_codes(blocks, Q5)
    q = _bytes(codes.q)
    high = pack(q >> np.uint8(4), bits=1, width=32)
    low = pack(q & np.uint8(15), bits=4, width=32)
    return np.hstack([codes.d, codes.dmin, _scales_of_12(codes), high, low])


def quantize_q6_k(blocks: Blocks) -> Bytes:
    codes = linear_codes(blocks, Q6)
    q = _bytes(codes.q, 32)
    low = pack(q & np.uint8(15), bits=4, width=64)
    high = pack(q >> np.uint8(4), bits=2, width=32)
    return np.hstack([low, high, codes.scales.T.astype(np.int8).view(np.uint8), codes.d])


def _scales_of_12(codes: AffineCodes) -> Bytes:
    """[n, 12]: eight scales and eight minimums of six bits; see `_scales_and_minimums` of the codec."""
    scales, minimums = _bytes(codes.scales), _bytes(codes.minimums)
    first = scales[:, :4] | scales[:, 4:] >> np.uint8(4) << np.uint8(6)
    second = minimums[:, :4] | minimums[:, 4:] >> np.uint8(4) << np.uint8(6)
    nibbles = scales[:, 4:] & np.uint8(15) | minimums[:, 4:] << np.uint8(4)
    return np.hstack([first, second, nibbles])
