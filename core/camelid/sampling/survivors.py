"""The tokens that survive a chain of samplers, with bounds on the tokens that a device did not list.

A device sends a row's largest logits and sums over all logits (`backends.base.Candidates`). Samplers work on
these as long as the bounds prove the result that all logits would give, and raise `NeedsAllLogits` otherwise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, log, log1p
from operator import neg
from typing import TypeAlias

# From an old logit to a new logit. A change must be increasing, so that a bound stays a bound, and linear on
# either side of 0, so that three logits show if the change raises any logit (`may_raise`).
LogitChange: TypeAlias = Callable[[float], float]

ROUNDING = 1e-9  # two logs at most this far apart may be of equal numbers
MIN_LOGIT = -1e38  # about the lowest float32
MAX_EXPONENT = 700.0  # exp() of a larger number overflows float64


class NeedsAllLogits(Exception):
    """The candidates do not prove which tokens survive: the chain must run on all logits."""


@dataclass(frozen=True, slots=True)
class UnlistedTokens:
    """Bounds on the tokens that `Survivors` does not list.

    These are at most `n` tokens, none with a logit above `bound`; the sum of their exp(logit) lies between
    exp(`low`) and exp(`high`). `deviation` is the standard deviation of all logits, None if unknown.
    """

    n: int
    bound: float
    low: float
    high: float
    deviation: float | None = None

    def altered(self, changes: Collection[LogitChange]) -> UnlistedTokens:
        """The bounds after changes to unlisted tokens, whose logits are unknown."""
        low, high, bound = self.low, self.high, self.bound
        for change in changes:
            changed_bound = change(self.bound)
            low = log_minus(low, self.bound)
            high = log_plus(high, changed_bound) if may_raise(change, self.bound) else high
            bound = max(bound, changed_bound)
        return UnlistedTokens(self.n, bound, low, high)

    def divided(self, by: float) -> UnlistedTokens:
        """The bounds after dividing the logits by `by`.

        For n numbers up to b with sum s, the sum of their a-th powers lies between s * b^(a - 1) and
        n * (s / n)^a, in either order (Jensen).
        """
        a = 1.0 / by

        def powers(sum_: float) -> tuple[float, float]:
            return sum_ + (a - 1.0) * self.bound, (1.0 - a) * log(self.n) + a * sum_

        deviation = None if self.deviation is None else self.deviation / by
        return UnlistedTokens(
            self.n, self.bound / by, min(powers(self.low)), max(powers(self.high)), deviation
        )


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """Softmax weights: exp(logit - first logit) of listed tokens, and bounds on the unlisted tokens' sum."""

    weights: list[float]
    unlisted: tuple[float, float]

    @property
    def totals(self) -> tuple[float, float]:
        """Lower and upper bound on the sum of all weights, the denominator of probabilities."""
        listed = fsum(self.weights)
        return listed + self.unlisted[0], listed + self.unlisted[1]


@dataclass(slots=True)
class Survivors:
    """The surviving tokens, likeliest first, ties by lowest id; `unlisted` bounds tokens not listed."""

    ids: list[int]
    logits: list[float]
    unlisted: UnlistedTokens | None = None

    @property
    def n_certain(self) -> int:
        """The number of leading tokens that are certainly likelier than every unlisted token."""
        if self.unlisted is None:
            return len(self.ids)
        return bisect_left(self.logits, -self.unlisted.bound, key=neg)

    @property
    def deviation(self) -> float:
        """The standard deviation of the surviving logits, over n. Raises NeedsAllLogits if it is unknown."""
        if self.unlisted is None:
            return deviation_of(self.logits)
        if self.unlisted.deviation is None:
            raise NeedsAllLogits
        return self.unlisted.deviation

    def count(self, cut: float) -> int:
        """The number of tokens with a logit of at least `cut`.

        Raises NeedsAllLogits if such a token may be unlisted.
        """
        if self.unlisted is not None and self.unlisted.bound >= cut:
            raise NeedsAllLogits
        return bisect_right(self.logits, -cut, key=neg)

    def keep(self, n: int) -> None:
        """Keeps the first n tokens. Raises NeedsAllLogits if these are not certainly the likeliest."""
        if self.unlisted is not None and n > self.n_certain:
            raise NeedsAllLogits
        del self.ids[n:], self.logits[n:]
        self.unlisted = None

    def choose(self, indices: Collection[int]) -> None:
        """Keeps the tokens at these increasing indices."""
        self.ids, self.logits = [self.ids[i] for i in indices], [self.logits[i] for i in indices]
        self.unlisted = None

    def has_after(self, n: int, least: int) -> bool:
        """True if at least `least` tokens, and at least one token, follow the first n."""
        is_enough = len(self.ids) - n >= max(least, 1)
        if self.unlisted and not is_enough:
            raise NeedsAllLogits
        return is_enough

    def drop(self, n: int) -> None:
        """Drops the first n tokens."""
        del self.ids[:n], self.logits[:n]

    @property
    def relative_logits(self) -> list[float]:
        """Logits minus the first logit."""
        return [logit - self.logits[0] for logit in self.logits]

    @property
    def relative_bound(self) -> float:
        """Upper bound on the relative logits of unlisted tokens."""
        return self.unlisted.bound - self.logits[0] if self.unlisted else -inf

    def token_weights(self) -> TokenWeights:
        """Softmax weights of the surviving tokens."""
        weights = list(map(exp, self.relative_logits))
        if self.unlisted is None:
            return TokenWeights(weights, (0.0, 0.0))
        top = self.logits[0]
        return TokenWeights(weights, (_exp(self.unlisted.low - top), _exp(self.unlisted.high - top)))

    def divide(self, by: float) -> None:
        """Divides the logits by a temperature."""
        self.logits = [logit / by for logit in self.logits]
        self.unlisted = self.unlisted.divided(by) if self.unlisted else None

    def alter(self, changes: Mapping[int, LogitChange]) -> None:
        """Changes logits of some tokens. A token whose logit becomes -inf is dropped."""
        remaining = dict(changes)
        for i, token_id in enumerate(self.ids):
            if token_id in changes:
                self.logits[i] = remaining.pop(token_id)(self.logits[i])
        if len(remaining) < len(changes):
            pairs = sorted(
                (-logit, i) for logit, i in zip(self.logits, self.ids, strict=True) if logit > -inf
            )
            self.ids, self.logits = [i for _, i in pairs], [-negated for negated, _ in pairs]
        if self.unlisted and changes:
            self.unlisted = self.unlisted.altered(remaining.values())


def deviation_of(logits: Sequence[float]) -> float:
    """The population standard deviation (over n)."""
    mean = fsum(logits) / len(logits)
    return (fsum((logit - mean) ** 2 for logit in logits) / len(logits)) ** 0.5


def may_raise(change: LogitChange, bound: float) -> bool:
    """True if a change raises some logit up to `bound`. Penalties may lower high and raise low logits."""
    return any(change(logit) > logit for logit in (bound, min(bound, 0.0), MIN_LOGIT))


def unanimous(*results: int) -> int:
    """The common result. Raises NeedsAllLogits if results differ, as they depend on unlisted tokens."""
    if len(set(results)) > 1:
        raise NeedsAllLogits
    return results[0]


def log_minus(a: float, b: float) -> float:
    """log(exp(a) - exp(b)), or -inf if the difference is within rounding."""
    return a + log1p(-exp(b - a)) if a - b > ROUNDING else -inf


def log_plus(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    low, high = sorted((a, b))
    return high + log1p(exp(low - high)) if high > -inf else -inf


def log_of(x: float) -> float:
    """The natural log; -inf for x <= 0."""
    return log(x) if x > 0.0 else -inf


def _exp(x: float) -> float:
    return exp(min(x, MAX_EXPONENT))
