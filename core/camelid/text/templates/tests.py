"""Tests of templates (`is defined`, `==`, `in`), one table row each.

A test's parameters are the value, the evaluator's budget, and the test's arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from camelid.errors import TemplateError
from camelid.text.templates.methods import Function, named
from camelid.text.templates.operators import arithmetic
from camelid.text.templates.values import (
    Bound,
    Budget,
    Markup,
    Stream,
    Undefined,
    View,
    checked_key,
    equal,
    is_dict,
    is_list,
    is_number,
    iterated,
    shown,
)  # fmt: skip


def contained(value: object, budget: Budget, values: object) -> bool:
    """`value in values`. Raises TemplateError for a value that is not a container."""
    if isinstance(values, str):
        if not isinstance(value, str):
            raise TemplateError(f"a {type(value).__name__} is never in a string; expected a string")
        budget.search(values, value)
        return value in values
    if isinstance(values, range):  # Python iterates over a range for every type except int
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return isinstance(value, int) and value in values
    if isinstance(values, View) and values.kind == "dict_keys":
        checked_key(value, budget)
    if is_dict(values):
        return checked_key(value, budget) in values
    return any(equal(value, item, budget) for item in iterated(values))


def ordered(function: Callable[[Any, Any], bool]) -> Callable[[Any, Budget, Any], bool]:
    def compare(left: object, budget: Budget, right: object) -> bool:
        budget.read(left)
        for value in (left, right):
            if isinstance(value, Undefined):
                raise value.fail()
        if not (isinstance(left, str) and isinstance(right, str)) and not (
            is_number(left) and is_number(right)
        ):
            raise TemplateError(f"{type(left).__name__} and {type(right).__name__} have no order")
        return function(left, right)

    return compare


def is_sequence(value: object, _: Budget) -> bool:
    return isinstance(value, str | range | Undefined) or is_list(value) or is_dict(value)


def is_iterable(value: object, budget: Budget) -> bool:
    return isinstance(value, Stream | View) or is_sequence(value, budget)


def same(left: object, budget: Budget, right: object) -> bool:
    return equal(left, right, budget)


def remainder(value: object, budget: Budget, divisor: object) -> object:
    return arithmetic(lambda a, b: a % b, value, divisor, budget)


KINDS: dict[str, Callable[[Any, Budget], bool]] = {
    "defined": lambda value, _: not isinstance(value, Undefined),
    "undefined": lambda value, _: isinstance(value, Undefined),
    "none": lambda value, _: value is None,
    "string": lambda value, _: isinstance(value, str),
    "mapping": lambda value, _: is_dict(value),
    "iterable": is_iterable,
    "sequence": is_sequence,
    "number": lambda value, _: is_number(value),
    "float": lambda value, _: isinstance(value, float),
    "integer": lambda value, _: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value, _: isinstance(value, bool),
    "true": lambda value, _: value is True,
    "false": lambda value, _: value is False,
    "callable": lambda value, _: isinstance(value, Bound | Undefined),
    "escaped": lambda value, _: isinstance(value, Markup),
    "odd": lambda value, budget: remainder(value, budget, 2) == 1,
    "even": lambda value, budget: remainder(value, budget, 2) == 0,
    "upper": lambda value, budget: str(shown(value, budget)).isupper(),
    "lower": lambda value, budget: str(shown(value, budget)).islower(),
}
RELATIONS: dict[str, Callable[[Any, Budget, Any], bool]] = {
    **dict.fromkeys(("eq", "equalto", "=="), same),
    **dict.fromkeys(("ne", "!="), lambda value, budget, other: not equal(value, other, budget)),
    **dict.fromkeys(("lt", "lessthan", "<"), ordered(operator.lt)),
    **dict.fromkeys(("le", "<="), ordered(operator.le)),
    **dict.fromkeys(("gt", "greaterthan", ">"), ordered(operator.gt)),
    **dict.fromkeys(("ge", ">="), ordered(operator.ge)),
    "in": contained,
    "not in": lambda value, budget, values: not contained(value, budget, values),
    "sameas": lambda value, _, other: value is other,
    "divisibleby": lambda value, budget, divisor: remainder(value, budget, divisor) == 0,
}
TESTS: dict[str, Function] = {**KINDS, **RELATIONS}


def test_named(name: object) -> Function:
    return named("test", name, TESTS)
