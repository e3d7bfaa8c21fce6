"""Methods and operators of template values, each a row of a table.

Every method takes the value, the evaluator's budget, and the call's arguments. Values are plain data: no
Python attribute of anything is ever reached, and no method formats (`str.format` reaches attributes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text.template_values import (
    Budget,
    Namespace,
    Undefined,
    checked_key,
    cut,
    is_dict,
    is_list,
    is_number,
    iterated,
    joined,
    mapped,
    shown,
)  # fmt: skip

Function = Callable[..., object]
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


# Methods of strings.


def strip(value: str, budget: Budget, chars: str | None = None) -> str:
    return lstrip(rstrip(value, budget, chars), budget, chars)


def lstrip(value: str, budget: Budget, chars: str | None = None) -> str:
    budget.text(len(value))
    return cut(value, slice(len(value) - len(str.lstrip(value, chars)), None))


def rstrip(value: str, budget: Budget, chars: str | None = None) -> str:
    budget.text(len(value))
    return cut(value, slice(len(str.rstrip(value, chars))))


def split(value: str, budget: Budget, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    return located(value, budget, str.split(value, sep, affordable(maxsplit, budget)), sep)


def rsplit(value: str, budget: Budget, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    return located(value, budget, str.rsplit(value, sep, affordable(maxsplit, budget)), sep)


def affordable(maxsplit: int, budget: Budget) -> int:
    """As many splits as asked, or one more than the steps that are left: then `located` refuses."""
    most = budget.max_steps - budget.steps + 1
    return most if maxsplit < 0 else min(maxsplit, most)


def splitlines(value: str, budget: Budget, keepends: bool = False) -> list[str]:
    budget.text(len(value))
    budget.spend(sum(map(value.count, LINE_ENDS)))  # before any line is made
    lines = located(value, budget, str.splitlines(value, keepends=True), "")
    ends = [len(line) for line in str.splitlines(value, keepends)]
    return [cut(line, slice(end)) for line, end in zip(lines, ends, strict=True)]


def located(value: str, budget: Budget, parts: list[str], sep: str | None) -> list[str]:
    """The same parts with their trust; without a separator they are found, since white space varies."""
    budget.text(len(value))
    budget.spend(len(parts))
    found: list[str] = []
    at = 0
    for part in parts:
        at = value.find(part, at) if sep is None else at
        found.append(cut(value, slice(at, at + len(part))))
        at += len(part) + len(sep or "")
    return found


def replace(value: str, budget: Budget, old: str, new: str, count: int = -1) -> str:
    if not old:
        raise TemplateError("replace: the text to replace is empty")
    return join(split(value, budget, old, count), budget, new)


def join(values: Iterable[object], budget: Budget, sep: str = "", attribute: str | int | None = None) -> str:
    items = budget.items(iterated(values))
    parts = [shown(item if attribute is None else lookup(item, attribute), budget) for item in items]
    return budget.joined(part for i, text in enumerate(parts) for part in ((sep, text) if i else (text,)))


def join_method(value: str, budget: Budget, items: Iterable[object]) -> str:
    return join(items, budget, value)


def changed(value: str, budget: Budget, change: Callable[[str], str]) -> str:
    budget.text(len(value))
    return mapped(value, change)


def capitalize(value: str, budget: Budget) -> str:
    return changed(value, budget, str.capitalize)


def title(value: str, budget: Budget) -> str:
    return changed(value, budget, str.title)


def upper(value: str, budget: Budget) -> str:
    return changed(value, budget, str.upper)


def lower(value: str, budget: Budget) -> str:
    return changed(value, budget, str.lower)


def removeprefix(value: str, budget: Budget, prefix: str) -> str:
    budget.text(len(value))
    return cut(value, slice(len(prefix) if value.startswith(prefix) else 0, None))


def removesuffix(value: str, budget: Budget, suffix: str) -> str:
    budget.text(len(value))
    return cut(value, slice(len(value) - len(suffix) if value.endswith(suffix) else None))


def plain(function: Callable[..., object]) -> Function:
    """A method whose result is no text: called with the arguments alone."""

    def method(value: object, budget: Budget, *args: object) -> object:
        budget.read(value)
        return function(value, *args)

    return method


STRING_METHODS: dict[str, Function] = {
    "strip": strip, "lstrip": lstrip, "rstrip": rstrip, "split": split, "rsplit": rsplit, "join": join_method,
    "splitlines": splitlines, "replace": replace, "upper": upper, "lower": lower, "title": title,
    "capitalize": capitalize, "removeprefix": removeprefix, "removesuffix": removesuffix,
    "startswith": plain(str.startswith), "endswith": plain(str.endswith), "find": plain(str.find),
    "rfind": plain(str.rfind), "index": plain(str.index), "count": plain(str.count),
    "isdigit": plain(str.isdigit), "isupper": plain(str.isupper), "islower": plain(str.islower),
    "isspace": plain(str.isspace), "isalpha": plain(str.isalpha), "isalnum": plain(str.isalnum),
}  # fmt: skip


# Methods of dicts.


def items(value: Mapping[object, object], budget: Budget) -> list[object]:
    return budget.items(value.items())


def keys(value: Mapping[object, object], budget: Budget) -> list[object]:
    return budget.items(value)


def values(value: Mapping[object, object], budget: Budget) -> list[object]:
    return budget.items(value.values())


def get(value: Mapping[object, object], _: Budget, key: object, default: object = None) -> object:
    return value.get(checked_key(key), default)


DICT_METHODS: dict[str, Function] = {"items": items, "keys": keys, "values": values, "get": get}


def methods(value: object) -> Mapping[str, Function]:
    """The table of the value's type."""
    if isinstance(value, str):
        return STRING_METHODS
    return DICT_METHODS if is_dict(value) else {}


def item(value: object, key: object) -> object:
    """An item of a dict or list, else Undefined."""
    if is_dict(value) and key in value:
        return value[key]
    if is_list(value) and isinstance(key, int) and -len(value) <= key < len(value):
        return value[key]
    return Undefined(f"attribute {key!r}")


def lookup(value: object, name: str | int) -> object:
    """`value.a.b` or `value[0]`, as filters name them: items of dicts and lists only."""
    for key in str(name).split(".") if isinstance(name, str) else [name]:
        key = int(key) if isinstance(key, str) and key.isdecimal() else key
        if isinstance(value, Undefined):
            raise value.fail()
        if isinstance(value, Namespace):
            value = value.values
        value = item(value, key)
    return value


def named(kind: str, name: object, table: Mapping[str, Function]) -> Function:
    if not isinstance(name, str) or name not in table:
        raise TemplateError(f"unknown {kind} {name!r}; known: {', '.join(sorted(table))}", name=name)
    return table[name]


# Operators.


def add(left: object, right: object, budget: Budget) -> object:
    if isinstance(left, str) and isinstance(right, str):
        return budget.joined((left, right))
    if is_list(left) and is_list(right):
        budget.spend(len(left) + len(right))
        return cast(Any, left) + cast(Any, right)
    return arithmetic(lambda a, b: a + b, left, right, budget)


def multiply(left: object, right: object, budget: Budget) -> object:
    if isinstance(right, str):
        left, right = right, left
    if isinstance(left, str) and isinstance(right, int):
        budget.text(len(left) * max(right, 0))
        return joined([left] * right)
    return arithmetic(lambda a, b: a * b, left, right, budget)


def power(left: object, right: object, budget: Budget) -> object:
    # Bounded before it is computed: 2 ** 10**9 would not return.
    if isinstance(right, int) and abs(right) > 64:
        raise TemplateError(f"** with exponent {right}; want at most 64")
    return arithmetic(lambda a, b: a**b, left, right, budget)


def arithmetic(function: Callable[[Any, Any], object], left: object, right: object, budget: Budget) -> object:
    for value in (left, right):
        if isinstance(value, Undefined):
            raise value.fail()
        if not is_number(value):
            names = f"{type(left).__name__} and {type(right).__name__}"
            raise TemplateError(f"no such operation on {names}; turn a value into a string with ~ or |string")
    return budget.integer(function(left, right))


def plain_operator(function: Callable[[Any, Any], object]) -> Function:

    def operate(left: object, right: object, budget: Budget) -> object:
        return arithmetic(function, left, right, budget)

    return operate


OPERATORS: dict[str, Function] = {
    "+": add, "*": multiply, "**": power, "-": plain_operator(lambda a, b: a - b),
    "/": plain_operator(lambda a, b: a / b),
    "//": plain_operator(lambda a, b: a // b), "%": plain_operator(lambda a, b: a % b),
}  # fmt: skip
