"""Of some values `make test` takes a part, and `make exhaustive` the others: for `parametrize`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def share_of(values: Iterable[object], n: int = 1) -> list[object]:
    """The first `n` in every run, the others where exhaustive tests are asked for."""
    few = list(values)
    return [*few[:n], *map(exhaustive, few[n:])]


def exhaustive(value: object) -> object:
    """A value, or a tuple of as many as there are names, for exhaustive tests alone."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
