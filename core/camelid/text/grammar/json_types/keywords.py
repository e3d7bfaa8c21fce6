"""The keywords of JSON Schema 2020-12: supported ones with a check of their value, others with advice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias, cast

from camelid.errors import RequestError

Schema: TypeAlias = "Mapping[str, Any] | bool"

# JSON types, with numbers split in two: integers and numbers with a fraction.
INTEGER, FRACTION = "integer", "fraction"
TYPES: dict[str, frozenset[str]] = {
    **{name: frozenset({name}) for name in ("null", "boolean", "object", "array", "string", INTEGER)},
    "number": frozenset({INTEGER, FRACTION}),
}
ALL_TYPES = frozenset[str]().union(*TYPES.values())


def is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_schema(value: object) -> bool:
    return isinstance(value, bool | Mapping)


def is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast(list[object], value))


def values(value: object) -> list[object]:
    """The values of a mapping; for any other value [None], which no check accepts."""
    return list(cast(Mapping[str, object], value).values()) if isinstance(value, Mapping) else [None]


def is_type(value: object) -> bool:
    """True for the name of a JSON type, or a list of names."""
    names = cast(list[object], value) if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


Check: TypeAlias = "tuple[str, Callable[[Any], bool]]"
COUNT: Check = ("a count, 0 or more", is_count)
NUMBER: Check = ("a finite number", is_number)
STEP: Check = ("a number above 0", lambda value: is_number(value) and value > 0)
TEXT: Check = ("a string", lambda value: isinstance(value, str))
TEXTS: Check = ("a list of strings", is_text_list)
ANYTHING: Check = ("any value", lambda value: True)
FLAG: Check = ("true or false", lambda value: isinstance(value, bool))
LIST: Check = (
    "a list of at least one value",
    lambda value: isinstance(value, list) and bool(cast(object, value)),
)
ANY_SCHEMA: Check = ("a schema: an object, true or false", is_schema)
SCHEMAS: Check = ("a list of schemas", lambda value: LIST[1](value) and all(map(is_schema, value)))
SCHEMA_MAP: Check = ("an object of schemas", lambda value: all(map(is_schema, values(value))))
TEXTS_MAP: Check = ("an object of lists of strings", lambda value: all(map(is_text_list, values(value))))

ASSERTIONS: dict[str, Check] = {
    "type": (f"one of {', '.join(sorted(TYPES))}, or a list of these", is_type),
    "enum": LIST, "const": ANYTHING,
    "minimum": NUMBER, "maximum": NUMBER, "exclusiveMinimum": NUMBER, "exclusiveMaximum": NUMBER,
    "multipleOf": STEP,
    "minLength": COUNT, "maxLength": COUNT, "pattern": TEXT, "format": TEXT,
    "properties": SCHEMA_MAP, "patternProperties": SCHEMA_MAP, "additionalProperties": ANY_SCHEMA,
    "propertyNames": ANY_SCHEMA, "required": TEXTS, "dependentRequired": TEXTS_MAP,
    "minProperties": COUNT, "maxProperties": COUNT,
    "items": ANY_SCHEMA, "prefixItems": SCHEMAS, "minItems": COUNT, "maxItems": COUNT, "uniqueItems": FLAG,
}  # fmt: skip
COMBINATORS: dict[str, Check] = {
    "$ref": TEXT, "allOf": SCHEMAS, "anyOf": SCHEMAS, "oneOf": SCHEMAS, "not": ANY_SCHEMA
}  # fmt: skip
# Annotations do not restrict values. OpenAPI's discriminator repeats the information of oneOf.
ANNOTATIONS = frozenset(
    {
        "title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly",
        "contentMediaType", "contentEncoding", "contentSchema", "discriminator",
        "$schema", "$id", "$comment", "$defs", "definitions",
    }
)  # fmt: skip
# Unsupported keywords, each with an alternative.
REFUSED = {
    "contains": "describe the items with items and prefixItems",
    "minContains": "describe the items with items and prefixItems",
    "maxContains": "describe the items with items and prefixItems",
    "unevaluatedProperties": "use additionalProperties in one schema with all properties",
    "unevaluatedItems": "use items beside prefixItems",
    "additionalItems": "use items beside prefixItems",
    "dependentSchemas": "use anyOf with one schema for each case",
    "dependencies": "use dependentRequired, or anyOf with one schema for each case",
    "if": "use anyOf with one schema for each case",
    "then": "use anyOf with one schema for each case",
    "else": "use anyOf with one schema for each case",
    "nullable": 'use "type": ["...", "null"]',
    "$anchor": "use a $ref with a JSON pointer, such as #/$defs/name",
    "$dynamicRef": "use a $ref with a JSON pointer, such as #/$defs/name",
    "$dynamicAnchor": "use a $ref with a JSON pointer, such as #/$defs/name",
    "$recursiveRef": "use a $ref with a JSON pointer, such as #/$defs/name",
    "$recursiveAnchor": "use a $ref with a JSON pointer, such as #/$defs/name",
    "$vocabulary": "remove it",
}
FOLLOWED = {**ASSERTIONS, **COMBINATORS}


def refuse(keyword: str, pointer: str, what: str) -> NoReturn:
    """Raises the RequestError of a keyword at a pointer."""
    raise RequestError(
        f"json_schema: {keyword!r:.80} at {pointer or '/':.200}: {what}",
        field="json_schema",
        keyword=keyword,
        pointer=pointer,
    )


def check_keywords(schema: Mapping[str, Any], pointer: str) -> None:
    """Raises RequestError for an unsupported keyword and for a keyword with an invalid value."""
    for keyword, value in schema.items():
        if keyword in FOLLOWED:
            expected, is_right = FOLLOWED[keyword]
            if not is_right(value):
                refuse(keyword, pointer, f"expected {expected}, found {value!r:.60}")
        elif keyword in REFUSED:
            refuse(keyword, pointer, f"not supported; {REFUSED[keyword]}")
        elif keyword not in ANNOTATIONS and not keyword.startswith("x-"):
            refuse(keyword, pointer, "not a keyword of JSON Schema 2020-12; correct it or remove it")
        elif keyword == "$id" and pointer:
            refuse(keyword, pointer, "only the root schema may have an $id; remove this one")
