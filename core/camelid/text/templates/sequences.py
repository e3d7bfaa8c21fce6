"""Filters over the items of a list, one table row each. Jinja's lazy filters return a Stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from camelid.errors import TemplateError
from camelid.text.templates.methods import Function, items, lookup
from camelid.text.templates.operators import add
from camelid.text.templates.tests import test_named
from camelid.text.templates.values import (
    Budget,
    Stream,
    Undefined,
    brief,
    checked_depth,
    cut,
    is_dict,
    is_list,
    iterated,
)  # fmt: skip


def lazy(function: Callable[..., Iterator[object]]) -> Function:
    """A generator function as a filter."""

    def apply(value: object, budget: Budget, *args: object, **named: object) -> Stream:
        return Stream(function(value, budget, *args, **named), value)

    return apply


def walked(value: object, budget: Budget) -> Iterator[object]:
    """The items, each charged; no items for a false value, as in Jinja's select and map."""
    if isinstance(value, Stream) or value:
        for item in iterated(value):
            budget.spend()
            yield item


def items_filter(value: object, budget: Budget) -> Iterator[object]:
    if isinstance(value, Undefined):
        return
    if not is_dict(value):
        raise TemplateError(f"items: got a {type(value).__name__}, expected a mapping")
    yield from walked(items(value, budget), budget)


def listed(value: object, budget: Budget) -> list[object]:
    return budget.items(iterated(value))


def first(value: object, _: Budget) -> object:
    return next(iter(iterated(value)), Undefined("the first item of an empty list"))


def last(value: object, budget: Budget) -> object:
    if isinstance(value, Stream):
        raise TemplateError("last: the value is lazy; put |list before it")
    found = budget.items(iterated(value))
    return found[-1] if found else Undefined("the last item of an empty list")


def reverse(value: object, budget: Budget) -> object:
    if isinstance(value, str):
        budget.text(len(value))
        return cut(value, slice(None, None, -1))
    found = budget.items(iterated(value))[::-1]
    return found if isinstance(value, Stream) else Stream(found)


@dataclass(frozen=True, eq=False, slots=True)
class Unordered:
    """A dict within a sort key: it has no order and equals only itself, so it is never iterated."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unordered) and self.value is other.value


def sort_key(value: object, budget: Budget, attribute: str | int | None, case_sensitive: bool) -> Any:
    value = value if attribute is None else lookup(value, budget, attribute)
    if isinstance(value, str) and not case_sensitive:
        budget.text(len(value))
        return str(value).lower()
    return comparable(value, budget)


def comparable(value: object, budget: Budget, depth: int = 0) -> object:
    """A copy for Python to compare, so that shared lists are charged once per occurrence."""
    budget.spend()
    budget.read(value)
    checked_depth(depth)
    if is_list(value):
        items = [comparable(item, budget, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return Unordered(value) if depth and is_dict(value) else value


def sort(
    value: object, budget: Budget, reverse: bool = False, case_sensitive: bool = False,
    attribute: str | int | None = None,
) -> list[object]:  # fmt: skip
    found = budget.items(iterated(value))
    return sorted(found, key=lambda item: sort_key(item, budget, attribute, case_sensitive), reverse=reverse)


def unique(
    value: object, budget: Budget, case_sensitive: bool = False, attribute: str | int | None = None
) -> Iterator[object]:
    seen: set[object] = set()
    for item in iterated(value):
        budget.spend()
        key = sort_key(item, budget, attribute, case_sensitive)
        if key not in seen:
            seen.add(key)
            yield item


def dictsort(
    value: object, budget: Budget, case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[object]:
    if not is_dict(value) or by not in ("key", "value"):
        raise TemplateError(
            f"dictsort: a {type(value).__name__} by {brief(by)}; expected a mapping, by key or value"
        )
    side = ("key", "value").index(by)
    pairs = [(key, item) for key, item in value.items()]
    budget.spend(len(pairs))
    pairs.sort(key=lambda pair: sort_key(pair[side], budget, None, case_sensitive), reverse=reverse)
    return [*pairs]


def extreme(largest: bool) -> Function:
    """The filter min or max: the first of the least or greatest items."""

    def apply(
        value: object, budget: Budget, case_sensitive: bool = False, attribute: str | int | None = None
    ) -> object:
        found = budget.items(iterated(value))
        if not found:
            return Undefined("the least or greatest item of an empty list")

        def key(item: object) -> Any:
            return sort_key(item, budget, attribute, case_sensitive)

        return max(found, key=key) if largest else min(found, key=key)

    return apply


def total(value: object, budget: Budget, attribute: str | int | None = None, start: Any = 0) -> object:
    if isinstance(start, str):
        raise TemplateError("sum: strings have no sum; use |join")
    for item in budget.items(iterated(value)):
        start = add(start, item if attribute is None else lookup(item, budget, attribute), budget)
    return start


def groupby(
    value: object, budget: Budget, attribute: str | int, default: object = None, case_sensitive: bool = False
) -> list[object]:
    """(key, items) of each value of an attribute, sorted by the value."""
    groups: dict[object, tuple[object, list[object]]] = {}
    for item in budget.items(iterated(value)):
        found = lookup(item, budget, attribute, default)
        key = sort_key(found, budget, None, case_sensitive)
        groups.setdefault(key, (found, []))[1].append(item)
    return [groups[key] for key in sorted(groups, key=lambda key: sort_key(key, budget, None, True))]


def batch(value: object, budget: Budget, linecount: int, fill_with: object = None) -> Iterator[object]:
    row: list[object] = []
    for item in iterated(value):
        budget.spend()
        if len(row) == linecount:
            yield row
            row = []
        row.append(item)
    missing = linecount - len(row) if row and fill_with is not None else 0
    if row:
        budget.spend(max(missing, 0))
        yield row + [fill_with] * missing


def columns(value: object, budget: Budget, slices: int, fill_with: object = None) -> Iterator[object]:
    """The filter `slice`: the items in `slices` lists, the first lists one item longer."""
    found = budget.items(iterated(value))
    each, longer = divmod(len(found), slices)
    start = 0
    for i in range(slices):
        budget.spend()
        end = start + each + (i < longer)
        short = fill_with is not None and i >= longer
        yield [*found[start:end], *[fill_with] * short]
        start = end


Filters = Callable[[object], Function]


def map_filter(value: object, budget: Budget, filters: Filters, args: Any, named: Any) -> Iterator[object]:
    if "attribute" in named and not args:
        yield from attributes(value, budget, **named)
        return
    if not args:
        raise TemplateError("map: expected the name of a filter")
    apply = filters(args[0])
    for item in walked(value, budget):
        yield apply(item, budget, *args[1:], **named)


def attributes(
    value: object, budget: Budget, attribute: str | int, default: object = None
) -> Iterator[object]:
    for item in walked(value, budget):
        yield lookup(item, budget, attribute, default)


def truth(value: object, _: Budget) -> bool:
    return bool(value)


def chosen(keep: bool, by_attribute: bool) -> Function:
    """The filters select, reject, selectattr, rejectattr: the items that pass, or fail, a test."""

    def choose(value: object, budget: Budget, *args: Any) -> Iterator[object]:
        if by_attribute and not args:
            raise TemplateError("selectattr and rejectattr need the name of an attribute")
        name, *rest = args if by_attribute else (None, *args)
        test = test_named(rest[0]) if rest else truth
        for item in walked(value, budget):
            seen = item if name is None else lookup(item, budget, name)
            if bool(test(seen, budget, *rest[1:])) == keep:
                yield item

    return lazy(choose)


SEQUENCE_FILTERS: dict[str, Function] = {
    "items": lazy(items_filter), "list": listed, "first": first, "last": last, "reverse": reverse,
    "sort": sort, "unique": lazy(unique), "dictsort": dictsort, "min": extreme(largest=False),
    "max": extreme(largest=True), "sum": total, "groupby": groupby, "batch": lazy(batch),
    "slice": lazy(columns), "select": chosen(True, False), "reject": chosen(False, False),
    "selectattr": chosen(True, True), "rejectattr": chosen(False, True),
}  # fmt: skip
