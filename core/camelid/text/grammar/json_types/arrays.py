"""Arrays as rules: items by index, counted; unique items where all their values are listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from camelid.text.grammar.builder import DEAD, RuleBuilder, in_order, one_of, optional
from camelid.text.grammar.json_text import COMMA, WS, literal
from camelid.text.grammar.json_types import constraints
from camelid.text.grammar.json_types.checks import finite_values
from camelid.text.grammar.json_types.document import Document, Places
from camelid.text.grammar.json_types.keywords import refuse
from camelid.text.grammar.rules import Expr, Ref

KEYWORDS = ("items", "prefixItems", "minItems", "maxItems", "uniqueItems")
MAX_ANY_ORDER = 6  # unique values that may come in any order; more values come in the schema's order
MAX_PREFIX = 1_000
NodeOf: TypeAlias = Callable[[Places], Expr]


def array(document: Document, builder: RuleBuilder, node: NodeOf, places: Places) -> Expr:
    """The arrays that satisfy some places."""
    if not any(place.get(keyword) is not None for place in places for keyword in KEYWORDS):
        return Ref("array")
    least, most = constraints.size(places, "Items")
    if most is not None and most < least:
        return DEAD
    if most == 0:
        return in_order("[", WS, "]")
    unique = next((place for place, value in constraints.with_keyword(places, "uniqueItems") if value), None)
    if unique and (most is None or most > 1):
        values = finite_values(document, constraints.item_places(places, 0))
        if values is None or constraints.prefix_size(places):
            refuse(
                "uniqueItems",
                unique.pointer,
                "unique items must be an enum, a const, booleans or null",
            )
        return unique_items(builder, values, least, most)
    inside = in_order(items(builder, node, places, least, most), WS)
    return in_order("[", WS, inside if least else optional(inside), "]")


def items(builder: RuleBuilder, node: NodeOf, places: Places, least: int, most: int | None) -> Expr:
    """The items of an array that has at least one."""
    n = constraints.prefix_size(places)
    if n > MAX_PREFIX:
        refuse("prefixItems", places[0].pointer, f"more than {MAX_PREFIX} items")
    n = n if most is None else min(n, most)
    others = node(constraints.item_places(places, n))
    left = None if most is None else most - max(n, 1)
    tail = builder.counted(in_order(COMMA, others), max(0, least - max(n, 1)), left)
    if not n:
        return in_order(others, tail)
    for i in range(n - 1, -1, -1):
        item = in_order(*([COMMA] if i else []), node(constraints.item_places(places, i)), tail)
        rest = builder.add("items", item)
        tail = optional(rest) if i >= max(least, 1) else rest
    return tail


def unique_items(builder: RuleBuilder, values: list[Any], least: int, most: int | None) -> Expr:
    """An array of distinct values out of a list."""
    most = len(values) if most is None else min(most, len(values))
    writer = any_order if len(values) <= MAX_ANY_ORDER else in_turn
    return in_order(
        "[", WS, writer(builder, [literal(value, builder.notation) for value in values], least, most)
    )


def any_order(builder: RuleBuilder, values: list[Expr], least: int, most: int) -> Expr:
    """Distinct values in any order. A state is the set of values used."""

    def write(used: frozenset[int], ref: Callable[[frozenset[int]], Ref]) -> Expr:
        ways = [
            in_order(*([COMMA] if used else []), value, ref(used | {i}))
            for i, value in enumerate(values)
            if i not in used and len(used) < most
        ]
        return one_of(*ways, *([in_order(*([WS] if used else []), "]")] if len(used) >= least else []))

    return builder.machine("unique", frozenset[int](), write)


def in_turn(builder: RuleBuilder, values: list[Expr], least: int, most: int) -> Expr:
    """Distinct values in the schema's order.

    A state is the index of the next value and the number of items, counted only as far as the limits need it.
    """

    def write(state: tuple[int, int], ref: Callable[[tuple[int, int]], Ref]) -> Expr:
        index, count = state
        if index == len(values):
            return in_order(*([WS] if count else []), "]") if count >= least else DEAD
        counts = most < len(values) or count < max(least, 1)
        ways: list[Expr] = [ref((index + 1, count))]
        if count < most:
            taken = in_order(*([COMMA] if count else []), values[index])
            ways.append(in_order(taken, ref((index + 1, count + counts))))
        return one_of(*ways)

    return builder.machine("unique", (0, 0), write)
