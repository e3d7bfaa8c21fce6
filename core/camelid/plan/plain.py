"""Plans, weights and state as JSON data, for cases that are recorded on one machine and run on another."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, cast

from camelid.plan.plan import Buffer, Op, Plan, Stage, StateRef, StateSpec, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import LoadOp, Part, Weight

TYPES = {
    t.__name__: t
    for t in (Buffer, Capacity, LoadOp, Op, Part, Plan, ProgramKey, Stage, StateRef, StateSpec, View, Weight)
}
TYPE, SET = "type", "set"  # keys of an encoded object, of an encoded set


def to_plain(value: Any) -> Any:
    """JSON data of a value of `TYPES`, and of tuples, lists, sets, texts and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
        return {TYPE: type(value).__name__, "fields": held}
    if isinstance(value, frozenset):
        return {SET: sorted(cast(frozenset[str], value))}
    if isinstance(value, tuple | list):
        return [*map(to_plain, cast(list[Any], value))]
    return value


def from_plain(data: Any) -> Any:
    """The value of `to_plain`'s data; lists become tuples."""
    if isinstance(data, list):
        return tuple(map(from_plain, cast(list[Any], data)))
    if not isinstance(data, dict):
        return data
    held = cast(dict[str, Any], data)
    if SET in held:
        return frozenset(cast(list[str], held[SET]))
    given: dict[str, Any] = held["fields"]
    return TYPES[held[TYPE]](**{name: from_plain(value) for name, value in given.items()})
