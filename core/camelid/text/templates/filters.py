"""Filters of templates, one table row each.

A filter's parameters are the value, the evaluator's budget, and the call's arguments.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import chain
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text.templates.format import interpolate
from camelid.text.templates.methods import (
    Function,
    capitalize,
    center,
    join,
    lower,
    named,
    replace,
    rsplit,
    splitlines,
    strip,
    upper,
)  # fmt: skip
from camelid.text.templates.operators import add, arithmetic
from camelid.text.templates.sequences import SEQUENCE_FILTERS, map_filter
from camelid.text.templates.values import (
    Budget,
    Markup,
    Stream,
    Undefined,
    brief,
    checked_depth,
    cut,
    escaped,
    is_dict,
    is_list,
    is_number,
    joined,
    marked,
    shown,
    trusted,
    unmarked,
)  # fmt: skip

MAX_INDENT = 32


def text_filter(method: Callable[..., str]) -> Function:
    """A string method as a filter: the value is converted to a string first, as in Jinja."""

    def apply(value: object, budget: Budget, *args: object, **named: object) -> str:
        return method(shown(value, budget), budget, *args, **named)

    return apply


def length(value: Any, _: Budget) -> int:
    return len(value)


def default(value: object, _: Budget, default_value: object = "", boolean: bool = False) -> object:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def tojson(
    value: object, budget: Budget, ensure_ascii: bool = False, indent: int | str | None = None,
    separators: list[str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """json.dumps with transformers' arguments, charged piece by piece."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > MAX_INDENT:
        raise TemplateError(f"tojson: indent {brief(indent)} is above {MAX_INDENT}", limit=MAX_INDENT)
    check_nesting(value, budget)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys,
        separators=cast(Any, tuple(separators) if separators else None),
    )  # fmt: skip
    parts: list[str] = []
    size = 0
    for part in encoder.iterencode(value):
        size += len(part)
        budget.spend()
        budget.text(size) if size > budget.max_bytes else None
        parts.append(part)
    return budget.joined(parts)


def check_nesting(value: object, budget: Budget, depth: int = 0) -> None:
    """Charges every item; raises TemplateError for values nested too deep."""
    budget.spend()
    checked_depth(depth)
    if is_list(value):
        for item in value:
            check_nesting(item, budget, depth + 1)
    elif is_dict(value):
        for item in value.values():
            check_nesting(item, budget, depth + 1)


def string(value: object, budget: Budget) -> str:
    return shown(value, budget)


def integer(value: Any, budget: Budget, default: object = 0, base: int = 10) -> object:
    """int(value), else int(float(value)), else the default."""
    for convert in (
        lambda: int(value, base) if isinstance(value, str) else int(value),
        lambda: int(float(value)),
    ):
        try:
            return budget.integer(convert())
        except (TypeError, ValueError, OverflowError):
            if isinstance(value, Undefined):
                raise value.fail() from None
    return default


def floating(value: Any, _: Budget, default: object = 0.0) -> object:
    if isinstance(value, Undefined):
        raise value.fail()
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


def indent(
    value: object, budget: Budget, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    """Indents all lines except the first and, without `blank`, empty lines."""
    if not isinstance(value, str):
        raise TemplateError(f"indent: got a {type(value).__name__}, expected a string")
    margin = trusted(" " * min(width, MAX_INDENT + 1)) if isinstance(width, int) else width
    if len(margin) > MAX_INDENT:
        raise TemplateError(f"indent: the margin {brief(width)} is above {MAX_INDENT} characters")
    # A final newline begins one more, empty line, as in Jinja.
    lines = splitlines(joined((value, trusted("\n"))), budget)
    parts = [line if not i or not (line or blank) else joined((margin, line)) for i, line in enumerate(lines)]
    text = join(parts, budget, trusted("\n"))
    text = joined((margin, text)) if first else text
    return marked(text) if isinstance(value, Markup) else text


def absolute(value: object, budget: Budget) -> object:
    return arithmetic(lambda v, _: abs(v), value, 0, budget)


ROUNDING: dict[str, Callable[[float], float]] = {"common": round, "ceil": math.ceil, "floor": math.floor}


def rounded(value: Any, _: Budget, precision: int = 0, method: str = "common") -> float:
    if not is_number(value):
        raise TemplateError(f"round: got {brief(value)}, expected a number")
    if method not in ROUNDING or abs(precision) > 64:
        raise TemplateError(
            f"round: {precision} digits by {brief(method)}; expected at most 64, by common, ceil or floor"
        )
    if method == "common":
        return round(value, precision)
    return ROUNDING[method](value * 10**precision) / 10**precision


def mapping(value: object, budget: Budget, *args: Any, **named: Any) -> Stream:
    return Stream(map_filter(value, budget, filter_named, args, named), value)


# Word separators of Jinja's `title`: white space, hyphens and opening brackets.
WORD = re.compile("[-({[<\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def words(value: object, budget: Budget) -> str:
    """The filter `title`; unlike the method it keeps letters after an apostrophe lower-case."""
    text = unmarked(shown(value, budget))
    parts: list[str] = []
    at = 0
    for match in chain(WORD.finditer(text), (None,)):
        start, end = match.span() if match else (len(text), len(text))
        word = cut(text, slice(at, start))
        parts += (upper(cut(word, slice(1)), budget), lower(cut(word, slice(1, None)), budget))
        parts.append(cut(text, slice(start, end)))
        at = end
    return budget.joined(parts)


def truncate(
    value: Any, budget: Budget, length: int = 255, killwords: bool = False, end: str = "...", leeway: int = 5
) -> object:
    if length < len(end) or leeway < 0:
        raise TemplateError(f"truncate: length {length}, leeway {leeway}; the minimum is {len(end)} and 0")
    if len(value) <= length + leeway:
        return value
    if not isinstance(value, str):
        raise TemplateError(f"truncate: got a {type(value).__name__}, expected a string")
    head = cut(value, slice(length - len(end)))
    return add(head if killwords else rsplit(head, budget, " ", 1)[0], end, budget)


def format_filter(value: object, budget: Budget, *args: object, **named: object) -> str:
    """The % operator as a filter."""
    if args and named:
        raise TemplateError("format: expected values by position or by name, not both")
    return interpolate(shown(value, budget), budget, named or args)


def replaced(value: object, budget: Budget, old: object, new: object, count: int | None = None) -> str:
    text, found, by = (unmarked(shown(part, budget)) for part in (value, old, new))
    return replace(text, budget, found, by, -1 if count is None else count)


def centered(value: object, budget: Budget, width: int = 80) -> object:
    return center(shown(value, budget), budget, width)


def safe(value: object, budget: Budget) -> str:
    return marked(shown(value, budget))


def escape(value: object, budget: Budget) -> str:
    return escaped(shown(value, budget), budget)


def force_escape(value: object, budget: Budget) -> str:
    return escaped(unmarked(shown(value, budget)), budget)


FILTERS: dict[str, Function] = {
    **SEQUENCE_FILTERS, "map": mapping,
    "trim": text_filter(strip), "upper": text_filter(upper), "lower": text_filter(lower),
    "capitalize": text_filter(capitalize), "title": words, "replace": replaced, "format": format_filter,
    "length": length, "count": length, "abs": absolute, "default": default, "d": default, "tojson": tojson,
    "string": string, "int": integer, "float": floating, "round": rounded, "join": join, "indent": indent,
    "center": centered, "truncate": truncate, "safe": safe, "escape": escape, "e": escape,
    "forceescape": force_escape,
}  # fmt: skip


def filter_named(name: object) -> Function:
    return named("filter", name, FILTERS)
