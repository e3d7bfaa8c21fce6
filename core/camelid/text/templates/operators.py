"""Operators of template values, one table row each. Every result is bounded before it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text.templates.format import interpolate
from camelid.text.templates.values import (
    Budget,
    Markup,
    Undefined,
    escaped,
    is_list,
    is_number,
    marked,
    repeated,
)  # fmt: skip

Operator = Callable[[Any, Any, Budget], object]
MAX_EXPONENT = 64


def add(left: object, right: object, budget: Budget) -> object:
    if isinstance(left, str) and isinstance(right, str):
        if isinstance(left, Markup) or isinstance(right, Markup):
            return marked(budget.joined((escaped(left, budget), escaped(right, budget))))
        return budget.joined((left, right))
    if is_list(left) and is_list(right):
        budget.spend(len(left) + len(right))
        return cast(Any, left) + cast(Any, right)
    return arithmetic(lambda a, b: a + b, left, right, budget)


def multiply(left: object, right: object, budget: Budget) -> object:
    if isinstance(left, int):
        left, right = right, left
    if isinstance(left, str) and isinstance(right, int):
        budget.text(len(left) * max(right, 0))
        text = repeated(left, right)
        return marked(text) if isinstance(left, Markup) else text
    if is_list(left) and isinstance(right, int):
        budget.spend(len(left) * max(right, 0))
        return left * right
    return arithmetic(lambda a, b: a * b, left, right, budget)


def power(left: object, right: object, budget: Budget) -> object:
    # 2 ** 10**9 would not return.
    if isinstance(right, int) and abs(right) > MAX_EXPONENT:
        raise TemplateError(f"** with exponent {right}, above {MAX_EXPONENT}", limit=MAX_EXPONENT)
    result = arithmetic(lambda a, b: a**b, left, right, budget)
    if isinstance(result, complex):
        raise TemplateError("** of a negative number with a fractional exponent is not a real number")
    return result


def remainder(left: object, right: object, budget: Budget) -> object:
    if isinstance(left, str):
        return interpolate(left, budget, right)
    return arithmetic(lambda a, b: a % b, left, right, budget)


def arithmetic(function: Callable[[Any, Any], object], left: object, right: object, budget: Budget) -> object:
    for value in (left, right):
        if isinstance(value, Undefined):
            raise value.fail()
        if not is_number(value):
            names = f"{type(left).__name__} and {type(right).__name__}"
            raise TemplateError(f"no such operation on {names}; make a value a string with ~ or |string")
    return budget.integer(function(left, right))


def plain_operator(function: Callable[[Any, Any], object]) -> Operator:

    def operate(left: object, right: object, budget: Budget) -> object:
        return arithmetic(function, left, right, budget)

    return operate


OPERATORS: dict[str, Operator] = {
    "+": add, "*": multiply, "**": power, "%": remainder, "-": plain_operator(lambda a, b: a - b),
    "/": plain_operator(lambda a, b: a / b), "//": plain_operator(lambda a, b: a // b),
}  # fmt: skip
