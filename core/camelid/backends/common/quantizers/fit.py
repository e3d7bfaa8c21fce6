"""Least-squares fits of a scale, or of a scale and a minimum, to groups of values with weights.

A group is a column of an array [values, groups]; sums run over its values in order. Every operation is one
float32 operation in the order of the text, so the C kernels, whose lanes are groups, give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[Any]  # float32; NumPy's stubs widen sums and products of float32
ZERO, ONE = np.float32(0), np.float32(1)
LEAST_SPREAD = np.float32(2**-16)  # of codes, relative to their squares, below which they count as constant
Nearest: TypeAlias = Callable[[Floats], Floats]  # real numbers to the nearest values that codes have


def total(terms: Floats) -> Floats:  # [k, n] -> [n]
    """The sum over the first axis, in order; NumPy's own sums have an order of their own."""
    acc = terms[0]
    for each in terms[1:]:
        acc = acc + each
    return acc


def quotient(a: Floats, b: Floats) -> Floats:
    """a / b; 0 where b is 0 or the quotient overflows."""
    ratio = a / np.where(b == 0, ONE, b)
    return np.where((b != 0) & np.isfinite(ratio), ratio, ZERO)


def inverse(scale: Floats) -> Floats:
    """1 / scale; 0 where the scale is 0 or its inverse overflows."""
    return quotient(np.ones_like(scale), scale)


def whole(low: int, high: int) -> Nearest:
    """The nearest integer in low..high; ties to even."""
    return lambda x: np.rint(np.minimum(np.maximum(x, np.float32(low)), np.float32(high)))


def largest(x: Floats) -> Floats:  # [k, n] -> [n]
    """The first value of the largest magnitude, with its sign."""
    top: Floats = x[0]
    for each in x[1:]:
        top = np.where(np.abs(each) > np.abs(top), each, top)
    return top


@dataclass(frozen=True, slots=True)
class Line:
    """Scales s of groups, and their curvatures sum(w * q * q), by which an error of s counts; [n] each."""

    scale: Floats
    curvature: Floats


def fit_scale(x: Floats, w: Floats, nearest: Nearest, starts: Sequence[float]) -> Line:
    """The scales s with the least sum(w * (x - s * q)**2) that the starts lead to, over codes q of `nearest`.

    A start is the code that the largest value gets. With the best start's scale the codes are rounded again,
    and the scale is solved for again.
    """
    wx = w * x
    top = inverse(largest(x))
    xq, qq = np.zeros_like(top), np.zeros_like(top)
    for by in (*(top * np.float32(start) for start in starts), None):
        q = nearest(x * (quotient(qq, xq) if by is None else by))
        new_xq, new_qq = total(wx * q), total(w * q * q)
        # The error falls by xq**2 / qq below that of s = 0.
        better = new_xq * new_xq * qq > xq * xq * new_qq
        better |= (qq == 0) & (new_qq > 0)
        xq, qq = np.where(better, new_xq, xq), np.where(better, new_qq, qq)
    return Line(quotient(xq, qq), qq)


@dataclass(frozen=True, slots=True)
class Affine:
    """Scales and minimums of groups, and the gain of each: the fall of the error below that of zeros."""

    gain: Floats
    scale: Floats
    minimum: Floats

    def or_better(self, other: Affine) -> Affine:
        """The fit of larger gain of each group."""
        better = other.gain > self.gain
        pairs = ((other.gain, self.gain), (other.scale, self.scale), (other.minimum, self.minimum))
        return Affine(*(np.where(better, new, old) for new, old in pairs))


@dataclass(frozen=True, slots=True)
class Sums:
    """A group with its sums of weights and of weighted values, as fits of lines need them."""

    x: Floats  # [k, n]
    w: Floats  # [k, n]
    sw: Floats  # [n]
    sx: Floats  # [n]
    signed: bool  # minimums may be positive

    def solved(self, minimum: Floats, by: Floats, nearest: Nearest) -> Affine:
        """The least-squares line through the codes that x gets with a minimum and an inverse scale."""
        q = nearest((self.x - minimum) * by)
        wq = self.w * q
        sq, sqq, sxq = total(wq), total(wq * q), total(wq * self.x)
        spread, size = self.sw * sqq - sq * sq, self.sw * sqq
        low = quotient(sqq * self.sx - sq * sxq, spread)
        free = spread > LEAST_SPREAD * size
        if not self.signed:
            free &= low < 0
        low = np.where(free, low, ZERO)
        scale = np.where(free, quotient(self.sw * sxq - self.sx * sq, spread), quotient(sxq, sqq))
        gain = scale * sxq + low * self.sx
        return Affine(np.where(scale > 0, gain, -ONE), scale, low)


def fit_affine(
    x: Floats, w: Floats, top: int, starts: Sequence[float], shares: Sequence[float], *, signed: bool = False
) -> Affine:
    """Scales s and minimums m with the least sum(w * (x - (s * q + m))**2) that the starts lead to, over
    codes q in 0..top; minimums are at most 0 unless `signed`.

    A start is the code that the largest value gets if the smallest gets 0, or a share of the smallest, since
    cutting off an outlier may cost less than wider steps.
    """
    sums = Sums(x, w, total(w), total(w * x), signed)
    nearest = whole(0, top)
    low, high = _ends(x)
    low = low if signed else np.minimum(low, ZERO)
    constant = quotient(sums.sx, sums.sw) if signed else np.minimum(quotient(sums.sx, sums.sw), ZERO)
    best = Affine(constant * sums.sx, np.zeros_like(constant), constant)
    for share in shares:
        cut = low * np.float32(share)
        by = inverse(np.maximum(high - cut, ZERO))
        for start in starts:
            best = best.or_better(sums.solved(cut, by * np.float32(start), nearest))
    return best.or_better(sums.solved(best.minimum, inverse(best.scale), nearest))


def _ends(x: Floats) -> tuple[Floats, Floats]:  # [k, n] -> [n] twice
    low = high = x[0]
    for each in x[1:]:
        low, high = np.minimum(low, each), np.maximum(high, each)
    return low, high
