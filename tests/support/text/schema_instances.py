"""Random candidate instances of JSON schemas, built from the keywords; `jsonschema` judges each.

Only the key order follows the grammar: keys in the schema's order.
"""

from __future__ import annotations

import random
from typing import Any

from tests.support.text.schema_made import FORMATS, PATTERNS, SCALARS, TEXTS

Json = Any
Schema = Any


class InstanceMaker:
    """Draws probable instances of a schema, keys in the schema's order."""

    def __init__(self, rng: random.Random, root: Schema) -> None:
        self.rng = rng
        self.root = root

    def value(self, schema: Schema, depth: int = 0) -> Json:
        if not isinstance(schema, dict):
            return self.rng.choice(SCALARS)
        if "$ref" in schema:
            return self.value(self.target(schema["$ref"]), depth + 1) if depth < 12 else None
        if "allOf" in schema:
            return self.value(self.joined(schema["allOf"]), depth)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.value(self.rng.choice(schema[keyword]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.rng.choice(schema["enum"])
        return self.of_type(schema, depth)

    def of_type(self, schema: Schema, depth: int) -> Json:
        names = schema.get(
            "type", self.rng.choice(["string", "integer", "boolean", "null", "array", "object"])
        )
        name = self.rng.choice(names) if isinstance(names, list) else names
        return getattr(self, name)(schema, depth)

    def target(self, ref: str) -> Schema:
        found = self.root
        for step in ref[2:].split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")]
        return found

    def joined(self, parts: list[Schema]) -> Schema:
        """Merges schemas; correct for parts with different keywords, and for objects."""
        schema: dict[str, Schema] = {}
        for part in parts:
            both = {**schema.get("properties", {}), **part.get("properties", {})}
            needed = schema.get("required", []) + part.get("required", [])
            schema = {**schema, **part}
            schema = {**schema, "properties": both, "required": needed} if both else schema
        return schema

    def null(self, schema: Schema, depth: int) -> None:
        return None

    def boolean(self, schema: Schema, depth: int) -> bool:
        return self.rng.random() < 0.5

    def string(self, schema: Schema, depth: int) -> str:
        if "pattern" in schema:
            return self.rng.choice(PATTERNS[schema["pattern"]])
        if "format" in schema:
            return self.rng.choice(FORMATS.get(schema["format"], TEXTS))
        text = self.rng.choice(TEXTS)
        return (text * 9 + "abcdé")[
            : max(schema.get("minLength", 0), min(len(text), schema.get("maxLength", 99)))
        ]

    def integer(self, schema: Schema, depth: int) -> int:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -50))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 10 ** self.rng.randrange(12)))
        step = int(schema.get("multipleOf", 1)) or 1
        return self.rng.randint(int(min(low, high)), int(max(low, high))) // step * step

    def number(self, schema: Schema, depth: int) -> float:
        if self.rng.random() < 0.4 or "multipleOf" in schema:
            return self.integer(schema, depth)
        low = schema.get("minimum", schema.get("exclusiveMinimum", -50))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
        return round(self.rng.uniform(low, high), self.rng.randrange(6))

    def array(self, schema: Schema, depth: int) -> list[Json]:
        least = schema.get("minItems", 0)
        n = min(least + self.rng.randrange(3), schema.get("maxItems", 99))
        prefix = schema.get("prefixItems", [])[:n]
        rest = [schema.get("items", True)] * (n - len(prefix))
        found = [self.value(item, depth + 1) for item in [*prefix, *rest]]
        if schema.get("uniqueItems"):
            drawn = self.rng.sample(schema["items"]["enum"], min(n, len(schema["items"]["enum"])))
            return sorted(drawn, key=schema["items"]["enum"].index)
        return found

    def object(self, schema: Schema, depth: int) -> dict[str, Json]:
        needed = schema.get("required", [])
        found = {
            key: self.value(item, depth + 1)
            for key, item in schema.get("properties", {}).items()
            if key in needed or self.rng.random() < (0.5 if depth < 5 else 0)
        }
        if "patternProperties" in schema and self.rng.random() < 0.5:
            found |= {"s_1": "text", "n_i": 4}
        if schema.get("additionalProperties") and self.rng.random() < 0.5:
            found["other"] = 7
        return found
