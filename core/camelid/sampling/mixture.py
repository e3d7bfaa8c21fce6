"""Mixture of the model's distribution over the next token with another one, on the host.

p(y) = (1 - w) p_model(y) + w q(y), as kNN-LM has it (Khandelwal et al., arXiv 1911.00172, eq. 3). It comes
before masks and samplers, needs all logits of a row, and changes only the logits of the tokens that q names:
a constant on all logits changes no probability.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import exp, fsum, inf, log, log1p
from typing import NamedTuple, Protocol


class Mixing(NamedTuple):
    """What to mix into one row: `weight` w, below 1, and q by token id, whose probabilities sum to 1."""

    weight: float
    tokens: Mapping[int, float]


class Mixer(Protocol):
    """Names what to mix into each row of one request. It must return quickly: its step waits for it."""

    def mixing(self, logits: memoryview[float], history: Sequence[int]) -> Mixing | None:
        """The mixing of the row [V] after `history`; None leaves the row as it is."""
        ...


def mixed_logits(
    logits: memoryview[float], log_sum_exp: float, mixing: Mixing
) -> tuple[memoryview[float], float]:
    """The logits of the mixture in float64, [V], and their log-sum-exp."""
    assert 0.0 <= mixing.weight < 1.0, "all probability from q is no mixture"
    values = array("d", logits)
    given = {i: q for i, q in mixing.tokens.items() if q > 0.0}
    if given and mixing.weight > 0.0:
        assert abs(fsum(given.values()) - 1.0) < 1e-6, "q is a distribution"
        # w q / (1 - w) in units in which exp(log_sum_exp) is 1
        odds = log(mixing.weight) - log1p(-mixing.weight) + log_sum_exp
        for i, q in given.items():
            values[i] = _log_add(values[i], odds + log(q))
    return memoryview(values), log_sum_exp - log1p(-mixing.weight)


def _log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    low, high = sorted((a, b))
    return high if high == -inf else high + log1p(exp(low - high))
