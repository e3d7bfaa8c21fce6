"""Random JSON schemas over every supported keyword."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = Any

KEYS = [
    "id",
    "name",
    "a",
    "b",
    "c",
    "kind",
    "tags",
    "é",
    "x-y",
    "a key",
    "a/b",
    "m~n",
    'q"t',
    "日本",
    "😀",
]
# Patterns, each with matching texts.
PATTERNS = {
    "^[a-z]+$": ["a", "abc", "zzzz"],
    "^[A-Z]{2}-[0-9]{3}$": ["AB-123", "ZZ-000"],
    "ab|cd": ["ab", "xxcd", "abcd é"],
    "^(yes|no|maybe)$": ["yes", "no", "maybe"],
    r"^\d{1,3}(\.\d{1,2})?$": ["1", "999.99", "12.5"],
    r"^[^\s@]+@[^\s@]+$": ["a@b", "é@😀"],
    r"^\+?[0-9 ()-]{3,}$": ["+1 (2)", "555"],
    "": ["", "anything", "\n"],
    "^.$": ["x", "é", "😀", '"', "\\"],
    r"\w\W": ["a ", "b-c", "_!"],
    "^(a|ab)(c|bcd)$": ["ac", "abc", "abcd", "abbcd"],
    "[\"\\\\/]": ['"', "\\", "a/b"],
    "^s_": ["s_", "s_tail 😀"],
    "_i$": ["_i", "head_i"],
}  # fmt: skip
FORMATS = {
    "date": ["2024-02-29", "1999-12-31"],
    "time": ["23:59:59Z", "00:00:00.25+01:00"],
    "date-time": ["2024-02-29T12:00:00Z"],
    "duration": ["P1Y2M", "PT5M", "P3W"],
    "email": ["a.b@example.org"],
    "hostname": ["example.org", "a-b.c"],
    "ipv4": ["127.0.0.1", "255.255.255.255"],
    "ipv6": ["::1", "fe80::1:2", "1:2:3:4:5:6:7:8"],
    "uri": ["https://example.org/a?b=c#d"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "json-pointer": ["", "/a/b~1c"],
}
TEXTS = [
    "",
    "a",
    "abc",
    "hello world",
    "é",
    "日本語",
    "😀😀",
    'quo"te',
    "back\\slash",
    "tab\tnew\n",
    "\u0001",
    "~/",
]
SCALARS: list[Schema] = [*TEXTS[:8], 0, 1, -1, 2.5, 1e22, 10**15, True, False, None]
ODD: list[dict[str, Schema]] = [
    {"type": "array", "contains": {"const": 1}}, {"not": {"type": "string"}},
    {"if": {"const": 1}, "then": True}, {"type": "array", "uniqueItems": True},
    {"type": "number", "multipleOf": 0.1}, {"oneOf": [{"type": "string"}, {"maxLength": 3}]},
    {"type": "string", "format": "colour"}, {"type": "string", "pattern": "(?=a)b"},
    {"$ref": "https://example.org/schema.json"}, {"type": "object", "unevaluatedProperties": False},
]  # fmt: skip


class SchemaMaker:
    """Draws schemas; `odd` is the share of unsupported schemas."""

    def __init__(self, rng: random.Random, odd: float = 0.015) -> None:
        self.rng = rng
        self.odd = odd
        self.defs: dict[str, Schema] = {}

    def document(self) -> Schema:
        schema = self.schema(0)
        if isinstance(schema, dict):
            if self.rng.random() < 0.3:
                schema = {"title": "a schema", "description": "made at random", **schema}
            if self.defs:
                schema = {**schema, "$defs": self.defs}
        return schema

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def schema(self, depth: int) -> Schema:
        if self.chance(self.odd):
            return self.rng.choice(ODD)
        if depth == 0 and self.chance(0.6):
            return self.object(0)
        makers = [self.string, self.string, self.number, self.integer, self.enum, self.const, self.plain]
        if depth < 3:
            makers += [self.object, self.object, self.array, self.array, self.any_of, self.one_of]
            makers += [self.all_of, self.reference, self.tree, self.several_types]
        return self.rng.choice(makers)(depth)

    def plain(self, depth: int) -> Schema:
        return self.rng.choice(
            [{"type": "boolean"}, {"type": "null"}, {"type": "string"}, {"type": "integer"}, {}]
        )

    def string(self, depth: int) -> Schema:
        schema: dict[str, Schema] = {"type": "string"}
        if self.chance(0.3):
            schema["pattern"] = self.rng.choice(list(PATTERNS))
        elif self.chance(0.3):
            schema["format"] = self.rng.choice(list(FORMATS))
        if self.chance(0.4):
            schema["minLength"] = self.rng.randrange(4)
        if self.chance(0.4):
            schema["maxLength"] = schema.get("minLength", 0) + self.rng.choice([0, 1, 3, 8, 300, 5000])
            if schema.get("pattern") and schema["maxLength"] > 100:
                del schema["maxLength"]
        return schema

    def bounded(self, kind: str, draw: Callable[[], float]) -> Schema:
        schema: dict[str, Schema] = {"type": kind}
        low = draw()
        if self.chance(0.5):
            schema[self.rng.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.5):
            schema[self.rng.choice(["maximum", "exclusiveMaximum"])] = low + abs(draw()) + 1
        return schema

    def integer(self, depth: int) -> Schema:
        sizes = [5, 5, 100, 10**6, 10**18]
        schema = self.bounded(
            "integer", lambda: self.rng.randint(-1, 1) * self.rng.randrange(self.rng.choice(sizes))
        )
        if self.chance(0.2):
            schema["multipleOf"] = self.rng.choice([1, 2, 3, 5, 7, 10, 25, 100, 1000, 2.5, 4.0])
        if self.chance(0.05):
            schema["format"] = self.rng.choice(["int32", "int64"])
        return schema

    def number(self, depth: int) -> Schema:
        schema = self.bounded(
            "number", lambda: round(self.rng.uniform(-1, 1) * 10 ** self.rng.randrange(5), 3)
        )
        if self.chance(0.1):
            schema["multipleOf"] = self.rng.choice([1, 2, 10, 0.5, 0.25, 1.5])
        return schema

    def enum(self, depth: int) -> Schema:
        values = [*SCALARS, [1, "a"], {"k": [True], "é": {}}, []]
        schema: dict[str, Schema] = {"enum": self.rng.sample(values, self.rng.randint(1, 5))}
        if self.chance(0.2):
            schema["type"] = ["string", "number", "null"]
        return schema

    def const(self, depth: int) -> Schema:
        return {"const": self.rng.choice([*SCALARS, {"a": 1, "b": [2, {}]}])}

    def several_types(self, depth: int) -> Schema:
        names = self.rng.sample(["string", "integer", "number", "null", "boolean", "array", "object"], 2)
        extra = self.rng.choice([self.string, self.integer, self.array, self.object])(depth + 1)
        return {**extra, "type": names}

    def object(self, depth: int) -> Schema:
        keys = self.rng.sample(KEYS, self.rng.randrange(6))
        schema: dict[str, Schema] = {"type": "object"}
        if keys or self.chance(0.5):
            schema["properties"] = {key: self.schema(depth + 1) for key in keys}
        if keys and self.chance(0.7):
            schema["required"] = self.rng.sample(keys, self.rng.randint(1, len(keys)))
        if self.chance(0.4):
            schema["additionalProperties"] = self.rng.choice([False, False, True, {"type": "integer"}])
        self.refine_object(schema, keys)
        return schema

    def refine_object(self, schema: dict[str, Schema], keys: list[str]) -> None:
        if self.chance(0.1):
            schema["patternProperties"] = {"^s_": {"type": "string"}, "_i$": {"type": "integer"}}
        if self.chance(0.1):
            schema["propertyNames"] = self.rng.choice(
                [{"maxLength": 20}, {"pattern": "^[a-zé]"}, {"enum": KEYS[:6]}]
            )
            schema.pop("required", None)
        if len(keys) > 1 and self.chance(0.15):
            first, *others = self.rng.sample(keys, len(keys))
            schema["dependentRequired"] = {first: others[:2]}
        if self.chance(0.1):
            schema["maxProperties"] = len(schema.get("required", ())) + self.rng.randrange(4)
        if keys and self.chance(0.1):
            schema["minProperties"] = self.rng.randint(0, len(keys))

    def array(self, depth: int) -> Schema:
        schema: dict[str, Schema] = {"type": "array"}
        if self.chance(0.8):
            schema["items"] = self.schema(depth + 1)
        if self.chance(0.25):
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(self.rng.randint(1, 3))]
            schema["items"] = self.rng.choice([False, True, {"type": "integer"}])
        if self.chance(0.4):
            schema["minItems"] = self.rng.randrange(4)
        if self.chance(0.4):
            schema["maxItems"] = schema.get("minItems", 0) + self.rng.choice([0, 1, 2, 1000])
        if self.chance(0.15):
            schema.pop("prefixItems", None)
            schema["items"] = {"enum": self.rng.sample(SCALARS, self.rng.choice([2, 3, 9]))}
            schema["uniqueItems"] = True
            schema["minItems"] = self.rng.randrange(3)
            schema.pop("maxItems", None)
        return schema

    def any_of(self, depth: int) -> Schema:
        return {"anyOf": [self.schema(depth + 1) for _ in range(self.rng.randint(1, 3))]}

    def one_of(self, depth: int) -> Schema:
        if self.chance(0.4):
            return {
                "oneOf": [
                    self.string(3),
                    {"type": "null"},
                    {"type": "array", "items": self.schema(depth + 1)},
                ]
            }
        kinds = self.rng.sample(["circle", "square", 3, None], self.rng.randint(2, 3))
        branches = []
        for kind in kinds:
            branch = self.object(depth + 1)
            branch.pop("propertyNames", None)
            branch["properties"] = {"kind": {"const": kind}, "v": self.schema(depth + 2)}
            branch["required"] = ["kind"]
            branches.append(branch)
        return {"oneOf": branches}

    def all_of(self, depth: int) -> Schema:
        if self.chance(0.5):
            return {"allOf": [self.bounded("number", lambda: self.rng.randrange(9)), self.integer(depth)]}
        parts = [self.object(depth + 1) for _ in range(2)]
        for part in parts:
            for keyword in ("additionalProperties", "propertyNames", "maxProperties", "patternProperties"):
                part.pop(keyword, None)
        return {"allOf": parts}

    def reference(self, depth: int) -> Schema:
        name = self.rng.choice(["one", "two~", "th/ree"])
        if name not in self.defs:
            self.defs[name] = {}  # lets a schema refer to itself
            self.defs[name] = self.schema(depth + 1)
        schema: dict[str, Schema] = {"$ref": "#/$defs/" + name.replace("~", "~0").replace("/", "~1")}
        if self.chance(0.3):
            schema["description"] = "beside a reference"
        return schema

    def tree(self, depth: int) -> Schema:
        following = {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}
        properties = {"v": {"type": "integer"}, "next": following}
        self.defs["tree"] = {"type": "object", "properties": properties, "required": ["v", "next"]}
        return {"$ref": "#/$defs/tree"}
