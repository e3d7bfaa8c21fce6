"""str.format and the % operator for templates: Python's results, without attribute access, of bounded width.

Inserted text keeps its trust, and so does the text around it. A field is a position or a plain name: `{0.x}`
and `{0[x]}` are refused, since Python reaches into objects with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from camelid.errors import TemplateError
from camelid.text.templates.values import (
    Budget,
    Markup,
    Undefined,
    brief,
    cut,
    escaped,
    is_dict,
    is_list,
    joined,
    marked,
    repeated,
    representation,
    shown,
    trusted,
)  # fmt: skip

MAX_WIDTH = 256
FIELD = re.compile(r"\{\{|\}\}|\{([^{}!:]*)(?:!([^{}:]*))?(?::([^{}]*))?\}|[{}]")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SPEC = re.compile(
    r"(?:(?P<fill>.)?(?P<align>[<>=^]))?[-+ ]?z?#?(?P<zero>0)?(?P<width>[0-9]{0,9})[_,]?"
    r"(?:\.(?P<precision>[0-9]{1,9}))?(?P<type>[a-zA-Z%]?)",
    re.DOTALL,
)
PERCENT = re.compile(
    r"%(?:\((?P<key>[^()]*)\))?(?P<flags>[-+ #0]{0,8})(?P<width>[0-9]{0,9})(?:\.(?P<precision>[0-9]{0,9}))?"
    r"(?P<type>.?)",
    re.DOTALL,
)
ALIGN: dict[str, Callable[[int, int], int]] = {
    "<": lambda room, _: 0,
    ">": lambda room, _: room,
    "^": lambda room, _: room // 2,
}


def checked_width(*texts: str | None) -> None:
    for text in texts:
        if text and int(text) > MAX_WIDTH:
            raise TemplateError(f"a format's width {text} is above {MAX_WIDTH}", limit=MAX_WIDTH)


def pad(value: str, width: int, left: int, fill: str) -> str:
    """`value` padded to `width` characters, `left` of the padding before it."""
    room = max(width - len(value), 0)
    if not room:
        return value  # a copy for every field would be made before their sum is checked
    return joined((repeated(fill, min(left, room)), value, repeated(fill, room - min(left, room))))


@dataclass(slots=True)
class Arguments:
    """The arguments of a format string, by position and by name."""

    positional: tuple[object, ...]
    named: Mapping[Any, object]
    following: int = 0  # the next position of a field without a name

    def get(self, name: str) -> object:
        if name == "":
            name, self.following = str(self.following), self.following + 1
        if name.isascii() and name.isdecimal() and len(name) < 4:
            return self._at(int(name))
        if not NAME.fullmatch(name):
            raise TemplateError(f"format field {{{name}}} is not supported; expected a position or a name")
        if name not in self.named:
            raise TemplateError(f"format field {{{name}}} has no value", name=name)
        return self.named[name]

    def _at(self, index: int) -> object:
        if index >= len(self.positional):
            raise TemplateError(f"format field {index} has no value; {len(self.positional)} were given")
        return self.positional[index]


def format_method(value: str, budget: Budget, *positional: object, **named: object) -> str:
    """str.format."""
    return filled_in(value, budget, Arguments(positional, named))


def format_map(value: str, budget: Budget, named: object) -> str:
    """str.format_map."""
    if not is_dict(named):
        raise TemplateError(f"format_map: got a {type(named).__name__}, expected a mapping")
    return filled_in(value, budget, Arguments((), named))


def filled_in(value: str, budget: Budget, arguments: Arguments) -> str:
    text = budget.joined(formatted(value, arguments, budget))
    return marked(text) if isinstance(value, Markup) else text


def formatted(value: str, arguments: Arguments, budget: Budget) -> Iterator[str]:
    at = 0
    for match in FIELD.finditer(value):
        budget.spend()
        yield cut(value, slice(at, match.start()))
        at = match.end()
        if match.group() in ("{{", "}}"):
            yield cut(value, slice(at - 1, at))
        elif match.group(1) is None:
            raise TemplateError(f"format: a single {match.group()} has no meaning; double it")
        else:
            spec = cut(value, slice(*match.span(3))) if match.group(3) else ""
            field = converted(arguments.get(match.group(1)), match.group(2), budget)
            field = escaped(shown(field, budget), budget) if isinstance(value, Markup) else field
            yield spelled(field, spec, budget)
    yield cut(value, slice(at, None))


def converted(value: object, conversion: str | None, budget: Budget) -> object:
    """Applies !s or !r."""
    if conversion is None:
        return value
    if conversion not in ("s", "r"):
        raise TemplateError(f"format: unknown conversion !{conversion}; expected !s or !r")
    return shown(value, budget) if conversion == "s" else budget.joined(representation(value, budget))


def spelled(value: object, spec: str, budget: Budget) -> str:
    """format(value, spec): texts with their trust, numbers as Python formats them."""
    if not spec:
        return shown(value, budget)
    match = SPEC.fullmatch(spec)
    if match is None:
        raise TemplateError(f"format: {brief(spec)} is not a format spec")
    checked_width(match["width"], match["precision"])
    if isinstance(value, str):
        return aligned(value, spec, match)
    if isinstance(value, int | float):
        return format(value, str(spec))
    raise TemplateError(f"format: a {type(value).__name__} does not support {brief(spec)}")


def aligned(value: str, spec: str, match: re.Match[str]) -> str:
    """Aligns a text as format() does."""
    format("", str(spec))  # raises for options that only numbers support
    align = match["align"] or "<"
    fill = cut(spec, slice(0, 1)) if match["fill"] else trusted("0" if match["zero"] else " ")
    value = cut(value, slice(int(match["precision"]) if match["precision"] else None))
    width = int(match["width"] or 0)
    return pad(value, width, ALIGN[align](max(width - len(value), 0), width), fill)


def interpolate(value: str, budget: Budget, right: object) -> str:
    """The % operator."""
    text = budget.joined(interpolated(value, right, budget))
    return marked(text) if isinstance(value, Markup) else text


def interpolated(value: str, right: object, budget: Budget) -> Iterator[str]:
    rest = iter(right if is_list(right) and isinstance(right, tuple) else (right,))
    at = 0
    for match in PERCENT.finditer(value):
        budget.spend()
        yield cut(value, slice(at, match.start()))
        at = match.end()
        if match["type"] == "%":
            yield cut(value, slice(at - 1, at))
            continue
        argument = picked(match["key"], right, rest)
        yield printed(argument, match, budget, escape=isinstance(value, Markup))
    yield cut(value, slice(at, None))
    if not isinstance(right, list | dict | range | Undefined):  # ignores surplus values, as Python does
        for _ in rest:
            raise TemplateError("%: more values than placeholders in the text")


def picked(key: str | None, right: object, rest: Iterator[object]) -> object:
    if key is not None:
        if not is_dict(right) or key not in right:
            raise TemplateError(f"%({key:.40}) has no value; expected a mapping with this key")
        return right[key]
    for value in rest:
        return value
    raise TemplateError("%: fewer values than placeholders in the text")


def printed(value: object, match: re.Match[str], budget: Budget, *, escape: bool) -> str:
    """Formats one value by its placeholder."""
    checked_width(match["width"], match["precision"])
    if match["type"] not in ("s", "r"):
        form = (
            re.sub(r"\([^()]*\)", "", match.group(), count=1) if match["key"] is not None else match.group()
        )
        number: Any = value if isinstance(value, int | float) or match["type"] == "c" else None
        return str(form) % (number,)
    text = shown(value, budget) if match["type"] == "s" else budget.joined(representation(value, budget))
    text = escaped(text, budget) if escape else text
    precision = match["precision"]
    text = cut(text, slice(None if precision is None else int(precision or 0)))
    width = int(match["width"] or 0)
    return pad(text, width, 0 if "-" in match["flags"] else max(width - len(text), 0), trusted(" "))
