"""Refused schemas, with the keyword and the place in the error."""

from __future__ import annotations

from typing import Any

REFUSED: list[tuple[Any, str, str]] = [
    ({"contains": {}}, "contains", ""),
    ({"properties": {"a": {"items": {"if": True}}}}, "if", "/properties/a/items"),
    ({"properties": {"a/b": {"nullable": True}}}, "nullable", "/properties/a~1b"),
    ({"$ref": "https://example.org/s.json"}, "$ref", ""),
    ({"$ref": "#/$defs/none"}, "$ref", ""),
    ({"$ref": "#name"}, "$ref", ""),
    ({"$ref": "#"}, "$ref", ""),
    ({"allOf": [{"$ref": "#"}]}, "$ref", ""),
    ({"minLenght": 3}, "minLenght", ""),
    ({"minLength": -1}, "minLength", ""),
    ({"minLength": True}, "minLength", ""),
    ({"type": "str"}, "type", ""),
    ({"type": []}, "type", ""),
    ({"enum": []}, "enum", ""),
    ({"properties": []}, "properties", ""),
    ({"items": [{}]}, "items", ""),
    ({"exclusiveMinimum": True}, "exclusiveMinimum", ""),
    ({"multipleOf": 0}, "multipleOf", ""),
    ({"type": "number", "multipleOf": 0.01}, "multipleOf", ""),
    ({"type": "integer", "multipleOf": 12347}, "multipleOf", ""),
    ({"type": "string", "format": "colour"}, "format", ""),
    ({"type": "string", "pattern": "(?=a)"}, "pattern", ""),
    ({"type": "string", "pattern": "^[ab]*a[ab]{14}$"}, "pattern", ""),
    ({"type": "string", "pattern": "^a", "maxLength": 10**9}, "maxLength", ""),
    ({"type": "array", "uniqueItems": True}, "uniqueItems", ""),
    ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}, "oneOf", ""),
    ({"type": "object", "oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, "oneOf", ""),
    ({"oneOf": [{"type": "integer", "minimum": 1}, {"type": "integer", "maximum": 1}]}, "oneOf", ""),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", ""),
    ({"not": {"type": "string"}}, "not", ""),
    ({"type": "object", "minProperties": 3}, "minProperties", ""),
    ({"$anchor": "a"}, "$anchor", ""),
    ({"$defs": {"a": {"$id": "b"}}, "$ref": "#/$defs/a"}, "$id", "/$defs/a"),
    ({"dependencies": {"a": ["b"]}}, "dependencies", ""),
    ({"allOf": [{"anyOf": [{}] * 9}] * 9}, "anyOf", ""),
]
