"""The arguments of a call as rules: one object by the tool's schema, or its members one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from camelid.errors import RequestError
from camelid.text.grammar import rules
from camelid.text.grammar.builder import DEAD, NOTHING, Notation, RuleBuilder, in_order, one_of, optional
from camelid.text.grammar.char_classes import Ranges
from camelid.text.grammar.dfa import intersect
from camelid.text.grammar.json_schema import SchemaCompiler, check_size
from camelid.text.grammar.json_text import JSON, PLAIN, base_rules, escapes, meet, spelled
from camelid.text.grammar.json_types import constraints
from camelid.text.grammar.json_types.document import Document, Place, Places
from camelid.text.grammar.json_types.keywords import ANNOTATIONS, check_keywords
from camelid.text.grammar.json_types.objects import texts_of
from camelid.text.grammar.rules import Chars, Choice, Expr, Ref, Repeat, Rules, Text, complement
from camelid.text.toolcalls.markers import Markers, free_of

Schema: TypeAlias = Mapping[str, Any]
SHARED = frozenset(base_rules())  # rules that every schema compiles to the same
# Keywords of an object whose members are written one by one; the others describe the object as a whole.
APART = frozenset({"type", "properties", "required", "additionalProperties"}) | ANNOTATIONS
BRACKET: Ranges = ((0x3C, 0x3C),)  # <
NO_BRACKET = complement(BRACKET)


def without_bracket(ranges: Ranges) -> Expr:
    """One character of a string inside a tag: JSON, with < as an escape."""
    raw = meet(ranges, NO_BRACKET)
    return one_of(*([spelled(raw)] if raw else []), *([Text("\\u003c")] if raw != ranges else []))


def raw_character(ranges: Ranges) -> Expr:
    """One character of a string without escapes, which has no <: a marker begins with it."""
    raw = meet(ranges, NO_BRACKET)
    return Chars(raw) if raw else DEAD


# No value in a tag may contain the tag's end, so < is written as an escape.
IN_TAGS = replace(JSON, plain=meet(PLAIN, NO_BRACKET), spelled=without_bracket)
# Python knows no \/.
PYTHON = replace(JSON, escape=escapes('"\\bfnrt'), words=("True", "False", "None"))


def bare_notation(markers: Markers, quote: str, closing: str) -> Notation:
    """Objects with bare keys and strings without escapes between quotes that are markers."""
    return Notation(
        markers.expr(quote), raw_character, NO_BRACKET, DEAD,
        characters=free_of((quote, closing)), has_bare_keys=True,
    )  # fmt: skip


def object_schema(name: str, parameters: object) -> Schema:
    """The schema of a tool's arguments. Raises RequestError unless it describes an object."""
    if parameters is None:
        return {"type": "object"}
    schema = {"type": "object", **cast(Schema, parameters)} if isinstance(parameters, Mapping) else {}
    if schema.get("type") != "object":
        raise RequestError(
            f"tool {name!r}: its parameters are {parameters!r:.80}, expected the schema of an object",
            field="tools",
        )
    check_size(schema)
    return schema


def properties_of(schema: Schema) -> Mapping[str, Schema]:
    """The declared arguments and their schemas."""
    return cast("Mapping[str, Schema]", schema.get("properties") or {})


def object_of(builder: RuleBuilder, schema: Schema, notation: Notation) -> Expr:
    """The arguments as one object."""
    return values_of(builder, Document(schema), (Place("", schema),), notation)


def values_of(builder: RuleBuilder, document: Document, places: Places, notation: Notation) -> Expr:
    """The values that satisfy some places of a schema; their rules are added to the builder's."""
    return merged(builder, SchemaCompiler(document, False, notation).compile(places))


def merged(builder: RuleBuilder, grammar: Rules) -> Expr:
    """Adds a grammar's rules under new names and returns the reference to its root."""
    names = {name: name if name in SHARED else builder.fresh("value") for name in grammar.rules}
    for name, expr in grammar.rules.items():
        if name not in SHARED or name not in builder.rules:
            builder.rules[names[name]] = renamed(expr, names)
    return Ref(names[grammar.root])


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with its references renamed."""
    match expr:
        case Ref(name):
            return Ref(names[name])
        case rules.Sequence(parts) | Choice(parts):
            return type(expr)(tuple(renamed(part, names) for part in parts))
        case Repeat(part, least, most):
            return Repeat(renamed(part, names), least, most)
        case _:
            return expr


@dataclass(frozen=True, slots=True)
class Member:
    """An argument that is written on its own."""

    key: str
    is_required: bool
    document: Document
    places: Places

    def value(self, builder: RuleBuilder, notation: Notation) -> Expr:
        """The argument's values."""
        return values_of(builder, self.document, self.places, notation)

    def raw(self, builder: RuleBuilder, closing: str) -> Expr:
        """The argument's values, which are strings, without quotes and without the text that ends them."""
        self.value(builder, IN_TAGS)  # checks the whole schema
        if limits := self._limits():
            return builder.counted(Chars(NO_BRACKET), *limits)
        texts, free = texts_of(self.document, self.places), free_of((closing,))
        return builder.automaton(intersect(texts, free) if texts else free, Chars)

    def _limits(self) -> tuple[int, int | None] | None:
        """The bounds of a string that has bounds only: counting is cheap, unlike counting past a marker."""
        alternatives = self.document.alternatives(self.places)
        (places, *more) = alternatives or [()]
        if more or constraints.enumerated(places) is not None or constraints.shape_dfa(places):
            return None
        least, most = constraints.size(places, "Length")
        return (least, most) if least or most is not None else None


def members_of(schema: Schema, writer: str) -> list[Member]:
    """The declared arguments in order, then further required ones.

    Raises RequestError, with `writer` in its message, for a keyword that describes the object as a whole.
    """
    check_keywords(schema, "")
    whole = [keyword for keyword in schema if keyword not in APART and not keyword.startswith("x-")]
    if whole:
        raise RequestError(
            f"{whole[0]!r} beside the properties cannot be enforced, since {writer} writes each argument "
            "apart; describe each property by itself",
            field="tools",
        )
    document, root = Document(schema), Place("", schema)
    required: Sequence[str] = schema.get("required") or ()
    keys = dict.fromkeys((*properties_of(schema), *required))
    return [Member(key, key in required, document, constraints.property_places((root,), key)) for key in keys]


def other_member(schema: Schema) -> Member | None:
    """An argument of any name, for a schema that declares none and allows others."""
    if properties_of(schema) or schema.get("additionalProperties") is False:
        return None
    places = constraints.property_places((Place("", schema),), "")
    return Member("", False, Document(schema), places)


def row_of(builder: RuleBuilder, members: Sequence[tuple[Expr, bool]], comma: Expr) -> Expr:
    """Members in order, with commas between those that are there; True marks a required one."""

    def write(state: tuple[int, bool], ref: Callable[[tuple[int, bool]], Ref]) -> Expr:
        index, has_any = state
        if index == len(members):
            return NOTHING
        part, is_required = members[index]
        taken = in_order(comma if has_any else NOTHING, part, ref((index + 1, True)))
        return taken if is_required else one_of(taken, ref((index + 1, has_any)))

    return builder.machine("members", (0, False), write)


def any_number(part: Expr, comma: Expr) -> Expr:
    """Any number of parts with commas between them."""
    return optional(in_order(part, Repeat(in_order(comma, part))))


NAME_START = Chars(((0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
NAME_REST = Chars(((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
ANY_KEY = in_order(NAME_START, Repeat(NAME_REST, 0, 40))  # of an argument that no schema names
