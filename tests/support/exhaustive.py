"""Fixed samples for `parametrize`: some values in ordinary runs, the others in exhaustive runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")


def share_of(values: Iterable[object], n: int = 1) -> list[object]:
    """The first `n` values in ordinary runs, the others in exhaustive runs."""
    few = list(values)
    return [*few[:n], *map(exhaustive, few[n:])]


def first_of_each(values: Sequence[Value], kind: Callable[[Value], object]) -> list[object]:
    """The first value of each kind in ordinary runs, the others in exhaustive runs."""
    first = {kind(value): value for value in reversed(values)}
    return [value if first[kind(value)] is value else exhaustive(value) for value in values]


def every(n: int, values: Sequence[object]) -> list[object]:
    """Each nth value in ordinary runs, the others in exhaustive runs."""
    return [value if i % n == 0 else exhaustive(value) for i, value in enumerate(values)]


def in_turn(values: Sequence[object], others: Sequence[object]) -> list[object]:
    """All pairs; in ordinary runs each value with one of the others, which take turns."""
    pairs = [(i, j, (value, other)) for i, value in enumerate(values) for j, other in enumerate(others)]
    return [pair if j == i % len(others) else exhaustive(pair) for i, j, pair in pairs]


def requested(request: pytest.FixtureRequest, name: str) -> set[object]:
    """The values of a parameter in this run's tests of the fixture's file."""
    return {each[name] for each in parameters(request) if name in each}


def parameters(request: pytest.FixtureRequest) -> list[dict[Any, Any]]:
    """The parameters of each of this run's tests of the fixture's file."""
    items: list[Any] = [item for item in request.session.items if item.path == request.path]
    return [item.callspec.params for item in items if hasattr(item, "callspec")]


def exhaustive(value: object) -> object:
    """A value for exhaustive runs alone; a tuple holds one value per parameter name."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
