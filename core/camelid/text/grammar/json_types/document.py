"""A schema as places: references resolved, and every combination of subschemas as an alternative.

A place is one schema object, identified by its JSON pointer. An instance must satisfy a set of places at once
(allOf, a $ref beside other keywords, a property described by several schemas); anyOf and oneOf make
alternatives of such sets. Schemas are never merged: each keyword is read from all places of a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from camelid.text.grammar.json_types.keywords import ASSERTIONS, Schema, check_keywords, is_schema, refuse

MAX_ALTERNATIVES = 256
MAX_CHAIN = 64  # references and combinators between two objects or arrays


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A schema and its JSON pointer."""

    pointer: str
    schema: Schema

    def get(self, keyword: str) -> Any:
        """The keyword's value; None if it is absent."""
        return self.schema.get(keyword) if isinstance(self.schema, Mapping) else None

    def child(self, *steps: str | int) -> Place:
        """The subschema at a keyword and then a key or index."""
        schema: Any = self.schema
        for step in steps:
            schema = schema[step]
        return Place(self.pointer + "".join(f"/{escaped(str(step))}" for step in steps), schema)


Places: TypeAlias = tuple[Place, ...]
Alternatives: TypeAlias = list[Places]


def escaped(step: str) -> str:
    """A key as a step of a JSON pointer (RFC 6901)."""
    return step.replace("~", "~0").replace("/", "~1")


def together(places: Iterable[Place]) -> Places:
    """The places without duplicates."""
    return tuple({place.pointer: place for place in places}.values())


@dataclass(slots=True)
class Document:
    """The whole schema. Methods raise RequestError with keyword and pointer."""

    root: Schema
    known: dict[tuple[str, ...], Alternatives] = field(default_factory=dict[tuple[str, ...], Alternatives])
    branching: dict[str, Place] = field(default_factory=dict[str, Place])  # the places with a oneOf

    def alternatives(self, places: Iterable[Place]) -> Alternatives:
        """Sets of places, of which an instance satisfies at least one.

        Places without assertions are omitted.
        """
        distinct = together(places)
        key = tuple(place.pointer for place in distinct)
        if key not in self.known:
            self.known[key] = self.combined([self.expanded(place, ()) for place in distinct], distinct)
        return self.known[key]

    def combined(self, groups: Iterable[Alternatives], where: Places) -> Alternatives:
        """The product of the groups: one alternative of each group."""
        found: Alternatives = [()]
        for group in groups:
            if len(found) * len(group) > MAX_ALTERNATIVES:
                pointer = where[0].pointer if where else ""
                refuse(
                    "anyOf", pointer, f"more than {MAX_ALTERNATIVES} alternatives in combination; use fewer"
                )
            found = [together((*left, *right)) for left, right in product(found, group)]
        return found

    def expanded(self, place: Place, trail: tuple[str, ...]) -> Alternatives:
        """The alternatives of one place; `trail` is the pointers of the places that led here."""
        if isinstance(place.schema, bool):
            return [()] if place.schema else []
        check_keywords(place.schema, place.pointer)
        if place.pointer in trail or len(trail) >= MAX_CHAIN:
            refuse(
                "$ref",
                place.pointer,
                f"a cycle, or more than {MAX_CHAIN} references and combinators in a row",
            )
        deeper = (*trail, place.pointer)
        own = [(place,)] if place.schema.keys() & ASSERTIONS.keys() else [()]
        groups = [own, *self.applied(place, deeper)]
        return self.combined(groups, (place,))

    def applied(self, place: Place, trail: tuple[str, ...]) -> Iterator[Alternatives]:
        """The alternatives of each combinator of a place."""
        if (ref := place.get("$ref")) is not None:
            yield self.expanded(self.target(ref, place), trail)
        for i in range(len(place.get("allOf") or ())):
            yield self.expanded(place.child("allOf", i), trail)
        for keyword in ("anyOf", "oneOf"):
            if n := len(place.get(keyword) or ()):
                if keyword == "oneOf":
                    self.branching[place.pointer] = place
                branches = [self.expanded(place.child(keyword, i), trail) for i in range(n)]
                yield self.any_branch(branches, place)
        if (denied := place.get("not")) is not None:
            if denied not in (True, False, {}):
                refuse(
                    "not", place.pointer, "only true, false and {} are supported; describe the allowed values"
                )
            yield [] if denied in (True, {}) else [()]

    def any_branch(self, branches: list[Alternatives], place: Place) -> Alternatives:
        found = [alternative for branch in branches for alternative in branch]
        if len(found) > MAX_ALTERNATIVES:
            refuse("anyOf", place.pointer, f"more than {MAX_ALTERNATIVES} alternatives; use fewer")
        return found

    def target(self, ref: str, place: Place) -> Place:
        """The place that a reference points to. RequestError for a reference outside the document."""
        own_id = self.root.get("$id") if isinstance(self.root, Mapping) else None
        pointer = ref.removeprefix(own_id.removesuffix("#")) if isinstance(own_id, str) else ref
        if not pointer.startswith("#"):
            refuse(
                "$ref", place.pointer, f"{ref!r:.80} is outside the schema and not fetched; copy it to $defs"
            )
        steps = unquote(pointer[1:]).split("/")
        if steps[0]:
            refuse("$ref", place.pointer, f"{ref!r:.80} is not a JSON pointer, such as #/$defs/name")
        value: object = self.root
        for step in (step.replace("~1", "/").replace("~0", "~") for step in steps[1:]):
            value = below(value, step)
        if not is_schema(value):
            refuse("$ref", place.pointer, f"{ref!r:.80} points to no schema of this document")
        path = "".join(f"/{escaped(step.replace('~1', '/').replace('~0', '~'))}" for step in steps[1:])
        return Place(path, cast(Schema, value))


def below(value: object, step: str) -> object:
    """The member of an object or list at a step of a pointer; None if there is none."""
    if isinstance(value, Mapping):
        return cast(Mapping[str, object], value).get(step)
    if isinstance(value, list) and step.isascii() and step.isdecimal() and len(step) < 9:
        items = cast(list[object], value)
        return items[int(step)] if int(step) < len(items) else None
    return None
