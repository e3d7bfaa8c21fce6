"""Filters of templates, each a row of a table.

Every filter takes the value, the evaluator's budget, and the call's arguments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from camelid.errors import TemplateError
from camelid.text.template_methods import (
    Function,
    add,
    arithmetic,
    capitalize,
    items,
    join,
    lookup,
    lower,
    named,
    replace,
    splitlines,
    strip,
    title,
    upper,
)  # fmt: skip
from camelid.text.template_tests import test_named
from camelid.text.template_values import (
    Budget,
    Undefined,
    cut,
    is_dict,
    is_number,
    iterated,
    joined,
    shown,
    trusted,
)  # fmt: skip

MAX_INDENT = 32


def text_filter(method: Callable[..., str]) -> Function:
    """A string method as a filter: Jinja turns the value into a string first."""

    def apply(value: object, budget: Budget, *args: object, **named: object) -> str:
        return method(shown(value, budget), budget, *args, **named)

    return apply


def length(value: Any, _: Budget) -> int:
    return len(value)


def default(value: object, _: Budget, default_value: object = "", boolean: bool = False) -> object:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def tojson(
    value: object, budget: Budget, ensure_ascii: bool = False, indent: int | None = None,
    separators: list[str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """json.dumps as transformers calls it, counted piece by piece."""
    if isinstance(indent, str) or (indent or 0) > MAX_INDENT:
        raise TemplateError(f"tojson: indent is {indent!r}, want at most {MAX_INDENT}")
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


def string(value: object, budget: Budget) -> str:
    return shown(value, budget)


def integer(value: Any, _: Budget, default: int = 0) -> int:
    try:
        return int(value) if is_number(value) or len(value) < 80 else default
    except (TypeError, ValueError, OverflowError):
        return default


def floating(value: Any, _: Budget, default: float = 0.0) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def items_filter(value: object, budget: Budget) -> object:
    if isinstance(value, Undefined):
        return []
    if not is_dict(value):
        raise TemplateError(f"items: a {type(value).__name__} has no pairs; want a mapping")
    return items(value, budget)


def first(value: object, _: Budget) -> object:
    return next(iter(iterated(value)), Undefined("the first item of an empty list"))


def last(value: object, budget: Budget) -> object:
    found = budget.items(iterated(value))
    return found[-1] if found else Undefined("the last item of an empty list")


def reverse(value: object, budget: Budget) -> object:
    if isinstance(value, str):
        budget.text(len(value))
        return cut(value, slice(None, None, -1))
    return budget.items(iterated(value))[::-1]


def sort_key(value: object, budget: Budget, attribute: str | int | None, case_sensitive: bool) -> Any:
    value = value if attribute is None else lookup(value, attribute)
    if isinstance(value, str) and not case_sensitive:
        budget.text(len(value))
        return value.lower()
    if value is None or isinstance(value, str | int | float):
        return value
    raise TemplateError(f"a {type(value).__name__} has no order")


def sort(
    value: object, budget: Budget, reverse: bool = False, case_sensitive: bool = False,
    attribute: str | None = None,
) -> list[object]:  # fmt: skip
    found = budget.items(iterated(value))
    return sorted(found, key=lambda item: sort_key(item, budget, attribute, case_sensitive), reverse=reverse)


def unique(
    value: object, budget: Budget, case_sensitive: bool = False, attribute: str | None = None
) -> list[object]:
    found = budget.items(iterated(value))
    kept: dict[object, object] = {}
    for item in found:
        kept.setdefault(sort_key(item, budget, attribute, case_sensitive), item)
    return list(kept.values())


def dictsort(
    value: Mapping[object, object], budget: Budget, case_sensitive: bool = False, by: str = "key",
    reverse: bool = False,
) -> list[object]:  # fmt: skip
    side = 0 if by == "key" else 1
    pairs = cast("list[tuple[object, object]]", items(value, budget))
    order: list[object] = []
    order += sorted(pairs, key=lambda p: sort_key(p[side], budget, None, case_sensitive), reverse=reverse)
    return order


def indent(
    value: object, budget: Budget, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    """Indent all lines but the first, and blank ones unless asked."""
    margin = trusted(" " * min(width, MAX_INDENT + 1)) if isinstance(width, int) else width
    if len(margin) > MAX_INDENT:
        raise TemplateError(f"indent: the margin is {width!r:.40}, want at most {MAX_INDENT} characters")
    # A last newline begins one more, empty line, as in Jinja.
    lines = splitlines(joined((shown(value, budget), trusted("\n"))), budget)
    parts = [line if not i or not (line or blank) else joined((margin, line)) for i, line in enumerate(lines)]
    text = join(parts, budget, trusted("\n"))
    return joined((margin, text)) if first else text


def absolute(value: object, budget: Budget) -> object:
    return arithmetic(lambda v, _: abs(v), value, 0, budget)


def listed(value: object, budget: Budget) -> list[object]:
    return budget.items(iterated(value))


def least(value: object, budget: Budget) -> object:
    return first(sort(value, budget), budget)


def most(value: object, budget: Budget) -> object:
    return last(sort(value, budget), budget)


def rounded(value: Any, _: Budget, precision: int = 0, method: str = "common") -> float:
    if method != "common" or abs(precision) > 64:
        raise TemplateError(f"round: {precision} digits by method {method!r}; want at most 64, common")
    return round(value, precision)


def total(value: object, budget: Budget, attribute: str | None = None, start: Any = 0) -> object:
    for item in budget.items(iterated(value)):
        start = add(start, item if attribute is None else lookup(item, attribute), budget)
    return start


def map_filter(value: object, budget: Budget, *args: Any, **named: Any) -> list[object]:
    found = budget.items(iterated(value))
    if "attribute" in named:
        name, other = named["attribute"], named.get("default")
        looked_up = (lookup(item, name) for item in found)
        return [other if isinstance(v, Undefined) and "default" in named else v for v in looked_up]
    apply = filter_named(args[0])
    return [apply(item, budget, *args[1:], **named) for item in found]


def chosen(keep: bool, by_attribute: bool) -> Function:
    """select, reject, selectattr, rejectattr: the items for which a test holds, or does not."""

    def choose(value: object, budget: Budget, *args: Any) -> list[object]:
        name, *rest = args if by_attribute else (None, *args)
        test = test_named(rest[0]) if rest else truth
        found = budget.items(iterated(value))
        looked_up = (item if name is None else lookup(item, name) for item in found)
        return [i for i, v in zip(found, looked_up, strict=True) if bool(test(v, budget, *rest[1:])) == keep]

    return choose


def truth(value: object, _: Budget) -> bool:
    return bool(value)


def escaped(value: object, budget: Budget) -> str:
    """&, <, >, ', " as HTML entities (markupsafe's)."""
    text = shown(value, budget)
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;"), ('"', "&#34;")):
        text = replace(text, budget, char, entity)
    return text


FILTERS: dict[str, Function] = {
    "trim": text_filter(strip), "upper": text_filter(upper), "lower": text_filter(lower),
    "capitalize": text_filter(capitalize), "title": text_filter(title), "replace": text_filter(replace),
    "length": length, "count": length, "abs": absolute, "list": listed, "min": least, "max": most,
    "default": default, "d": default, "tojson": tojson, "string": string, "safe": string, "int": integer,
    "float": floating, "round": rounded, "join": join, "items": items_filter, "first": first, "last": last,
    "reverse": reverse, "sort": sort, "unique": unique, "dictsort": dictsort,
    "indent": indent, "sum": total, "map": map_filter, "select": chosen(True, False),
    "reject": chosen(False, False), "selectattr": chosen(True, True), "rejectattr": chosen(False, True),
    "escape": escaped, "e": escaped,
}  # fmt: skip


def filter_named(name: object) -> Function:
    return named("filter", name, FILTERS)
