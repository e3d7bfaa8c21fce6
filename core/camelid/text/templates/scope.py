"""Names during a rendering: scopes, the `loop` object of a `for` block, and the global functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text.templates.values import (
    Bound,
    Budget,
    Namespace,
    Undefined,
    equal,
    is_dict,
    iterated,
    shown,
)  # fmt: skip


class Scope:
    """The names bound in one body, and the enclosing scope. The tag `set` binds in the innermost scope."""

    __slots__ = ("outer", "values")

    def __init__(self, values: dict[str, object], outer: Scope | None = None) -> None:
        self.values = values
        self.outer = outer

    def get(self, name: str) -> object:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return Undefined(repr(name))


class Loop:
    """The `loop` object of a `for` block; `recurse` renders a recursive block for other items."""

    def __init__(
        self, values: list[object], budget: Budget, depth: int, recurse: Callable[[object], str] | None
    ) -> None:
        self.values = values
        self.index0 = 0
        self.depth = depth
        self.recurse = recurse
        self._budget = budget
        self._seen: tuple[object, ...] | None = None

    def neighbor(self, distance: int) -> object:
        index = self.index0 + distance
        if 0 <= index < len(self.values):
            return self.values[index]
        return Undefined("the item before the first or after the last")

    def cycle(self, *values: object) -> object:
        if not values:
            raise TemplateError("loop.cycle: no values given; expected at least one")
        return values[self.index0 % len(values)]

    def changed(self, *values: object) -> bool:
        """True if the values differ from those of the previous call."""
        before, self._seen = self._seen, values
        return before is None or not equal(before, values, self._budget)


LOOP: dict[str, Callable[[Loop], object]] = {
    "index": lambda loop: loop.index0 + 1,
    "index0": lambda loop: loop.index0,
    "revindex": lambda loop: len(loop.values) - loop.index0,
    "revindex0": lambda loop: len(loop.values) - loop.index0 - 1,
    "first": lambda loop: loop.index0 == 0,
    "last": lambda loop: loop.index0 == len(loop.values) - 1,
    "length": lambda loop: len(loop.values),
    "depth": lambda loop: loop.depth,
    "depth0": lambda loop: loop.depth - 1,
    "previtem": lambda loop: loop.neighbor(-1),
    "nextitem": lambda loop: loop.neighbor(1),
    "cycle": lambda loop: Bound("cycle", loop.cycle),
    "changed": lambda loop: Bound("changed", loop.changed),
}


def raise_exception(budget: Budget, /, message: object) -> None:
    """Rejects the conversation with the template's own message."""
    raise TemplateError(f"the chat template rejects this conversation: {shown(message, budget)}", raised=True)


def make_range(_: Budget, /, *bounds: int) -> range:
    return range(*bounds)


def make_dict(budget: Budget, values: object = (), /, **named: object) -> dict[str, object]:
    """The template's `dict`: from a mapping or from pairs, and from keyword arguments."""
    items = budget.items(iterated(values))
    pairs = values if is_dict(values) else dict(pair(item) for item in items)
    return {**cast("Mapping[str, object]", pairs), **named}


def pair(value: object) -> tuple[Any, object]:
    found = tuple(iterated(value))
    if len(found) != 2 or not isinstance(found[0], str):
        raise TemplateError("dict: expected pairs of a string and a value")
    return found[0], found[1]


def make_namespace(budget: Budget, values: object = (), /, **named: object) -> Namespace:
    made = Namespace({})
    for name, value in make_dict(budget, values, **named).items():
        made.set(name, value)
    return made


# Functions that every template may call; the evaluator passes the budget as first argument.
GLOBALS: dict[str, Callable[..., object]] = {
    "raise_exception": raise_exception, "range": make_range, "namespace": make_namespace, "dict": make_dict,
}  # fmt: skip
