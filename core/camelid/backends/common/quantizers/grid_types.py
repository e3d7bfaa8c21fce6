"""Quantizers of the IQ types with grids: the nearest point of a grid by exhaustive search.

A vector's part of the error with scale s and point g is s * (s * Q - P) + sum(w * x * x), with
P = sum(2 * w * x * g) and Q = sum(w * g * g). P and Q of all points are made once from tables of both halves
of a point; each scale that is tried costs one product and one difference per point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from camelid.backends.common.codecs.bits import Bytes, pack
from camelid.backends.common.codecs.grids import grid
from camelid.backends.common.quantizers.blocks import Blocks
from camelid.backends.common.quantizers.fit import (
    Floats,
    Line,
    Nearest,
    fit_scale,
    inverse,
    quotient,
    total,
    whole,
)

Ints = NDArray[np.int64]
TWO, HALF = np.float32(2), np.float32(0.5)
TOP_STARTS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0)  # starts of the scale of scales, beside its largest code
SHARES = (0.5, 0.65, 0.8, 0.95, 1.1, 1.25)  # of the largest level: what the largest value is mapped to
IQ1_STARTS = (1.0, 1.5, 2.0, 2.5, 3.0)
ALL, EVEN, NONE = range(3)  # signs beside a point: any, an even number of -1, none


@dataclass(frozen=True)
class Kind:
    """A type: its grid; vectors of a group, which has one scale; vectors with one choice of a delta, and the
    deltas; the number of scales, odd multiples of d * unit; signs; what the largest value is mapped to (none:
    scales are fitted to integers, as the search of so large a grid is slow)."""

    grid: str
    group: int
    span: int
    deltas: tuple[float, ...]
    n_scales: int
    unit: float
    signs: int
    tops: tuple[float, ...]

    @cached_property
    def points(self) -> Floats:  # [K, values]
        return grid(self.grid)

    @cached_property
    def levels(self) -> Floats:
        """The values that coordinates have, ascending."""
        return np.unique(self.points)

    @cached_property
    def halves(self) -> tuple[Ints, Ints]:
        """The indices of both halves of each point in tables of all combinations of levels."""
        codes = np.searchsorted(self.levels, self.points)
        half = codes.shape[1] // 2
        powers: Ints = np.int64(len(self.levels)) ** np.arange(half, dtype=np.int64)
        return codes[:, :half] @ powers, codes[:, half:] @ powers


def _tops(largest: float) -> tuple[float, ...]:
    return tuple(float(np.float32(largest) * np.float32(share)) for share in SHARES)


IQ2_XXS = Kind("iq2_xxs", 4, 4, (0.0,), 16, 1 / 8, EVEN, _tops(43))
IQ2_XS = Kind("iq2_xs", 2, 2, (0.0,), 16, 1 / 8, EVEN, _tops(43))
IQ2_S = Kind("iq2_s", 2, 2, (0.0,), 16, 1 / 8, ALL, _tops(43))
IQ3_XXS = Kind("iq3_xxs", 8, 8, (0.0,), 16, 1 / 4, EVEN, _tops(62))
IQ3_S = Kind("iq3_s", 8, 8, (0.0,), 16, 1, ALL, _tops(15))
IQ1_S = Kind("iq1", 4, 4, (0.125, -0.125), 8, 1, NONE, ())
IQ1_M = Kind("iq1", 2, 1, (0.125, -0.125), 8, 1, NONE, ())


@dataclass(frozen=True, slots=True)
class Choice:
    """The points chosen for vectors: indices and deltas [vectors, n]; sums of their P and Q, [n]."""

    points: Ints
    deltas: Ints
    p: Floats
    q: Floats


@dataclass(frozen=True, slots=True)
class Group:
    """P and Q of all points, [K, n], by vector and delta."""

    kind: Kind
    vectors: tuple[tuple[tuple[Floats, Floats], ...], ...]

    @property
    def _spans(self) -> list[tuple[tuple[tuple[Floats, Floats], ...], ...]]:
        return [self.vectors[at : at + self.kind.span] for at in range(0, self.kind.group, self.kind.span)]

    def least(self, s: Floats) -> Floats:
        """The least error with a scale beyond that of zeros, divided by the scale, [n]."""
        spans = list[Floats]()
        for span in self._spans:
            of_deltas = [
                total(np.stack([(s * vector[i][1] - vector[i][0]).min(axis=0) for vector in span]))
                for i in range(len(self.kind.deltas))
            ]
            spans.append(np.minimum(*of_deltas) if len(of_deltas) > 1 else of_deltas[0])
        return total(np.stack(spans))

    def chosen(self, s: Floats) -> Choice:
        """The points of the least error with a scale."""
        picked = [choice for span in self._spans for choice in _choices(span, s)]
        points, deltas, p, q = zip(*picked, strict=True)
        return Choice(np.stack(points), np.stack(deltas), total(np.stack(p)), total(np.stack(q)))


def _choices(
    span: Sequence[tuple[tuple[Floats, Floats], ...]], s: Floats
) -> list[tuple[Ints, Ints, Floats, Floats]]:
    """(point, delta, P, Q) of each vector of a span, whose vectors have one delta; the first of equals."""
    of_deltas = [[_nearest(*vector[i], s) for vector in span] for i in range(len(span[0]))]
    scores = np.stack([total(np.stack([each.score for each in nearest])) for nearest in of_deltas])
    delta = scores.argmin(axis=0)
    return [_at_delta(vectors, delta) for vectors in zip(*of_deltas, strict=True)]


def _at_delta(vectors: Sequence[Nearby], delta: Ints) -> tuple[Ints, Ints, Floats, Floats]:
    """(point, delta, P, Q) of a vector, [n] each, from its points with each delta."""
    points = np.take_along_axis(np.stack([each.point for each in vectors]), delta[None], 0)[0]
    p = np.take_along_axis(np.stack([each.p for each in vectors]), delta[None], 0)[0]
    q = np.take_along_axis(np.stack([each.q for each in vectors]), delta[None], 0)[0]
    return points, delta, p, q


@dataclass(frozen=True, slots=True)
class Nearby:
    """The point of the least score, the first of equals: index, P, Q and score, [n] each."""

    point: Ints
    p: Floats
    q: Floats
    score: Floats


def _nearest(p: Floats, q: Floats, s: Floats) -> Nearby:
    scores = s * q - p
    index = scores.argmin(axis=0)[None]
    p, q, scores = (np.take_along_axis(each, index, 0)[0] for each in (p, q, scores))
    return Nearby(index[0], p, q, scores)


def _group(kind: Kind, x: Floats, w: Floats) -> Group:
    """P and Q of a group's vectors x, w [values, n]."""
    width = kind.points.shape[1]
    vectors = range(0, len(x), width)
    return Group(
        kind,
        tuple(
            tuple(_sums(kind, x[at : at + width], w[at : at + width], delta) for delta in kind.deltas)
            for at in vectors
        ),
    )


def _sums(kind: Kind, x: Floats, w: Floats, delta: float) -> tuple[Floats, Floats]:
    """P and Q of every point for one vector, [K, n] each."""
    levels = (kind.levels + np.float32(delta))[:, None]
    wx = w * x * TWO
    low, high = kind.halves
    half = len(x) // 2
    p, q = [wx[i] * levels for i in range(len(x))], [w[i] * (levels * levels) for i in range(len(x))]
    p_of, q_of = (_table(of[:half])[low] + _table(of[half:])[high] for of in (p, q))
    return p_of, q_of


def _table(terms: Sequence[Floats]) -> Floats:  # k x [levels, n] -> [levels**k, n]
    """Sums over all combinations of levels, the first coordinate's level lowest in the index."""
    sums = terms[0]
    for each in terms[1:]:
        sums = (sums[None] + each[:, None]).reshape(-1, sums.shape[1])
    return sums


def odd(n: int) -> Nearest:
    """The nearest of the first n odd numbers."""
    top, one = np.float32(n - 1), np.float32(1)
    return lambda x: TWO * np.rint(np.minimum(np.maximum((x - one) * HALF, np.float32(0)), top)) + one


@dataclass(frozen=True, slots=True)
class GridCodes:
    """Codes of blocks: points and deltas [n, vectors], scales [n, groups], sign bits of eight values
    [n, 32], d as float16."""

    points: NDArray[np.uint16]
    deltas: Bytes
    scales: Bytes
    signs: Bytes
    d: Bytes


def grid_codes(blocks: Blocks, kind: Kind) -> GridCodes:
    """Scales are fitted by group and rounded to codes; points are chosen again with the rounded scales, and d
    is solved for again with these points."""
    x, signs = _without_signs(blocks, kind.signs)
    size = kind.group * kind.points.shape[1]
    parts = [(x[at : at + size], blocks.w[at : at + size]) for at in range(0, len(x), size)]
    groups = [_group(kind, *part) for part in parts]
    tops = [np.abs(of_group).max(axis=0) for of_group, _ in parts]
    fits = [
        _fit(group, top) if kind.tops else _fit_integers(*part)
        for group, top, part in zip(groups, tops, parts, strict=True)
    ]
    scales, curvatures = np.stack([fit.scale for fit in fits]), np.stack([fit.curvature for fit in fits])
    nearest = odd(kind.n_scales)
    starts = [2 * kind.n_scales - 1 + past for past in TOP_STARTS]
    _, step = _stored(blocks, kind, fit_scale(scales, curvatures, nearest, starts).scale)
    codes = nearest(scales * inverse(step))  # [groups, n]
    choices = [group.chosen(step * code) for group, code in zip(groups, codes, strict=True)]
    p = total(np.stack([each.p for each in choices]) * codes)
    q = total(np.stack([each.q for each in choices]) * codes * codes)
    d, _ = _stored(blocks, kind, quotient(p, q) * HALF)
    return GridCodes(
        np.concatenate([each.points for each in choices]).T.astype(np.uint16),
        np.concatenate([each.deltas for each in choices]).T.astype(np.uint8),
        ((codes - np.float32(1)) * HALF).T.astype(np.uint8),
        signs,
        d,
    )


def _stored(blocks: Blocks, kind: Kind, step: Floats) -> tuple[Bytes, Floats]:
    raw, value = blocks.stored(step * np.float32(1 / kind.unit))
    return raw, value * np.float32(kind.unit)


def _fit(group: Group, top: Floats) -> Line:
    """The scale of a group, and its curvature: the best of some shares of the largest value, solved for
    again."""
    best, scale = np.zeros_like(top), np.zeros_like(top)
    for code in group.kind.tops:
        s = top * np.float32(1 / code)
        error = group.least(s) * s
        better = error < best
        best, scale = np.where(better, error, best), np.where(better, s, scale)
    choice = group.chosen(scale)
    return Line(np.where(scale > 0, quotient(choice.p, choice.q) * HALF, np.float32(0)), choice.q)


def _fit_integers(x: Floats, w: Floats) -> Line:
    """The scale of -1, 0 and 1 of a group; it is positive, as their codes have both signs."""
    line = fit_scale(x, w, whole(-1, 1), IQ1_STARTS)
    return Line(np.abs(line.scale), line.curvature)


def _without_signs(blocks: Blocks, signs: int) -> tuple[Floats, Bytes]:
    """Magnitudes [256, n], and sign bits [n, 32]. Where the number of -1 must be even and is odd, the value
    whose sign costs least changes it: the magnitude becomes negative."""
    if signs == NONE:
        return blocks.x, np.zeros((blocks.x.shape[1], 32), np.uint8)
    n = blocks.x.shape[1]
    x, w = blocks.x.reshape(32, 8, n), blocks.w.reshape(32, 8, n)
    negative, size = x < 0, np.abs(x)
    if signs == EVEN:
        least = (w * size).argmin(axis=1)[:, None]  # [32, 1, n]
        flip = (np.arange(8)[:, None] == least) & (negative.sum(axis=1, keepdims=True) % 2 == 1)
        negative, size = negative ^ flip, np.where(flip, -size, size)
    bits = pack(negative.transpose(2, 0, 1).reshape(n, 256).astype(np.uint8), bits=1)
    return size.reshape(256, n), bits


def _low(codes: GridCodes) -> Bytes:
    return (codes.points & np.uint16(255)).astype(np.uint8)


def _high(codes: GridCodes) -> Bytes:
    return (codes.points >> np.uint16(8)).astype(np.uint8)


def _signs_and_scales(codes: GridCodes) -> NDArray[np.uint32]:  # [n, 8]
    """Four times seven sign bits, of which the eighth follows, and four bits of scale."""
    seven = (codes.signs & np.uint8(127)).astype(np.uint32).reshape(len(codes.signs), 8, 4)
    signs = np.bitwise_or.reduce(seven << np.array([0, 7, 14, 21], np.uint32), axis=2)
    return np.ascontiguousarray(signs | codes.scales.astype(np.uint32) << np.uint32(28), "<u4")


def quantize_iq2_xxs(blocks: Blocks) -> Bytes:
    """Blocks as iq2_xxs; see `decode_iq2_xxs` for the layout, here and below."""
    codes = grid_codes(blocks, IQ2_XXS)
    points = _low(codes).reshape(-1, 8, 4)
    words = _signs_and_scales(codes).view(np.uint8).reshape(-1, 8, 4)
    return np.hstack([codes.d, np.concatenate([points, words], axis=2).reshape(-1, 64)])


def quantize_iq2_xs(blocks: Blocks) -> Bytes:
    codes = grid_codes(blocks, IQ2_XS)
    seven = (codes.signs & np.uint8(127)).astype(np.uint16) << np.uint16(9)
    q = np.ascontiguousarray(codes.points | seven, "<u2").view(np.uint8)
    return np.hstack([codes.d, q, pack(codes.scales, bits=4)])


def quantize_iq2_s(blocks: Blocks) -> Bytes:
    codes = grid_codes(blocks, IQ2_S)
    high, scales = pack(_high(codes), bits=2), pack(codes.scales, bits=4)
    return np.hstack([codes.d, _low(codes), codes.signs, high, scales])


def quantize_iq3_xxs(blocks: Blocks) -> Bytes:
    codes = grid_codes(blocks, IQ3_XXS)
    return np.hstack([codes.d, _low(codes), _signs_and_scales(codes).view(np.uint8)])


def quantize_iq3_s(blocks: Blocks) -> Bytes:
    codes = grid_codes(blocks, IQ3_S)
    high, scales = pack(_high(codes), bits=1), pack(codes.scales, bits=4)
    return np.hstack([codes.d, _low(codes), high, codes.signs, scales])


def _three_bits(codes: NDArray[np.uint16]) -> NDArray[np.uint16]:  # [n, 4 * k] -> [n, k]
    fours = codes.reshape(len(codes), -1, 4)
    return np.bitwise_or.reduce(fours << np.array([0, 3, 6, 9], np.uint16), axis=2)


def quantize_iq1_s(blocks: Blocks) -> Bytes:
    codes = grid_codes(blocks, IQ1_S)
    delta = codes.deltas[:, ::4].astype(np.uint16) << np.uint16(15)
    scale = codes.scales.astype(np.uint16) << np.uint16(12)
    high = _three_bits(codes.points >> np.uint16(8)) | scale | delta
    return np.hstack([codes.d, _low(codes), np.ascontiguousarray(high, "<u2").view(np.uint8)])


def quantize_iq1_m(blocks: Blocks) -> Bytes:
    codes = grid_codes(blocks, IQ1_M)
    high = pack(_high(codes) | codes.deltas << np.uint8(3), bits=4)
    nibbles = codes.d.view("<u2") >> np.array([0, 4, 8, 12], np.uint16) << np.uint16(12)  # [n, 4]
    scales = _three_bits(codes.scales.astype(np.uint16)) | nibbles
    return np.hstack([_low(codes), high, np.ascontiguousarray(scales, "<u2").view(np.uint8)])
