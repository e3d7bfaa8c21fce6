"""Histograms and rates as plain lists: a value costs a bisection, with no lock and no label lookup.

One thread writes each of them. A reader on another thread may miss the value being written, no more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Bounds: TypeAlias = tuple[float, ...]
# Steps of 1, 2.5 and 5, as Prometheus' own defaults have them.
STEP_S: Bounds = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
TOKEN_S: Bounds = (5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5)
FIRST_S: Bounds = (1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 20, 40, 80)
WHOLE_S: Bounds = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 240, 480, 960)
TOKENS: Bounds = (1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
WINDOW_S = 5  # seconds of a rate


class Histogram:
    """Counts of values up to each bound, and above the last one."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, n: int = 1) -> None:
        """Counts a value `n` times."""
        self.counts[bisect_left(self.bounds, value)] += n
        self.total += value * n

    @property
    def n(self) -> int:
        return sum(self.counts)

    def cumulated(self) -> list[tuple[str, int]]:
        """Prometheus' buckets: the number of values up to each bound."""
        found, n = list[tuple[str, int]](), 0
        for bound, count in zip((*self.bounds, float("inf")), list(self.counts), strict=True):
            n += count
            found.append(("+Inf" if bound == float("inf") else repr(float(bound)), n))
        return found


def merged(histograms: Iterable[Histogram], bounds: Bounds) -> Histogram:
    """The sum of histograms with the same bounds."""
    found = Histogram(bounds)
    for each in histograms:
        found.counts = [a + b for a, b in zip(found.counts, each.counts, strict=True)]
        found.total += each.total
    return found


@dataclass(slots=True)
class Rate:
    """Tokens a second over the last `WINDOW_S` whole seconds."""

    _second: int = 0
    _counts: list[int] = field(default_factory=lambda: [0] * (WINDOW_S + 1))  # the first is under way

    def add(self, n: int, now: float) -> None:
        """Counts tokens."""
        self._advance(int(now))
        self._counts[0] += n

    def per_second(self, now: float) -> float:
        """The mean of the whole seconds in the window."""
        self._advance(int(now))
        return sum(self._counts[1:]) / WINDOW_S

    def _advance(self, second: int) -> None:
        passed = second - self._second
        if passed > 0:
            empty = [0] * min(passed, WINDOW_S + 1)
            self._counts = (empty + self._counts)[: WINDOW_S + 1]
            self._second = second


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the sorted values does not exceed; 0.0 of none."""
    return values[min(int(len(values) * share), len(values) - 1)] if values else 0.0
