"""Win rates with intervals: does something help, and how sure is that?"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

Z = 1.96  # 95 per cent, two-sided


@dataclass(frozen=True, slots=True)
class Rate:
    """`won` of `n` trials."""

    won: int = 0
    n: int = 0

    def interval(self, z: float = Z) -> tuple[float, float]:
        """Wilson's score interval (1927); 0 to 1 without a trial."""
        if not self.n:
            return 0.0, 1.0
        p, n = self.won / self.n, self.n
        middle = p + z * z / (2 * n)
        half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def gain(with_it: Rate, without: Rate, z: float = Z) -> tuple[float, float]:
    """The interval of the difference of two rates: Newcombe's method 10 (1998), from Wilson's intervals."""
    if not with_it.n or not without.n:
        return -1.0, 1.0
    p, q = with_it.won / with_it.n, without.won / without.n
    (low_p, high_p), (low_q, high_q) = with_it.interval(z), without.interval(z)
    low = (p - q) - sqrt((p - low_p) ** 2 + (high_q - q) ** 2)
    high = (p - q) + sqrt((high_p - p) ** 2 + (q - low_q) ** 2)
    return low, high
