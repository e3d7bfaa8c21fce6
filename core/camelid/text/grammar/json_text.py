"""Rules of JSON itself: values of any type, strings by character, and the spelling of one given value.

Numbers follow RFC 8259 within the limits below. Strings are raw or have any escape except half a surrogate
pair. White space is limited to the places where models write it: none or one space after `:`; none, one space
or a line break with an indent after `{`, `[` and `,` and before `}` and `]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import cast

from camelid.text.grammar.builder import NOTHING, Notation, in_order, one_of, optional
from camelid.text.grammar.char_classes import Ranges, union
from camelid.text.grammar.rules import Chars, Choice, Expr, Range, Ref, Repeat, Rules, Sequence, Text

MAX_INDENT = 32
# Python parses integers of up to 4300 digits; a model beyond 20 digits is usually in a loop.
MAX_DIGITS = 20  # of an integer, or of an integer part without bounds
MAX_FRACTION = 20
BASE = 16
HIGH_SURROGATES = 0xD800
LOW_SURROGATES = 0xDC00
SHORT_ESCAPES = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 0x22: '"', 0x5C: "\\"}
PLAIN: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))
# Characters that a string literal may write as \uXXXX: the same characters that json.dumps escapes.
ESCAPED: Ranges = ((0x00, 0x1F), (0x80, 0xD7FF), (0xE000, 0xFFFF))
ASTRAL: Ranges = ((0x10000, 0x10FFFF),)
BARE = re.compile("[A-Za-z_][A-Za-z0-9_-]*")  # a key that needs no quotes
DIGIT = Chars(((0x30, 0x39),))
FROM_ONE = Chars(((0x31, 0x39),))
WS = Ref("ws")
COMMA = Sequence((Text(","), WS))
COLON = Sequence((Text(":"), Repeat(Text(" "), 0, 1)))


def meet(left: Ranges, right: Ranges) -> Ranges:
    """The characters of both sets."""
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return tuple(sorted((first, last) for first, last in pairs if first <= last))


def boxes(low: int, high: int, base: int, n: int) -> Iterator[tuple[Range, ...]]:
    """The numbers low … high of n digits, as products of digit ranges."""
    if n == 0:
        yield ()
        return
    size = base ** (n - 1)
    first, last = low // size, high // size
    if first == last:
        yield from (((first, first), *rest) for rest in boxes(low % size, high % size, base, n - 1))
        return
    if low % size:
        yield from (((first, first), *rest) for rest in boxes(low % size, size - 1, base, n - 1))
        first += 1
    whole = high % size == size - 1
    if first <= last - (not whole):
        yield ((first, last - (not whole)), *[(0, base - 1)] * (n - 1))
    if not whole:
        yield from (((last, last), *rest) for rest in boxes(0, high % size, base, n - 1))


def hex_digit(first: int, last: int) -> Expr:
    """A hexadecimal digit in either case."""
    ranges = [(0x30 + first, 0x30 + min(last, 9))] if first <= 9 else []
    if last >= 10:
        low, high = max(first, 10) - 10, last - 10
        ranges += [(0x41 + low, 0x41 + high), (0x61 + low, 0x61 + high)]
    return Chars(tuple(ranges))


def unit(first: int, last: int) -> Iterator[Expr]:
    """The escapes \\uXXXX of a range of UTF-16 code units."""
    for box in boxes(first, last, BASE, 4):
        yield in_order("\\u", *(hex_digit(*digit) for digit in box))


def pair(first: int, last: int) -> Iterator[Expr]:
    """The surrogate pairs of escapes of a range of characters beyond U+FFFF."""
    for high, low in boxes(first - 0x10000, last - 0x10000, 0x400, 2):
        for head in unit(HIGH_SURROGATES + high[0], HIGH_SURROGATES + high[1]):
            for tail in unit(LOW_SURROGATES + low[0], LOW_SURROGATES + low[1]):
                yield in_order(head, tail)


@lru_cache(maxsize=1024)
def spelled(ranges: Ranges) -> Expr:
    """One character of the ranges inside a string: raw, or as an escape that `json.dumps` writes.

    A plain character has no escaped form here, so a forbidden text has no other spelling.
    """
    raw = meet(ranges, PLAIN)
    short = (
        Text(f"\\{letter}")
        for code, letter in SHORT_ESCAPES.items()
        if any(a <= code <= b for a, b in ranges)
    )
    units = (expr for first, last in meet(ranges, ESCAPED) for expr in unit(first, last))
    pairs = (expr for first, last in meet(ranges, ASTRAL) for expr in pair(first, last))
    return one_of(*([Chars(raw)] if raw else []), *short, *units, *pairs)


def escapes(letters: str) -> Expr:
    """Any character as an escape: a backslash before one of the letters, or \\uXXXX."""
    units = [*unit(0, 0xD7FF), *unit(0xE000, 0xFFFF), *pair(0x10000, 0x10FFFF)]
    return one_of(in_order("\\", Chars(union((ord(letter), ord(letter)) for letter in letters))), *units)


JSON = Notation(Text('"'), spelled, PLAIN, escapes('"\\/bfnrt'))


def string_literal(text: str, notation: Notation = JSON) -> Expr:
    """The string of a text, with quotes."""
    return in_order(notation.quote, *(plain_or_spelled(char, notation) for char in text), notation.quote)


def plain_or_spelled(char: str, notation: Notation) -> Expr:
    expr = notation.spelled(((ord(char), ord(char)),))
    return Text(char) if isinstance(expr, Chars) else expr


def key_literal(key: str, notation: Notation = JSON) -> Expr:
    """A key of an object."""
    return Text(key) if notation.has_bare_keys and BARE.fullmatch(key) else string_literal(key, notation)


def literal(value: object, notation: Notation = JSON) -> Expr:
    """The spelling of one JSON value, object keys in the given order. The caller limits its depth."""
    if isinstance(value, str):
        return string_literal(value, notation)
    if isinstance(value, Mapping):
        pairs = cast(Mapping[str, object], value).items()
        members = (
            in_order(key_literal(key, notation), COLON, literal(item, notation)) for key, item in pairs
        )
        return enclosed("{", members, "}")
    if isinstance(value, list | tuple):
        return enclosed("[", (literal(item, notation) for item in cast(list[object], value)), "]")
    if value is None or isinstance(value, bool):
        return Text(notation.words[(True, False, None).index(value)])
    return Text(json.dumps(value))


def enclosed(opening: str, parts: Iterable[Expr], closing: str) -> Expr:
    """The parts between brackets, separated by commas."""
    separated: list[Expr] = []
    for part in parts:
        separated += [COMMA, part] if separated else [part]
    inside = [*separated, WS] if separated else []
    return in_order(opening, WS, *inside, closing)


def many(opening: str, part: Expr, closing: str) -> Expr:
    """Any number of parts between brackets, separated by commas."""
    filled = in_order(part, Repeat(Sequence((COMMA, part))), WS, closing)
    return in_order(opening, WS, one_of(Text(closing), filled))


def digits(most: int | None) -> Expr:
    """An integer without sign, of at most `most` digits; None: no limit."""
    return one_of(Text("0"), in_order(FROM_ONE, Repeat(DIGIT, 0, most and most - 1)))


def unsigned() -> Expr:
    """A number without sign; the exponent is limited so that the number is finite as a double."""
    exponent = one_of(Repeat(DIGIT, 1, 2), in_order("1", DIGIT, DIGIT))
    power = in_order(
        Chars(((0x45, 0x45), (0x65, 0x65))), optional(Chars(((0x2B, 0x2B), (0x2D, 0x2D)))), exponent
    )
    return in_order(
        digits(MAX_DIGITS), optional(in_order(".", Repeat(DIGIT, 1, MAX_FRACTION))), optional(power)
    )


def base_rules(notation: Notation = JSON) -> dict[str, Expr]:
    """The rules that every grammar of values includes."""
    minus = optional(Text("-"))
    names = ("string", "number", "object", "array", "boolean", "null")
    indent = in_order("\n", Repeat(Chars(union([(9, 9), (0x20, 0x20)])), 0, MAX_INDENT))
    true, false, null = map(Text, notation.words)
    return {
        "ws": Choice((NOTHING, Text(" "), indent)),
        "escape": notation.escape,
        "characters": Repeat(character(notation)),
        "string": in_order(notation.quote, Ref("characters"), notation.quote),
        "unsigned": unsigned(),
        "number": in_order(minus, Ref("unsigned")),
        "integer": in_order(minus, digits(MAX_DIGITS)),
        "boolean": Choice((true, false)),
        "null": null,
        "member": in_order(Ref("string"), COLON, Ref("value")),
        "object": many("{", Ref("member"), "}"),
        "array": many("[", Ref("value"), "]"),
        "value": Choice(tuple(Ref(name) for name in names)),
    }


def character(notation: Notation) -> Expr:
    """One character of a string, in any spelling."""
    return Choice((Chars(notation.plain), Ref("escape")))


def rules_of_json(*, any_value: bool = False) -> Rules:
    """The rules of any JSON object; with `any_value`, of any JSON value."""
    return Rules(base_rules(), "value" if any_value else "object")
