"""Proof that the branches of a oneOf exclude each other; branches without a proof may overlap."""

from __future__ import annotations

from itertools import combinations, product

from camelid.errors import RequestError
from camelid.text.grammar.dfa import intersect
from camelid.text.grammar.json_types import constraints
from camelid.text.grammar.json_types.checks import allows
from camelid.text.grammar.json_types.document import Document, Place, Places, together
from camelid.text.grammar.json_types.keywords import FRACTION, INTEGER, refuse
from camelid.text.grammar.json_types.objects import is_closed

MAX_DEPTH = 6
MAX_BRANCHES = 64


def check_branches(document: Document, place: Place, open_objects: bool) -> None:
    """Raises RequestError unless no value satisfies two branches of the place's oneOf."""
    n = len(place.get("oneOf"))
    if n > MAX_BRANCHES:
        refuse("oneOf", place.pointer, f"more than {MAX_BRANCHES} branches; use anyOf")
    prover = Prover(document, open_objects)
    branches = [document.alternatives((place.child("oneOf", i),)) for i in range(n)]
    for left, right in combinations(range(n), 2):
        pairs = product(branches[left], branches[right])
        if not all(prover.exclude((place, *one), (place, *other), MAX_DEPTH) for one, other in pairs):
            what = "use anyOf, or give each branch a required property with a distinct const"
            refuse("oneOf", place.pointer, f"branches {left} and {right} may overlap; {what}")


class Prover:
    """Proves that sets of places exclude each other."""

    def __init__(self, document: Document, open_objects: bool) -> None:
        self.document = document
        self.open_objects = open_objects

    def apart(self, left: Places, right: Places, depth: int) -> bool:
        """True if no value satisfies both sides."""
        return depth > 0 and all(
            self.exclude(one, other, depth - 1)
            for one in self.document.alternatives(left)
            for other in self.document.alternatives(right)
        )

    def exclude(self, left: Places, right: Places, depth: int) -> bool:
        for one, other in ((left, right), (right, left)):
            values = constraints.enumerated(one)
            if values is not None:
                both = together((*one, *other))
                return not any(allows(self.document, both, value) for value in values)
        common = constraints.types_of(left) & constraints.types_of(right)
        return all(self.exclude_type(kind, left, right, depth) for kind in common)

    def exclude_type(self, kind: str, left: Places, right: Places, depth: int) -> bool:
        match kind:
            case "object":
                return self.exclude_objects(left, right, depth)
            case "array":
                return self.exclude_arrays(left, right, depth)
            case "string":
                return self.exclude_strings(left, right)
            case _:
                return kind in {INTEGER, FRACTION} and self.exclude_numbers(left, right)

    def exclude_objects(self, left: Places, right: Places, depth: int) -> bool:
        keys = {*constraints.required(left), *constraints.required(right)}
        if self.never_writes(left, right) and self.never_writes(right, left):
            return True
        return any(
            self.apart(constraints.property_places(left, key), constraints.property_places(right, key), depth)
            for key in sorted(keys)
        )

    def never_writes(self, one: Places, other: Places) -> bool:
        """True if the grammar of one side has no member for a key that the other side requires."""
        if not is_closed(one, self.open_objects):
            return False
        named = {
            *constraints.required(one),
            *(key for _, table in constraints.with_keyword(one, "properties") for key in table),
        }
        has_patterns = any(place.get("patternProperties") for place in one)
        return not has_patterns and bool(set(constraints.required(other)) - named)

    def exclude_arrays(self, left: Places, right: Places, depth: int) -> bool:
        least, most = constraints.size(together((*left, *right)), "Items")
        if most is not None and most < least:
            return True
        return any(
            self.apart(constraints.item_places(left, i), constraints.item_places(right, i), depth)
            for i in range(min(least, 16))
        )

    def exclude_strings(self, left: Places, right: Places) -> bool:
        least, most = constraints.size(together((*left, *right)), "Length")
        if most is not None and most < least:
            return True
        try:
            one, other = constraints.text_dfa(left), constraints.text_dfa(right)
            return one is not None and other is not None and intersect(one, other).is_empty
        except RequestError:
            return False

    def exclude_numbers(self, left: Places, right: Places) -> bool:
        both = constraints.interval(together((*left, *right)), integral=False)
        if both.low is None or both.high is None:
            return False
        strict = both.low.strict or both.high.strict
        return both.low.value > both.high.value or (strict and both.low.value == both.high.value)
