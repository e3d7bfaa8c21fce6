"""The exact one-sided sign test: better against worse, ties left out."""

from __future__ import annotations

from math import comb

LEVEL = 0.05


def sign_test(n_better: int, n_worse: int) -> float:
    """The probability of at least `n_better` by chance: 5 to 0 have 0.031, 4 to 0 0.063."""
    n = n_better + n_worse
    return sum(comb(n, k) for k in range(n_better, n + 1)) / 2**n
