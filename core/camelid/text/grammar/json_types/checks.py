"""Validation of the values that a schema lists (enum, const, keys) against the other keywords."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

from camelid.text.grammar.json_types import constraints
from camelid.text.grammar.json_types.document import Document, Place, Places
from camelid.text.grammar.json_types.formats import FORMATS, NUMBER_FORMATS, format_dfa
from camelid.text.grammar.json_types.keywords import FRACTION, INTEGER, TYPES
from camelid.text.grammar.numbers import EXACT_INTEGER

TYPE_NAMES: dict[type, str] = {
    type(None): "null", bool: "boolean", int: INTEGER, str: "string", list: "array"
}  # fmt: skip


def allows(document: Document, places: Places, value: object) -> bool:
    """True if the value satisfies all places, as JSON Schema defines."""
    return any(
        all(allowed_at(document, place, value) for place in alternative)
        for alternative in document.alternatives(places)
    )


def finite_values(document: Document, places: Places) -> list[Any] | None:
    """Every value that satisfies the places, if an enum, a const, null or boolean lists them; else None."""
    found: dict[object, Any] = {}
    for alternative in document.alternatives(places):
        values = constraints.enumerated(alternative)
        if values is None and constraints.types_of(alternative) <= {"null", "boolean"}:
            values = [None, False, True]
        if values is None:
            return None
        found.update((constraints.identity(v), v) for v in values if allows(document, alternative, v))
    return list(found.values())


def allowed_at(document: Document, place: Place, value: object) -> bool:
    keywords = cast(dict[str, Any], place.schema)
    kind = type_name(value)
    return all(
        check(place, value)
        for keyword, (kinds, check) in CHECKS.items()
        if keyword in keywords and (kinds is None or kind in kinds)
    ) and all(
        check(document, place, value)
        for keyword, (kinds, check) in DEEP_CHECKS.items()
        if keyword in keywords and kind == kinds
    )


def type_name(value: object) -> str:
    """The JSON type of a value, as named in `keywords.TYPES`."""
    if isinstance(value, float):
        return INTEGER if value.is_integer() else FRACTION
    return TYPE_NAMES.get(type(value), "object")


def in_interval(place: Place, value: Any) -> bool:
    bounds = constraints.interval((place,), type_name(value) == INTEGER)
    number = Fraction(value)
    low, high = bounds.low, bounds.high
    if low and (number < low.value or (low.strict and number == low.value)):
        return False
    return not high or not (number > high.value or (high.strict and number == high.value))


def is_multiple(place: Place, value: Any) -> bool:
    step = place.get("multipleOf")
    if isinstance(step, float) and abs(value) < EXACT_INTEGER:
        quotient = Fraction(value / step)  # readers divide doubles
        return quotient.denominator == 1
    return Fraction(value) % Fraction(step) == 0


def has_length(place: Place, value: str) -> bool:
    least, most = constraints.size((place,), "Length")
    return least <= len(value) and (most is None or len(value) <= most)


def has_format(place: Place, value: Any) -> bool:
    for _, name in constraints.formats_of((place,)):
        if isinstance(value, str) and name in FORMATS:
            return format_dfa(name).accepts(value)
        if not isinstance(value, str) and name in NUMBER_FORMATS:
            return in_interval(place, value)
    return True


def has_pattern(place: Place, value: str) -> bool:
    return constraints.placed_pattern(place, "pattern", place.get("pattern")).accepts(value)


def is_enumerated(place: Place, value: object) -> bool:
    return constraints.identity(value) in listed(place)


@lru_cache(maxsize=8)  # places: an alternative has few enums, and each is asked for one value after the other
def listed(place: Place) -> frozenset[object]:
    """The identities of the place's enum: each of its values is looked up among all of them."""
    return frozenset(map(constraints.identity, place.get("enum")))


def is_const(place: Place, value: object) -> bool:
    return constraints.identity(value) == constraints.identity(cast(dict[str, Any], place.schema)["const"])


def has_type(place: Place, value: object) -> bool:
    return type_name(value) in constraints.types_of((place,))


def properties_fit(document: Document, place: Place, value: dict[str, Any]) -> bool:
    return all(
        allows(document, constraints.property_places((place,), key), item) for key, item in value.items()
    )


def has_properties(place: Place, value: dict[str, Any]) -> bool:
    least, most = constraints.size((place,), "Properties")
    return least <= len(value) and (most is None or len(value) <= most)


def names_fit(document: Document, place: Place, value: dict[str, Any]) -> bool:
    names = (place.child("propertyNames"),)
    return all(allows(document, names, key) for key in value)


def has_required(place: Place, value: dict[str, Any]) -> bool:
    return all(key in value for key in place.get("required"))


def has_dependents(place: Place, value: dict[str, Any]) -> bool:
    dependents = place.get("dependentRequired")
    return all(other in value for key in dependents if key in value for other in dependents[key])


def items_fit(document: Document, place: Place, value: list[Any]) -> bool:
    return all(allows(document, constraints.item_places((place,), i), item) for i, item in enumerate(value))


def has_items(place: Place, value: list[Any]) -> bool:
    least, most = constraints.size((place,), "Items")
    return least <= len(value) and (most is None or len(value) <= most)


def is_unique(place: Place, value: list[Any]) -> bool:
    return not place.get("uniqueItems") or len(set(map(constraints.identity, value))) == len(value)


NUMBERS, STRINGS, OBJECTS, ARRAYS = TYPES["number"], TYPES["string"], TYPES["object"], TYPES["array"]
# Keyword -> the JSON types that it applies to (None: all), and the check of a value of these types.
CHECKS: dict[str, tuple[frozenset[str] | None, Callable[[Place, Any], bool]]] = {
    "type": (None, has_type), "enum": (None, is_enumerated), "const": (None, is_const),
    "minimum": (NUMBERS, in_interval), "exclusiveMinimum": (NUMBERS, in_interval),
    "maximum": (NUMBERS, in_interval), "exclusiveMaximum": (NUMBERS, in_interval),
    "multipleOf": (NUMBERS, is_multiple), "format": (NUMBERS | STRINGS, has_format),
    "minLength": (STRINGS, has_length), "maxLength": (STRINGS, has_length), "pattern": (STRINGS, has_pattern),
    "required": (OBJECTS, has_required), "dependentRequired": (OBJECTS, has_dependents),
    "minProperties": (OBJECTS, has_properties), "maxProperties": (OBJECTS, has_properties),
    "minItems": (ARRAYS, has_items), "maxItems": (ARRAYS, has_items), "uniqueItems": (ARRAYS, is_unique),
}  # fmt: skip
# Keywords whose subschemas are checked in turn.
DEEP_CHECKS: dict[str, tuple[str, Callable[[Document, Place, Any], bool]]] = {
    "properties": ("object", properties_fit), "patternProperties": ("object", properties_fit),
    "additionalProperties": ("object", properties_fit), "propertyNames": ("object", names_fit),
    "items": ("array", items_fit), "prefixItems": ("array", items_fit),
}  # fmt: skip
