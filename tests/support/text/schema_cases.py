"""Schemas by keyword, with texts that their grammar matches and texts that it refuses.

A refused text is no instance, or an instance of a documented restriction (`narrow`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """`matched` and `refused` are JSON texts."""

    name: str
    schema: Any
    matched: tuple[str, ...]
    refused: tuple[str, ...]
    narrow: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def obj(*keys: str, **more: Any) -> dict[str, Any]:
    """An object schema with integers under these keys."""
    return {"type": "object", "properties": {key: {"type": "integer"} for key in keys}, **more}


def text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


TREE = {
    "$defs": {"n/o~de": {**obj("v"), "required": ["v"]}},
    "type": "array",
    "items": {"$ref": "#/$defs/n~1o~0de"},
}
LIST = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["next"],
}
SHAPES = {
    "oneOf": [
        {
            **obj("r"),
            "properties": {"kind": {"const": "circle"}, "r": {"type": "integer"}},
            "required": ["kind"],
        },
        {"type": "object", "properties": {"kind": {"enum": ["dot", 1]}}, "required": ["kind"]},
    ]
}
CASES = [
    Case(
        "anything", {}, ("1", "null", '"x"', '{"a": [1, {}]}', "[ ]", "-1.5e+3"), ("", "01", "{a:1}", "[1,]")
    ),
    Case("true", True, ("0", "[]"), ("nul",)),
    Case("type", {"type": "boolean"}, ("true", "false"), ("1", "null", "truefalse")),
    Case("types", {"type": ["null", "integer"]}, ("null", "-12", "0"), ("1.5", '"a"', "-"), ("1.0",)),
    Case("number", {"type": "number"}, ("0", "-0.5", "1e-07", "12E5", "1.25e+22"), ("+1", ".5", "1.", "0x1")),
    Case(
        "enum", {"enum": ["a", 1, None, [1, "b"]]}, ('"a"', "1", "null", '[1, "b"]', '[1,"b"]'), ('"b"', "2")
    ),
    Case(
        "enum and deeper keywords",
        {
            "enum": [{"a": 1}, {"a": "x"}, [1], ["x"]],
            "properties": {"a": {"type": "integer"}},
            "items": {"type": "string"},
        },
        ('{"a": 1}', '["x"]'),
        ('{"a": "x"}', "[1]"),
    ),
    Case("enum and type", {"enum": ["a", 1, True], "type": "integer"}, ("1",), ('"a"', "true")),
    Case(
        "const object",
        {"const": {"é": 1, "b": {}}},
        ('{"é":1,"b":{}}', '{"\\u00e9": 1, "b": {}}'),
        ('{"é":1}',),
    ),
    Case(
        "const unit",
        {"const": '\x00"\\/😀'},
        ('"\\u0000\\"\\\\/😀"', '"\\u0000\\"\\\\/\\ud83d\\uDE00"'),
        ('"/"',),
    ),
    Case(
        "minimum",
        {"type": "integer", "minimum": 3, "maximum": 120},
        ("3", "120", "77"),
        ("2", "121", "-5"),
        ("1e1",),
    ),
    Case(
        "exclusive",
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ("0.5", "0.001"),
        ("0", "1", "0.0", "1.0", "-0.5", "0.00"),
    ),
    Case(
        "below a decimal",
        {"type": "number", "minimum": 0, "exclusiveMaximum": 2.5},
        ("2", "2.0", "2.49", "0", "1.9"),
        ("2.5", "2.50", "2.51", "3"),
    ),
    Case(
        "bounds of both kinds",
        {"type": "integer", "minimum": 3, "exclusiveMinimum": 3, "maximum": 9, "exclusiveMaximum": 9},
        ("4", "8"),
        ("3", "9"),
    ),
    Case(
        "negative",
        {"type": "number", "minimum": -2.5, "maximum": -0.25},
        ("-2.5", "-1", "-0.25", "-0.250"),
        ("-2.51", "-0.2", "0", "2"),
    ),
    Case(
        "huge",
        {"type": "integer", "minimum": 10**30, "maximum": 10**30 + 9},
        (f"{10**30 + 7}",),
        (f"{10**30 - 1}", f"{10**30 + 10}"),
    ),
    Case("multipleOf", {"type": "integer", "multipleOf": 7}, ("0", "7", "-14", "7000000"), ("1", "8")),
    Case(
        "multiple of 300",
        {"type": "integer", "multipleOf": 300},
        ("0", "600", "-3000"),
        ("30", "100", "1000"),
    ),
    Case(
        "multiple of 0.5",
        {"type": "number", "multipleOf": 0.5, "minimum": 1},
        ("1", "1.5", "20.0"),
        ("0.5", "1.2"),
    ),
    Case("int32", {"type": "integer", "format": "int32"}, ("2147483647", "-2147483648"), ("2147483648",)),
    Case(
        "lengths",
        text(minLength=2, maxLength=3),
        ('"ab"', '"😀é日"', '"\\ud83d\\ude00a"', '"\\n\\u0041"'),
        ('"a"', '"abcd"', '"\\ud83d\\ude00"', '"\\ud83da"'),
    ),
    Case("long", text(maxLength=2500), (f'"{"é" * 2500}"', '""', f'"{"x" * 511}"'), (f'"{"x" * 2501}"',)),
    Case("no length", text(maxLength=0), ('""',), ('"a"',)),
    Case(
        "pattern",
        text(pattern="^a+b?$"),
        ('"aab"', '"a"'),
        ('"b"', '"aabb"', '"a\\\\n"'),
        ('"a\\n"', '"\\u0061"'),
    ),
    Case("searched", text(pattern="ab"), ('"ab"', '"xéab\\n"'), ('"a"', '"ba"')),
    Case(
        "pattern and length",
        text(pattern="^[^x]*$", minLength=2, maxLength=3),
        ('"ab"', '"é\\"\\ud83d\\ude00"'),
        ('"a"', '"abx"', '"abcd"'),
    ),
    Case(
        "date",
        text(format="date"),
        ('"2024-02-29"',),
        ('"2023-02-29"', '"1900-02-29"', '"2024-13-01"', '"0000-01-01"'),
    ),
    Case(
        "ipv6", text(format="ipv6"), ('"::"', '"1::"', '"::ffff:1"', '"1:2:3:4:5:6:7:8"'), ('"1:2"', '":::"')
    ),
    Case(
        "uuid",
        text(format="uuid", maxLength=36),
        ('"123E4567-e89b-12d3-a456-426614174000"',),
        ('"123E4567"',),
    ),
    Case(
        "properties",
        obj("a", "b", required=["b"]),
        ('{"b":1}', '{"a": 1, "b": 2}', '{\n  "a": 1,\n  "b": 2\n}'),
        ('{"a":1}', '{"b":"x"}', "{}"),
        ('{"b":1,"a":2}', '{"b":1,"c":2}'),
    ),
    Case("closed", obj("a", additionalProperties=False), ("{}", '{"a":1}'), ('{"b":1}',)),
    Case(
        "open",
        obj("a", additionalProperties={"type": "null"}),
        ('{"a":1,"b":null}', '{"aa":null}', '{"":null}'),
        ('{"a":null}', '{"\\u0061":null}', '{"b":1}'),
        ('{"b":null,"a":1}',),
    ),
    Case(
        "open unicode",
        obj("é", additionalProperties={"type": "null"}),
        ('{"\\u00e9":1}', '{"è":null}'),
        ('{"\\u00e9":null}', '{"é":null}'),
    ),
    Case(
        "required only",
        {"type": "object", "required": ["x"]},
        ('{"x":[]}', '{"x":1,"y":2}'),
        ("{}", '{"y":1}'),
        ('{"x":1,"x":2}', '{"x":1,"y":2,"x":3}'),
    ),
    Case(
        "patternProperties",
        {"patternProperties": {"^s": text(), "i$": {"type": "integer"}}, "type": "object"},
        ('{"s":"a"}', '{"i":1}', "{}"),
        ('{"s":1}', '{"i":"a"}', '{"si":1}', '{"si":"a"}'),
        ('{"x":1}',),
    ),
    Case(
        "key and pattern",
        obj("ab", patternProperties={"^a": {"minimum": 3}}),
        ('{"ab":3}', '{"a":5}', '{"a":"x"}'),
        ('{"ab":2}', '{"ab":"x"}', '{"a":1}'),
    ),
    Case(
        "propertyNames",
        {"type": "object", "propertyNames": {"pattern": "^[a-c]$"}},
        ('{"a":1,"c":2}',),
        ('{"d":1}',),
    ),
    Case(
        "listed names",
        {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "minProperties": 2},
        ('{"x":1,"y":2}',),
        ('{"x":1}', '{"z":1}', '{"x":1,"x":2}'),
    ),
    Case(
        "minProperties",
        obj("a", "b", minProperties=1, maxProperties=1),
        ('{"a":1}', '{"b":1}'),
        ("{}", '{"a":1,"b":2}'),
    ),
    Case(
        "few others",
        obj("a", additionalProperties=True, minProperties=1, maxProperties=2),
        ('{"a":1,"b":2}', '{"b":1,"c":2}'),
        ("{}", '{"a":1,"b":2,"c":3}', '{"b":1,"c":2,"d":3}'),
    ),
    Case(
        "distinct others",
        obj("a", additionalProperties=True, minProperties=2),
        ('{"a":1,"b":2}',),
        ('{"b":1,"b":2}', '{"a":1}'),
        ('{"b":1,"c":2}',),
    ),
    Case(
        "dependentRequired",
        obj("a", "b", "c", dependentRequired={"c": ["a"], "a": ["b"]}),
        ("{}", '{"b":1}', '{"a":1,"b":2}', '{"a":1,"b":2,"c":3}'),
        ('{"a":1}', '{"c":1}', '{"b":1,"c":1}'),
    ),
    Case(
        "items",
        {"type": "array", "items": {"type": "integer"}},
        ("[]", "[ ]", "[1, 2]", "[1,2,3]"),
        ('["a"]', "[1,]"),
    ),
    Case(
        "counted items",
        {"type": "array", "minItems": 2, "maxItems": 3},
        ("[1,2]", "[[], {}, 3]"),
        ("[1]", "[1,2,3,4]"),
    ),
    Case(
        "many items",
        {"type": "array", "items": {"const": 1}, "minItems": 300, "maxItems": 600},
        (json.dumps([1] * 300), json.dumps([1] * 600)),
        (json.dumps([1] * 299), json.dumps([1] * 601)),
    ),
    Case(
        "tuple",
        {"type": "array", "prefixItems": [text(), {"type": "null"}], "items": False, "minItems": 1},
        ('["a"]', '["a", null]'),
        ("[]", "[null]", '["a",null,1]'),
    ),
    Case(
        "long tuple",
        {"type": "array", "prefixItems": [text()], "items": {"type": "null"}},
        ("[]", '["a",null,null]'),
        ('["a","b"]',),
    ),
    Case(
        "unique",
        {"type": "array", "items": {"enum": [1, "a", None]}, "uniqueItems": True, "minItems": 2},
        ('[1,"a"]', "[null,1]", '["a",null,1]'),
        ("[1]", "[1,1]", '[1,1,"a"]', '[1,"a",null,1]'),
    ),
    Case(
        "unique in turn",
        {"type": "array", "items": {"enum": list(range(9))}, "uniqueItems": True, "maxItems": 3},
        ("[]", "[0,4,8]"),
        ("[1,1]", "[0,1,2,3]"),
        ("[4,0]",),
    ),
    Case("unique alone", {"type": "array", "uniqueItems": True, "maxItems": 1}, ("[]", '["x"]'), ("[1,1]",)),
    Case(
        "anyOf", {"anyOf": [{"type": "null"}, {"type": "integer", "maximum": 3}]}, ("null", "3"), ("4", '"a"')
    ),
    Case(
        "anyOf beside",
        {"type": "integer", "anyOf": [{"maximum": 1}, {"minimum": 5}]},
        ("1", "5", "-9"),
        ("3", '"x"'),
    ),
    Case(
        "oneOf",
        SHAPES,
        ('{"kind":"circle"}', '{"kind":"circle","r":2}', '{"kind":1}'),
        ('{"kind":"line"}', '{"r":1}'),
        ('{"kind":"dot","r":1}', '{"r":1,"kind":"circle"}'),
    ),
    Case(
        "oneOf ranges",
        {"type": "integer", "oneOf": [{"maximum": 1}, {"minimum": 2, "maximum": 3}]},
        ("0", "3"),
        ("4",),
    ),
    Case(
        "allOf",
        {"allOf": [obj("a", required=["a"]), {"properties": {"b": {"const": 1}}}]},
        ('{"a":1}', '{"a":1,"b":1}'),
        ("{}", '{"a":1,"b":2}'),
    ),
    Case(
        "allOf same key",
        {"allOf": [obj("a"), {"properties": {"a": {"minimum": 5}}}]},
        ('{"a":5}',),
        ('{"a":4}',),
    ),
    Case("ref with pointer escapes", TREE, ("[]", '[{"v":1}]'), ("[{}]",)),
    Case("recursion", LIST, ('{"next":null}', '{"next":{"next":null}}'), ("{}", '{"next":{}}')),
    Case(
        "beside a ref",
        {"$ref": "#/$defs/i", "minimum": 3, "$defs": {"i": {"type": "integer", "maximum": 4}}},
        ("3", "4"),
        ("2", "5"),
    ),
    Case(
        "own $id",
        {"$id": "https://e.org/s", "$ref": "https://e.org/s#/$defs/i", "$defs": {"i": {"const": 1}}},
        ("1",),
        ("2",),
    ),
    Case("not", {"type": "integer", "not": False}, ("1",), ('"a"',)),
    Case(
        "annotations",
        {"title": "t", "description": "d", "default": 1, "examples": [2], "x-own": 3, "const": 4},
        ("4",),
        ("1", "2"),
    ),
    Case(
        "minimum says nothing of texts", {"minimum": 3, "type": ["string", "integer"]}, ('"a"', "3"), ("2",)
    ),
]
