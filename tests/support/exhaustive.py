"""Of some values `make test` takes a part, and `make exhaustive` the others: for `parametrize`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeVar

import pytest

Value = TypeVar("Value")


def share_of(values: Iterable[object], n: int = 1) -> list[object]:
    """The first `n` in every run, the others where exhaustive tests are asked for."""
    few = list(values)
    return [*few[:n], *map(exhaustive, few[n:])]


def by_lot(values: Iterable[object], one_in: int, seed: str) -> list[object]:
    """One in so many in every run, the others where exhaustive tests are asked for. Drawn by lot, as a stride
    would always meet the same place of a pattern; families that share values have seeds of their own."""
    every = list(values)
    few = set(Random(seed).sample(range(len(every)), -(-len(every) // one_in)))
    return [value if i in few else exhaustive(value) for i, value in enumerate(every)]


def first_of_each(values: Sequence[Value], kind: Callable[[Value], object]) -> list[object]:
    """The first of each kind in every run, the others where exhaustive tests are asked for."""
    first = {kind(value): value for value in reversed(values)}
    return [value if first[kind(value)] is value else exhaustive(value) for value in values]


def exhaustive(value: object) -> object:
    """A value, or a tuple of as many as there are names, for exhaustive tests alone."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
