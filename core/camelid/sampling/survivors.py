"""The tokens that a chain of samplers has left, and what is known of those that it was not given.

A device sends a row's largest logits and sums over all of them (`backends.base.Candidates`). Samplers work
on those as long as that proves what all logits would give. Where it does not they raise `NeedsAllLogits`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, log, log1p
from operator import neg
from typing import TypeAlias

# A new logit for an old one. It must grow with it, so that a bound stays one, and be linear on either side
# of 0, so that three logits show if it raises any.
LogitChange: TypeAlias = Callable[[float], float]

ROUNDING = 1e-9  # two logs so close may be of equal numbers
LOWEST = -1e38  # as far down as float32 goes
MOST_EXPONENT = 700.0  # exp() of more overflows float64


class NeedsAllLogits(Exception):
    """What was given does not prove which tokens are left: the chain must be run on all logits."""


@dataclass(frozen=True, slots=True)
class UnlistedTokens:
    """Bounds on the tokens that `Survivors` does not list.

    At most `n` tokens, none with a logit above `bound`; the sum of their exp(logit) lies between
    exp(`low`) and exp(`high`). `deviation` is the standard deviation of all logits, where known.
    """

    n: int
    bound: float
    low: float
    high: float
    deviation: float | None = None

    def altered(self, changes: Collection[LogitChange]) -> UnlistedTokens:
        """After changes to unlisted tokens, whose logits nobody knows."""
        low, high, bound = self.low, self.high, self.bound
        for change in changes:
            edge = change(self.bound)
            low = log_minus(low, self.bound)
            high = log_plus(high, edge) if may_raise(change, self.bound) else high
            bound = max(bound, edge)
        return UnlistedTokens(self.n, bound, low, high)

    def divided(self, by: float) -> UnlistedTokens:
        """After dividing the logits. Of n numbers up to b that sum to s, the sum of a-th powers lies between
        s * b^(a - 1) and n * (s / n)^a, whichever is more (Jensen)."""
        a = 1.0 / by

        def powers(sum_: float) -> tuple[float, float]:
            return sum_ + (a - 1.0) * self.bound, (1.0 - a) * log(self.n) + a * sum_

        deviation = None if self.deviation is None else self.deviation / by
        return UnlistedTokens(
            self.n, self.bound / by, min(powers(self.low)), max(powers(self.high)), deviation
        )


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """Weights of the tokens listed: exp(logit - first logit); the least and most that the rest's sum to."""

    weights: list[float]
    rest: tuple[float, float]

    @property
    def totals(self) -> tuple[float, float]:
        """What probabilities are shares of, at least and at most."""
        listed = fsum(self.weights)
        return listed + self.rest[0], listed + self.rest[1]


@dataclass(slots=True)
class Survivors:
    """The tokens left, likeliest first and of equals the lowest id first; `rest` is what is not listed."""

    ids: list[int]
    logits: list[float]
    rest: UnlistedTokens | None = None

    @property
    def n_settled(self) -> int:
        """So many of the first tokens are surely ahead of all that is not listed."""
        return len(self.ids) if self.rest is None else bisect_left(self.logits, -self.rest.bound, key=neg)

    @property
    def deviation(self) -> float:
        """The standard deviation of all logits left, over n. NeedsAllLogits if it is not known."""
        if self.rest is None:
            return deviation_of(self.logits)
        if self.rest.deviation is None:
            raise NeedsAllLogits
        return self.rest.deviation

    def count(self, cut: float) -> int:
        """So many tokens have a logit of at least `cut`. NeedsAllLogits if some may not be listed."""
        if self.rest is not None and self.rest.bound >= cut:
            raise NeedsAllLogits
        return bisect_right(self.logits, -cut, key=neg)

    def keep(self, n: int) -> None:
        """Leaves the first n. NeedsAllLogits if these are not surely the first."""
        if self.rest is not None and n > self.n_settled:
            raise NeedsAllLogits
        del self.ids[n:], self.logits[n:]
        self.rest = None

    def choose(self, places: Collection[int]) -> None:
        """Leaves the tokens at these places, which grow."""
        self.ids, self.logits = [self.ids[i] for i in places], [self.logits[i] for i in places]
        self.rest = None

    def has_beyond(self, n: int, least: int) -> bool:
        """Whether `least` tokens follow the first n, and one at any rate."""
        has = len(self.ids) - n >= max(least, 1)
        if self.rest and not has:
            raise NeedsAllLogits
        return has

    def drop(self, n: int) -> None:
        """Leaves out the first n."""
        del self.ids[:n], self.logits[:n]

    @property
    def levels(self) -> list[float]:
        """Logits less the first one."""
        return [logit - self.logits[0] for logit in self.logits]

    @property
    def bound(self) -> float:
        """No token that is not listed has a higher level."""
        return self.rest.bound - self.logits[0] if self.rest else -inf

    def shares(self) -> TokenWeights:
        """What each token weighs."""
        weights = list(map(exp, self.levels))
        if self.rest is None:
            return TokenWeights(weights, (0.0, 0.0))
        top = self.logits[0]
        return TokenWeights(weights, (_exp(self.rest.low - top), _exp(self.rest.high - top)))

    def divide(self, by: float) -> None:
        """Divides the logits by a temperature."""
        self.logits = [logit / by for logit in self.logits]
        self.rest = self.rest.divided(by) if self.rest else None

    def alter(self, changes: Mapping[int, LogitChange]) -> None:
        """Changes logits of some tokens. One that becomes -inf is left out."""
        unlisted = dict(changes)
        for i, token_id in enumerate(self.ids):
            if token_id in changes:
                self.logits[i] = unlisted.pop(token_id)(self.logits[i])
        if len(unlisted) < len(changes):
            pairs = sorted(
                (-logit, i) for logit, i in zip(self.logits, self.ids, strict=True) if logit > -inf
            )
            self.ids, self.logits = [i for _, i in pairs], [-level for level, _ in pairs]
        self.rest = self.rest.altered(unlisted.values()) if self.rest and changes else self.rest


def deviation_of(logits: Sequence[float]) -> float:
    """The standard deviation, over n."""
    mean = fsum(logits) / len(logits)
    return (fsum((logit - mean) ** 2 for logit in logits) / len(logits)) ** 0.5


def may_raise(change: LogitChange, bound: float) -> bool:
    """Whether it raises some logit up to `bound`. Penalties may lower a high one and raise a low one."""
    return any(change(logit) > logit for logit in (bound, min(bound, 0.0), LOWEST))


def agreed(*answers: int) -> int:
    """The answer, if it is one. NeedsAllLogits if it depends on what is not known."""
    if len(set(answers)) > 1:
        raise NeedsAllLogits
    return answers[0]


def log_minus(a: float, b: float) -> float:
    """log(exp(a) - exp(b)), or -inf where nothing is left but rounding."""
    return a + log1p(-exp(b - a)) if a - b > ROUNDING else -inf


def log_plus(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    low, high = sorted((a, b))
    return high + log1p(exp(low - high)) if high > -inf else -inf


def log_of(x: float) -> float:
    """The natural log; -inf of what is not above 0."""
    return log(x) if x > 0.0 else -inf


def _exp(x: float) -> float:
    return exp(min(x, MOST_EXPONENT))
