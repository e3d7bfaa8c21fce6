"""Bounds on the tokens outside a device's candidates: they must hold for all possible values."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest

from camelid.sampling.history import lowered, penalized
from camelid.sampling.survivors import LogitChange, NeedsAllLogits, Survivors, UnlistedTokens, may_raise


def test_a_token_no_better_than_the_bound_is_not_surely_ahead() -> None:
    """A hidden token may equal the bound and have a lower id."""
    rest = UnlistedTokens(1, 2.0, 0.0, 2.0)
    assert Survivors([5, 9], [3.0, 2.0], rest).n_certain == 1
    assert Survivors([5, 9], [3.0, 2.0], rest).count(2.1) == 1
    assert Survivors([5, 9], [3.0, 2.0], rest).has_after(1, 1)
    doubts: list[Any] = [
        lambda s: s.keep(2), lambda s: s.count(2.0), lambda s: s.has_after(1, 2)
    ]  # fmt: skip
    for doubtful in doubts:
        with pytest.raises(NeedsAllLogits):
            doubtful(Survivors([5, 9], [3.0, 2.0], rest))


def some_change(rng: np.random.Generator) -> LogitChange:
    """A bias, a ban, or penalties, which may raise some logits and lower others."""
    less = float(rng.normal(0, 4))
    factor = float(np.exp(rng.normal(0, 1)))
    return [partial(lowered, less), partial(lowered, inf), partial(penalized, factor, less)][rng.integers(3)]


@pytest.mark.parametrize("n", [1, 4, 40])
def test_bounds_hold_for_all_hidden_logits(n: int) -> None:
    """Changes to hidden tokens, and temperatures; the sums are exact, so no slack hides an error."""
    for number in range(300):
        rng = np.random.default_rng(number)
        hidden = rng.normal(0, 3, n)
        total = float(np.log(np.exp(hidden).sum()))
        rest = UnlistedTokens(n, float(hidden.max()), total, total, 1.0)
        for _ in range(3):
            if rng.random() < 0.5:
                by = float(rng.uniform(0.2, 3))
                hidden, rest = hidden / by, rest.divided(by)
            else:
                places = rng.permutation(n)[: int(rng.integers(1, 4))]
                changes = [some_change(rng) for _ in places]
                hidden[places] = [
                    change(float(hidden[i])) for i, change in zip(places, changes, strict=False)
                ]
                rest = rest.altered(changes)
                assert rest.deviation is None, "the deviation of changed logits is unknown"
            assert hidden.max() <= rest.bound + 1e-9
            mass = np.exp(hidden).sum()
            assert np.exp(rest.low) <= mass * (1 + 1e-6) + 1e-9
            assert mass <= np.exp(rest.high) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("above", "below", "less", "bound", "raises"),
    [(2, 1, 1, 3, True), (2, 1, 1, 0.5, False), (0.5, 2, -1, 4, True), (0.5, 2, 1, 4, False),
     (1, 0.5, 1, -1, True), (1, 1, 0, 3, False)],
)  # fmt: skip
def test_a_change_that_raises_a_logit_is_recognised(
    above: float, below: float, less: float, bound: float, raises: bool
) -> None:
    assert may_raise(lambda x: x * (above if x > 0 else below) - less, bound) == raises
