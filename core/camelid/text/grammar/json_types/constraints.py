"""The constraints that a set of places puts on a value: types, bounds, lengths, keys, enumerated values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

from camelid.errors import RequestError
from camelid.text.grammar.dfa import Dfa, dfa_of, intersect, lengths, longest, shortest
from camelid.text.grammar.json_types.document import Place, Places
from camelid.text.grammar.json_types.formats import (
    FORMATS,
    KNOWN_FORMATS,
    NUMBER_FORMATS,
    format_dfa,
)
from camelid.text.grammar.json_types.keywords import ALL_TYPES, TYPES, refuse
from camelid.text.grammar.numbers import Bound, Interval, exact
from camelid.text.grammar.regex import searched


def with_keyword(places: Iterable[Place], keyword: str) -> Iterator[tuple[Place, Any]]:
    """The places that have the keyword, with its value."""
    return ((place, value) for place in places if (value := place.get(keyword)) is not None)


def types_of(places: Places) -> frozenset[str]:
    found = ALL_TYPES
    for _, names in with_keyword(places, "type"):
        given = cast(list[str], names) if isinstance(names, list) else [names]
        found &= frozenset[str]().union(*(TYPES[name] for name in given))
    return found


def size(places: Places, noun: str) -> tuple[int, int | None]:
    """The strictest bounds of minX and maxX; `noun` is Length, Items or Properties."""
    most = [value for _, value in with_keyword(places, f"max{noun}")]
    return max((value for _, value in with_keyword(places, f"min{noun}")), default=0), min(most, default=None)


def formats_of(places: Places) -> Iterator[tuple[Place, str]]:
    for place, name in with_keyword(places, "format"):
        if name not in KNOWN_FORMATS:
            refuse("format", place.pointer, f"{name!r:.60} is not known; known: {', '.join(KNOWN_FORMATS)}")
        yield place, name


def interval(places: Places, integral: bool) -> Interval:
    """The bounds and steps of all places combined."""
    low = [Bound(exact(v)) for _, v in with_keyword(places, "minimum")]
    low += [Bound(exact(v), strict=True) for _, v in with_keyword(places, "exclusiveMinimum")]
    high = [Bound(exact(v)) for _, v in with_keyword(places, "maximum")]
    high += [Bound(exact(v), strict=True) for _, v in with_keyword(places, "exclusiveMaximum")]
    for _, name in formats_of(places):
        if name in NUMBER_FORMATS and integral:
            first, last = NUMBER_FORMATS[name]
            low, high = [*low, Bound(Fraction(first))], [*high, Bound(Fraction(last))]
    steps = [value for _, value in with_keyword(places, "multipleOf")]
    return Interval(
        low=max(low, key=lambda bound: (bound.value, bound.strict), default=None),
        high=min(high, key=lambda bound: (bound.value, not bound.strict), default=None),
        step=common_multiple(map(exact, steps)) if steps else None,
        is_double_step=any(isinstance(value, float) for value in steps),
        integral=integral,
    )


def common_multiple(steps: Iterable[Fraction]) -> Fraction:
    """The least common multiple of some steps."""
    parts = list(steps)
    return Fraction(math.lcm(*(s.numerator for s in parts)), math.gcd(*(s.denominator for s in parts)))


@lru_cache(maxsize=256)
def pattern_dfa(pattern: str, wide: bool = False) -> Dfa:
    """The texts in which the pattern is found; `wide`: in which some regex dialect may find it."""
    return dfa_of(searched(pattern, wide))


def placed_pattern(place: Place, keyword: str, pattern: str, wide: bool = False) -> Dfa:
    """`pattern_dfa`, with the keyword and pointer added to its errors."""
    try:
        return pattern_dfa(pattern, wide)
    except RequestError as error:
        refuse(keyword, place.pointer, error.message)


def shape_dfa(places: Places) -> Dfa | None:
    """The strings that patterns and formats allow, of any length; None: any string."""
    parts = [placed_pattern(place, "pattern", pattern) for place, pattern in with_keyword(places, "pattern")]
    parts += [format_dfa(name) for _, name in formats_of(places) if name in FORMATS]
    parts = [part for part in parts if not part.is_free(0)]
    try:
        for other in parts[1:]:
            parts[0] = intersect(parts[0], other)
    except RequestError as error:
        refuse("pattern", places[0].pointer, error.message)
    return parts[0] if parts else None


def text_dfa(places: Places) -> Dfa | None:
    """The strings that patterns, formats and lengths allow; None: any string."""
    shape = shape_dfa(places)
    least, most = size(places, "Length")
    try:
        return within(shape, least, most)
    except RequestError as error:
        refuse("maxLength" if most else "minLength", places[0].pointer, error.message)


def within(dfa: Dfa | None, least: int, most: int | None) -> Dfa | None:
    """The texts of `least` to `most` characters; a bound that all texts keep adds no states."""
    if dfa is not None and not dfa.is_empty:
        end = longest(dfa)
        least = 0 if least <= shortest(dfa) else least
        most = None if most is None or (end is not None and end <= most) else most
    if least == 0 and most is None:
        return dfa
    counted = lengths(least, most)
    return intersect(dfa, counted) if dfa else counted


def matches(place: Place, pattern: str, key: str) -> bool:
    """True if a pattern is found in a key. RequestError where regex dialects differ."""
    found = placed_pattern(place, "patternProperties", pattern).accepts(key)
    if found != placed_pattern(place, "patternProperties", pattern, True).accepts(key):
        refuse(
            "patternProperties",
            place.pointer,
            f"dialects differ on whether {pattern!r:.60} matches {key!r:.60}",
        )
    return found


def patterns_of(place: Place) -> list[str]:
    """The regexes of patternProperties."""
    return list(place.get("patternProperties") or ())


def property_places(places: Places, key: str) -> Places:
    """The places that the value of a key must satisfy."""
    return tuple(found for place in places for found in described(place, key))


def described(place: Place, key: str) -> list[Place]:
    found = [place.child("properties", key)] if key in (place.get("properties") or {}) else []
    patterns = (pattern for pattern in patterns_of(place) if matches(place, pattern, key))
    found.extend(place.child("patternProperties", pattern) for pattern in patterns)
    if not found and place.get("additionalProperties") is not None:
        return [place.child("additionalProperties")]
    return found


def required(places: Places) -> list[str]:
    return list(dict.fromkeys(key for _, keys in with_keyword(places, "required") for key in keys))


def dependents(places: Places) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """By dependentRequired, the keys that each key demands, and the keys that demand it."""
    found: dict[str, set[str]] = {}
    demanders: dict[str, set[str]] = {}
    for _, table in with_keyword(places, "dependentRequired"):
        for key, others in table.items():
            found.setdefault(key, set()).update(others)
            for other in others:
                demanders.setdefault(other, set()).add(key)
    return found, demanders


def item_places(places: Places, index: int) -> Places:
    """The places that the item at an index must satisfy."""
    found: list[Place] = []
    for place in places:
        if index < len(place.get("prefixItems") or ()):
            found.append(place.child("prefixItems", index))
        elif place.get("items") is not None:
            found.append(place.child("items"))
    return tuple(found)


def prefix_size(places: Places) -> int:
    return max((len(items) for _, items in with_keyword(places, "prefixItems")), default=0)


def identity(value: object) -> object:
    """A key that is equal for values that JSON Schema treats as equal: 1 and 1.0, but not 1 and true."""
    if isinstance(value, dict):
        pairs = cast(dict[str, object], value).items()
        return ("object", frozenset((key, identity(item)) for key, item in pairs))
    if isinstance(value, list):
        return ("array", tuple(map(identity, cast(list[object], value))))
    return ("boolean" if isinstance(value, bool) else "", value)


def enumerated(places: Places) -> list[Any] | None:
    """The values of the first enum or const; None if there is neither."""
    for place in places:
        if isinstance(place.schema, dict) and "const" in place.schema:
            return [place.schema["const"]]
        if (values := place.get("enum")) is not None:
            return list({identity(value): value for value in values}.values())
    return None
