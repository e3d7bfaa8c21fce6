"""JSON schemas (draft 2020-12) to rules: every text that the rules match validates.

Some texts that validate do not match. Declared keys come in the schema's order, other keys after them. An
object that declares properties and no additionalProperties has no other keys, as in other engines
(`open_objects` follows the specification). Numbers and white space are spelled as in `json_text` and
`numbers`. Formats and regex classes have their narrow reading (`formats`, `char_classes`). An unsupported
keyword raises an error with its name and pointer; no keyword is ignored.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

from camelid.errors import RequestError
from camelid.text.grammar.builder import DEAD, Notation, RuleBuilder, one_of, pruned
from camelid.text.grammar.json_text import JSON, base_rules, literal
from camelid.text.grammar.json_types import constraints
from camelid.text.grammar.json_types.arrays import array
from camelid.text.grammar.json_types.checks import allows
from camelid.text.grammar.json_types.document import Document, Place, Places
from camelid.text.grammar.json_types.keywords import FRACTION, INTEGER, Schema, is_schema
from camelid.text.grammar.json_types.objects import object_expr
from camelid.text.grammar.json_types.overlap import check_branches
from camelid.text.grammar.json_types.scalars import number, string
from camelid.text.grammar.rules import Chars, Expr, Ref, Rules

MAX_BYTES = 1 << 20
MAX_VALUES = 100_000  # brackets and scalars of the schema
MAX_DEPTH = 100  # of nested brackets
MAX_INTEGER_BITS = 1_200  # 360 digits


def rules_of_schema(schema: Schema | str, *, open_objects: bool = False) -> Rules:
    """The rules of a schema, given as a value or as JSON text.

    `open_objects`: an object that declares properties and no additionalProperties may have other keys, as the
    specification defines. Raises RequestError with `keyword` and `pointer` for an unsupported keyword.
    """
    value = parsed(schema) if isinstance(schema, str) else schema
    found = dict(cast(Mapping[str, Any], value)) if isinstance(value, Mapping) else value
    check_size(found)
    if not is_schema(found):
        fail(f"an object, true or false is expected, found {found!r:.60}")
    root = cast(Schema, found)
    return SchemaCompiler(Document(root), open_objects).compile((Place("", root),))


def fail(what: str) -> NoReturn:
    raise RequestError(f"json_schema: {what}", field="json_schema")


def parsed(text: str) -> object:
    """Parses a JSON text; a duplicate key is an error."""
    if len(text) > MAX_BYTES:
        fail(f"the schema has {len(text)} characters; at most {MAX_BYTES} are allowed")
    try:
        return json.loads(text, object_pairs_hook=distinct)
    except RecursionError:
        fail(f"brackets nest deeper than {MAX_DEPTH}")
    except ValueError as error:
        fail(f"not valid JSON: {error!s:.100}")


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        fail(f"duplicate key among {', '.join(sorted(key for key, _ in pairs))!s:.80}")
    return found


def check_size(root: object) -> None:
    """Checks number, depth and type of all values, without recursion."""
    level: list[object] = [root]
    n_values = 0
    for _ in range(MAX_DEPTH):
        n_values += len(level)
        if n_values > MAX_VALUES:
            fail(f"the schema has more than {MAX_VALUES} values")
        level = [item for value in level for item in members(value)]
        if not level:
            return
    fail(f"brackets nest deeper than {MAX_DEPTH}")


def members(value: object) -> Iterable[object]:
    """The values inside a JSON value. RequestError for a value that JSON does not have."""
    if isinstance(value, dict):
        keys = cast(dict[object, object], value)
        for key in keys:
            check_text(key)
        return keys.values()
    if isinstance(value, list):
        return cast(list[object], value)
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_BITS:
            fail(f"an integer has {value.bit_length()} bits; at most {MAX_INTEGER_BITS} are allowed")
    elif value is not None and not (isinstance(value, float) and math.isfinite(value)):
        fail(f"{value!r:.60} is not a JSON value")
    return ()


def check_text(text: object) -> None:
    if not isinstance(text, str):
        fail(f"a key must be a string, found {text!r:.60}")
    if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        fail(f"{text!r:.60} has a lone surrogate, which is not a character")


class SchemaCompiler:
    """Compiles sets of places to rules, each set once."""

    def __init__(self, document: Document, open_objects: bool, notation: Notation = JSON) -> None:
        self.document = document
        self.open_objects = open_objects
        self.builder = RuleBuilder(base_rules(notation), notation=notation)
        if notation.characters:
            self.builder.rules["characters"] = self.builder.automaton(notation.characters, Chars)
        self.names: dict[tuple[str, ...], str] = {(): "value"}
        self.queue: deque[tuple[str, Places]] = deque()

    def compile(self, places: Places) -> Rules:
        """The rules of the values that satisfy all places."""
        self.builder.rules["root"] = self.node(places)
        while self.queue:
            name, places = self.queue.popleft()
            self.builder.rules[name] = self.alternative(places)
        for place in self.document.branching.values():
            check_branches(self.document, place, self.open_objects)
        rules = pruned(self.builder.rules, "root")
        return rules or fail(
            "no value can satisfy this schema: its bounds or combinations exclude each other"
        )

    def node(self, places: Places) -> Expr:
        """A value that satisfies all places."""
        refs = [Ref(self.name(alternative)) for alternative in self.document.alternatives(places)]
        return one_of(*refs) if refs else DEAD

    def name(self, places: Places) -> str:
        key = tuple(sorted(place.pointer for place in places))
        if key not in self.names:
            self.names[key] = self.builder.fresh("node")
            self.queue.append((self.names[key], places))
        return self.names[key]

    def alternative(self, places: Places) -> Expr:
        values = constraints.enumerated(places)
        if values is not None:
            fit = (value for value in values if allows(self.document, places, value))
            return one_of(*(literal(value, self.builder.notation) for value in fit))
        types = constraints.types_of(places)
        return one_of(*(self.of_type(kind, places) for kind in sorted(types - self.implied(types))))

    def implied(self, types: frozenset[str]) -> set[str]:
        """Types covered by another type's rule: numbers with a fraction match integers too."""
        return {INTEGER} if FRACTION in types else set()

    def of_type(self, kind: str, places: Places) -> Expr:
        match kind:
            case "object":
                return object_expr(self.document, self.builder, self.node, places, self.open_objects)
            case "array":
                return array(self.document, self.builder, self.node, places)
            case "string":
                return string(self.builder, places)
            case "boolean" | "null":
                return Ref(kind)
            case _:
                return number(self.builder, places, kind == INTEGER)
