"""Objects as rules: declared keys in the schema's order, then any number of other keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import TypeAlias

from camelid.errors import RequestError
from camelid.text.grammar.builder import DEAD, RuleBuilder, in_order, one_of
from camelid.text.grammar.dfa import Dfa, either, intersect, without, words
from camelid.text.grammar.json_text import COLON, COMMA, WS, key_literal
from camelid.text.grammar.json_types import constraints
from camelid.text.grammar.json_types.checks import allows, finite_values
from camelid.text.grammar.json_types.document import Document, Place, Places, together
from camelid.text.grammar.json_types.keywords import refuse
from camelid.text.grammar.json_types.scalars import quoted
from camelid.text.grammar.rules import Expr, Ref

MAX_PATTERNS = 4  # a key may match any subset of them, and each subset is a case
KEYWORDS = (
    "properties", "patternProperties", "additionalProperties", "propertyNames", "required",
    "dependentRequired", "minProperties", "maxProperties",
)  # fmt: skip
State: TypeAlias = tuple[int, int, frozenset[str], frozenset[str]]
NodeOf: TypeAlias = Callable[[Places], Expr]


def is_closed(places: Places, open_objects: bool) -> bool:
    """True if an object without additionalProperties allows only the keys that it declares."""
    has_additional = any(place.get("additionalProperties") is not None for place in places)
    has_declared = any(place.get("properties") or place.get("patternProperties") for place in places)
    return has_declared and not has_additional and not open_objects


def texts_of(document: Document, places: Places) -> Dfa | None:
    """The strings that satisfy all places; None: any string."""
    found: Dfa = words(())
    for alternative in document.alternatives(places):
        if "string" not in constraints.types_of(alternative):
            continue
        values = constraints.enumerated(alternative)
        if values is None:
            dfa = constraints.text_dfa(alternative) if alternative else None
        else:
            dfa = words(v for v in values if isinstance(v, str) and allows(document, alternative, v))
        if dfa is None:
            return None
        found = either(found, dfa)
    return found


@dataclass(frozen=True, slots=True)
class ObjectWriter:
    """Writes the rules of the objects of one set of places."""

    document: Document
    builder: RuleBuilder
    node: NodeOf
    places: Places
    open_objects: bool

    def write(self) -> Expr:
        if not any(place.get(keyword) is not None for place in self.places for keyword in KEYWORDS):
            return Ref("object")
        listed = self.listed_names()
        keys = self.keys(listed)
        others = [] if listed is not None else [self.other(*group) for group in self.groups(keys)]
        members = {key: self.builder.add("member", self.member(key)) for key in keys if self.is_name(key)}
        rest = ObjectStates(
            self, keys, {key: i for i, key in enumerate(keys)}, members, one_of(*others) if others else None,
            frozenset(constraints.required(self.places)), *constraints.dependents(self.places),
        )  # fmt: skip
        return in_order("{", self.builder.machine("object", rest.start, rest.write))

    def member(self, key: str) -> Expr:
        return in_order(key_literal(key, self.builder.notation), COLON, self.node(self.value(key)))

    def name_places(self) -> Places:
        return tuple(
            place.child("propertyNames")
            for place, _ in constraints.with_keyword(self.places, "propertyNames")
        )

    def is_name(self, key: str) -> bool:
        names = self.name_places()
        return not names or allows(self.document, names, key)

    def listed_names(self) -> list[str] | None:
        """The only possible keys, if propertyNames lists them; else None."""
        names = self.name_places()
        values = finite_values(self.document, names) if names else None
        return None if values is None else [value for value in values if isinstance(value, str)]

    def keys(self, listed: list[str] | None) -> list[str]:
        """The declared keys in order, then keys of required, dependentRequired and propertyNames."""
        declared = chain.from_iterable(
            keys for _, keys in constraints.with_keyword(self.places, "properties")
        )
        found = dict.fromkeys((*declared, *constraints.required(self.places)))
        for _, dependents in constraints.with_keyword(self.places, "dependentRequired"):
            found.update(dict.fromkeys(chain(dependents, *dependents.values())))
        if listed is not None and not is_closed(self.places, self.open_objects):
            found.update(dict.fromkeys(listed))
        return list(found)

    def value(self, key: str) -> Places:
        return together(constraints.property_places(self.places, key))

    def groups(self, keys: list[str]) -> Iterator[tuple[Dfa | None, Places]]:
        """Groups of undeclared keys by matched patterns, with the places that their values satisfy."""
        patterns = list(dict.fromkeys(chain.from_iterable(map(constraints.patterns_of, self.places))))
        if len(patterns) > MAX_PATTERNS:
            refuse("patternProperties", self.places[0].pointer, f"more than {MAX_PATTERNS} patterns")
        closed = is_closed(self.places, self.open_objects)
        base = self.other_names(keys)
        for n in range(int(closed), len(patterns) + 1):
            for chosen in combinations(patterns, n):
                names = self.matching(base, chosen, set(patterns) - set(chosen))
                if names is None or not names.is_empty:
                    yield names, self.values_of(chosen)

    def other_names(self, keys: list[str]) -> Dfa | None:
        """The keys that are not declared and that propertyNames allows; None: any key."""
        found = without(words(keys)) if keys else None
        for place in self.name_places():
            allowed = texts_of(self.document, (place,))
            found = intersect(found, allowed) if found and allowed else found or allowed
        return found

    def matching(self, base: Dfa | None, chosen: tuple[str, ...], others: set[str]) -> Dfa | None:
        """The keys that match every chosen pattern and, in the wide reading, none of the others."""
        place = self.places[0]
        parts = [constraints.placed_pattern(place, "patternProperties", pattern) for pattern in chosen]
        parts += [
            without(constraints.placed_pattern(place, "patternProperties", pattern, True))
            for pattern in sorted(others)
        ]
        for part in parts:
            base = intersect(base, part) if base else part
        return base

    def values_of(self, chosen: tuple[str, ...]) -> Places:
        found: list[Place] = []
        for place in self.places:
            own = [pattern for pattern in chosen if pattern in constraints.patterns_of(place)]
            matched = [place.child("patternProperties", pattern) for pattern in own]
            if not matched and place.get("additionalProperties") is not None:
                matched = [place.child("additionalProperties")]
            found += matched
        return together(found)

    def other(self, names: Dfa | None, values: Places) -> Expr:
        key = quoted(self.builder, names) if names else Ref("string")
        return self.builder.add("other", in_order(key, COLON, self.node(values)))


@dataclass(frozen=True, slots=True)
class ObjectStates:
    """The states between the declared keys.

    A state is the index of the next key, the number of members (counted only as far as the limits need it),
    the later keys that dependentRequired demands, and the later keys that a missing key excludes.
    """

    writer: ObjectWriter
    keys: list[str]
    index_of: dict[str, int]
    members: dict[str, Ref]
    other: Expr | None
    required: frozenset[str]
    dependents: dict[str, set[str]]
    demanders: dict[str, set[str]]

    @property
    def start(self) -> State:
        return (0, 0, frozenset(), frozenset())

    def later(self, index: int, keys: Iterable[str]) -> frozenset[str]:
        """The keys behind an index."""
        return frozenset(key for key in keys if self.index_of[key] > index)

    def write(self, state: State, ref: Callable[[State], Ref]) -> Expr:
        index, count, owed, barred = state
        if index == len(self.keys):
            return self.end(count)
        least, most = constraints.size(self.writer.places, "Properties")
        key = self.keys[index]
        ways: list[Expr] = []
        if key in self.members and key not in barred and (most is None or count < most):
            more = self.later(index, owed.union(self.dependents.get(key, ())))
            counted = min(count + 1, max(1, least, most or 0))
            following = ref((index + 1, counted, more, self.later(index, barred)))
            ways.append(in_order(COMMA if count else WS, self.members[key], following))
        if key not in owed and key not in self.required:
            lost = barred.union(self.demanders.get(key, ()))
            ways.append(ref((index + 1, count, self.later(index, owed), self.later(index, lost))))
        return one_of(*ways)

    def end(self, count: int) -> Expr:
        """Undeclared members and the closing brace.

        A repeated key counts once, so they count as one member at most.
        """
        least, most = constraints.size(self.writer.places, "Properties")
        missing = max(0, least - count)
        left = None if most is None else most - count
        close = in_order(WS, "}")
        if self.other is None or left == 0:
            return DEAD if missing else close
        if missing > 1:
            if least > len(self.keys) + 1:
                self.refuse_least(least)
            return DEAD
        comma = in_order(COMMA, self.other)
        counted = self.writer.builder.counted
        if count:
            return in_order(counted(comma, missing, left), close)
        some = in_order(WS, self.other, counted(comma, 0, None if left is None else left - 1), close)
        return some if missing else one_of(close, some)

    def refuse_least(self, least: int) -> None:
        place = next(place for place, _ in constraints.with_keyword(self.writer.places, "minProperties"))
        refuse(
            "minProperties",
            place.pointer,
            f"{least} distinct keys cannot be guaranteed; declare them in properties",
        )


def object_expr(
    document: Document, builder: RuleBuilder, node: NodeOf, places: Places, open_objects: bool
) -> Expr:
    """The objects of some places. Raises RequestError for too many or too varied keys."""
    try:
        return ObjectWriter(document, builder, node, places, open_objects).write()
    except RequestError as error:
        if error.facts.get("field") == "json_schema":
            raise
        refuse("properties", places[0].pointer, error.message)
