"""Methods of template values, one table row each.

A method's parameters are the value, the evaluator's budget, and the call's arguments. Values are plain data:
methods reach no Python attribute of an object and change no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text.templates.format import format_map, format_method, pad
from camelid.text.templates.values import (
    Budget,
    Markup,
    Namespace,
    Text,
    Undefined,
    View,
    brief,
    checked_key,
    cut,
    equal,
    escaped,
    is_dict,
    is_int,
    is_list,
    iterated,
    joined,
    mapped,
    marked,
    shown,
    trusted,
    unmarked,
)  # fmt: skip

Function = Callable[..., object]
LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def strip(value: str, budget: Budget, chars: str | None = None) -> str:
    return lstrip(rstrip(value, budget, chars), budget, chars)


def lstrip(value: str, budget: Budget, chars: str | None = None) -> str:
    budget.text(len(value))
    budget.search(value, chars, backward=True)
    return cut(value, slice(len(value) - len(str.lstrip(value, chars)), None))


def rstrip(value: str, budget: Budget, chars: str | None = None) -> str:
    budget.text(len(value))
    budget.search(value, chars, backward=True)
    return cut(value, slice(len(str.rstrip(value, chars))))


def split(value: str, budget: Budget, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    budget.search(value, sep)
    return located(value, budget, str.split(value, sep, affordable(maxsplit, budget)), sep)


def rsplit(value: str, budget: Budget, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    budget.search(value, sep, backward=True)
    return located(value, budget, str.rsplit(value, sep, affordable(maxsplit, budget)), sep)


def affordable(maxsplit: int, budget: Budget) -> int:
    """The number of splits: at most one more than the remaining steps, which `located` refuses."""
    most = budget.max_steps - budget.steps + 1
    return most if maxsplit < 0 else min(maxsplit, most)


def splitlines(value: str, budget: Budget, keepends: bool = False) -> list[str]:
    budget.text(len(value))
    budget.spend(sum(map(value.count, LINE_ENDS)))  # before any line is made
    lines = located(value, budget, str.splitlines(value, keepends=True), "")
    ends = [len(line) for line in str.splitlines(value, keepends)]
    return [cut(line, slice(end)) for line, end in zip(lines, ends, strict=True)]


def located(value: str, budget: Budget, parts: list[str], sep: str | None) -> list[str]:
    """The parts as slices of `value`, with their trust.

    Without `sep` each part is searched, as spaces vary.
    """
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
    if isinstance(value, Markup):
        return marked(replace(unmarked(value), budget, old, escaped(new, budget), count))
    if old:
        return join(split(value, budget, old, count), budget, new)
    budget.spend(len(value))
    parts = [cut(value, slice(i, i + 1)) for i in range(len(value))]
    gaps = len(parts) + 1 if count < 0 else min(count, len(parts) + 1)
    return budget.joined(text for i, part in enumerate([*parts, ""]) for text in (new, part)[i >= gaps :])


def join(
    values: Iterable[object], budget: Budget, sep: object = "", attribute: str | int | None = None
) -> str:
    items = budget.items(iterated(values))
    parts = [shown(item if attribute is None else lookup(item, budget, attribute), budget) for item in items]
    between = shown(sep, budget)
    return budget.joined(part for i, text in enumerate(parts) for part in ((between, text) if i else (text,)))


def join_method(value: str, budget: Budget, items: Iterable[object]) -> str:
    found = budget.items(iterated(items))
    wrong = next((item for item in found if not isinstance(item, str)), "")
    if not isinstance(wrong, str):
        raise TemplateError(
            f"join: got a {type(wrong).__name__}, expected strings; the filter |join accepts any value"
        )
    texts = cast("list[str]", found)
    if isinstance(value, Markup):
        return marked(join([escaped(text, budget) for text in texts], budget, value))
    return join(texts, budget, value)


def casing(change: Callable[[str], str]) -> Callable[[str, Budget], str]:
    """A change of case as the running Python's str makes it, as in Jinja."""

    def method(value: str, budget: Budget) -> str:
        budget.text(len(value))
        return mapped(value, change)

    return method


capitalize, title, upper, lower = map(casing, (str.capitalize, str.title, str.upper, str.lower))


def removeprefix(value: str, budget: Budget, prefix: str) -> str:
    budget.text(len(value))
    return cut(value, slice(len(prefix) if value.startswith(prefix) else 0, None))


def removesuffix(value: str, budget: Budget, suffix: str) -> str:
    budget.text(len(value))
    return cut(value, slice(len(value) - len(suffix) if value.endswith(suffix) else None))


def partition(value: str, budget: Budget, sep: str) -> tuple[str, ...]:
    budget.search(value, sep)
    return parted(value, budget, sep, value.find(sep) if sep else -1, missing=len(value))


def rpartition(value: str, budget: Budget, sep: str) -> tuple[str, ...]:
    budget.search(value, sep, backward=True)
    return parted(value, budget, sep, value.rfind(sep) if sep else -1, missing=0)


def parted(value: str, budget: Budget, sep: str, at: int, *, missing: int) -> tuple[str, ...]:
    """The text before the separator, the separator, and the rest.

    If the separator is missing, all text is at one end.
    """
    if not sep:
        raise TemplateError("partition: the separator is empty")
    budget.text(len(value))
    start, end = (missing, missing) if at < 0 else (at, at + len(sep))
    return cut(value, slice(start)), cut(value, slice(start, end)), cut(value, slice(end, None))


def filled(left: Callable[[int, int], int], fill: str = " ") -> Function:
    """A method that pads a text to a width; `left` computes the padding before the text."""

    def method(value: str, budget: Budget, width: int, fillchar: str = trusted(fill)) -> str:
        if len(fillchar) != 1 or not is_int(width):
            raise TemplateError(
                f"cannot pad to {brief(width)} with {brief(fillchar)}; expected an int and a character"
            )
        budget.text(max(width, len(value)))
        text = pad(value, width, left(max(width - len(value), 0), width), fillchar)
        return marked(text) if isinstance(value, Markup) else text

    return method


# str.center puts the odd space before the text if the width is odd.
center = filled(lambda room, width: room // 2 + (room & width & 1))


def zfill(value: str, budget: Budget, width: int) -> str:
    sign = 1 if value[:1] in ("+", "-") else 0
    zeros = filled(lambda room, _: room, "0")(cut(value, slice(sign, None)), budget, width - sign)
    text = joined((cut(value, slice(sign)), cast(str, zeros)))
    return marked(text) if isinstance(value, Markup) else text


def plain(function: Callable[..., object]) -> Function:
    """A method without a text result: called with the arguments alone."""

    def method(value: object, budget: Budget, *args: object) -> object:
        for arg in (value, *args):
            for part in arg if is_list(arg) else (arg,):  # startswith accepts a tuple
                budget.spend()
                budget.read(part)
        return function(value, *args)

    return method


def searching(function: Callable[..., object], *, backward: bool = False) -> Function:
    """`plain` for a method that searches a text."""

    def method(value: str, budget: Budget, pattern: object, *args: object) -> object:
        budget.search(value, pattern, backward=backward)
        return function(value, pattern, *args)

    return method


STRING_METHODS: dict[str, Function] = {
    "strip": strip, "lstrip": lstrip, "rstrip": rstrip, "split": split, "rsplit": rsplit, "join": join_method,
    "partition": partition, "rpartition": rpartition,
    "splitlines": splitlines, "replace": replace, "upper": upper, "lower": lower, "title": title,
    "capitalize": capitalize, "swapcase": casing(str.swapcase), "casefold": casing(str.casefold),
    "center": center, "ljust": filled(lambda room, _: 0), "rjust": filled(lambda room, _: room),
    "zfill": zfill, "format": format_method, "format_map": format_map,
    "removeprefix": removeprefix, "removesuffix": removesuffix,
    "startswith": plain(str.startswith), "endswith": plain(str.endswith),
    "count": searching(str.count), "find": searching(str.find), "index": searching(str.index),
    "rfind": searching(str.rfind, backward=True), "rindex": searching(str.rindex, backward=True),
    "isupper": plain(str.isupper), "islower": plain(str.islower), "isspace": plain(str.isspace),
    "isalpha": plain(str.isalpha), "isalnum": plain(str.isalnum), "isdigit": plain(str.isdigit),
    "isdecimal": plain(str.isdecimal), "isnumeric": plain(str.isnumeric), "istitle": plain(str.istitle),
    "isascii": plain(str.isascii), "isidentifier": plain(str.isidentifier),
}  # fmt: skip


def view(kind: str) -> Callable[[Mapping[object, object], Budget], View]:
    """A method that returns a view: items, keys or values."""

    def method(value: Mapping[object, object], budget: Budget) -> View:
        return View(f"dict_{kind}", budget.items(getattr(value, kind)()))

    return method


items = view("items")


def get(value: Mapping[object, object], budget: Budget, key: object, default: object = None) -> object:
    return value.get(checked_key(key, budget), default)


def index(value: list[object], budget: Budget, other: object) -> int:
    for i, item in enumerate(value):
        if equal(item, other, budget):
            return i
    raise TemplateError("index: the value is not in the list")


def count(value: list[object], budget: Budget, other: object) -> int:
    return sum(equal(item, other, budget) for item in value)


def copied(value: Any, budget: Budget) -> object:
    budget.spend(len(value))
    return value.copy()


DICT_METHODS: dict[str, Function] = {
    "items": items, "keys": view("keys"), "values": view("values"), "get": get, "copy": copied,
}  # fmt: skip
TUPLE_METHODS: dict[str, Function] = {"index": index, "count": count}
LIST_METHODS: dict[str, Function] = {**TUPLE_METHODS, "copy": copied}
METHODS: dict[type, Mapping[str, Function]] = {
    str: STRING_METHODS, Text: STRING_METHODS, Markup: STRING_METHODS, dict: DICT_METHODS,
    list: LIST_METHODS, tuple: TUPLE_METHODS,
}  # fmt: skip
NONE: Mapping[str, Function] = {}


def methods(value: object) -> Mapping[str, Function]:
    """The methods of the value's type."""
    return METHODS.get(type(value), NONE)


def item(value: object, key: object) -> object:
    """An item of a dict, list or string, else Undefined."""
    if is_dict(value) and key in value:
        return value[key]
    if is_list(value) and isinstance(key, int) and -len(value) <= key < len(value):
        return value[key]
    if isinstance(value, str) and isinstance(key, int) and -len(value) <= key < len(value):
        return cut(value, slice(key, key + 1 or None))
    return Undefined(f"attribute {brief(key)}")


def lookup(value: object, budget: Budget, name: str | int, default: object = None) -> object:
    """`value.a.b` or `value[0]`, as filters address attributes: items of dicts and lists only."""
    budget.read(name)
    for key in str(name).split(".") if isinstance(name, str) else [name]:
        key = int(key) if isinstance(key, str) and key.isdecimal() else key
        budget.spend()
        if isinstance(value, Undefined):
            raise value.fail()
        if isinstance(value, Namespace):
            value = value.values
        value = item(value, key)
        if isinstance(value, Undefined) and default is not None:
            value = default
    return value


def named(kind: str, name: object, table: Mapping[str, Function]) -> Function:
    if not isinstance(name, str) or name not in table:
        raise TemplateError(f"unknown {kind} {brief(name)}; known: {', '.join(sorted(table))}", name=name)
    return table[name]
