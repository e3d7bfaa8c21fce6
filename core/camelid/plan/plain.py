"""Plans, weights and state as JSON data, for cases that are recorded on one machine and run on another."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, cast

from camelid.errors import RequestError, shown
from camelid.plan.plan import Buffer, Op, Plan, Stage, StateRef, StateSpec, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import LoadOp, Part, Weight

TYPES = {
    t.__name__: t
    for t in (Buffer, Capacity, LoadOp, Op, Part, Plan, ProgramKey, Stage, StateRef, StateSpec, View, Weight)
}
TYPE, FIELDS = "type", "fields"  # keys of an encoded object
SET = "set"  # key of an encoded set


def to_plain(value: Any) -> Any:
    """JSON data of a value of `TYPES`, and of tuples, lists, sets, texts and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
        return {TYPE: type(value).__name__, FIELDS: held}
    if isinstance(value, frozenset):
        return {SET: sorted(cast(frozenset[str], value))}
    if isinstance(value, tuple | list):
        return [*map(to_plain, cast(list[Any], value))]
    return value


def from_plain(data: Any) -> Any:
    """The value of `to_plain`'s data; lists become tuples. Raises RequestError for any other object."""
    if isinstance(data, list):
        return tuple(map(from_plain, cast(list[Any], data)))
    if not isinstance(data, dict):
        return data
    held = cast(dict[str, Any], data)
    return _set(held[SET]) if SET in held else _object(held)


def _set(texts: Any) -> frozenset[str]:
    held: list[Any] = cast(list[Any], texts) if isinstance(texts, list) else [None]
    if all(isinstance(text, str) for text in held):
        return frozenset(held)
    raise _damage(f"a set of a recorded case is {shown(cast(Any, texts))}, expected a list of texts", SET)


def _object(held: dict[str, Any]) -> Any:
    name: Any = held.get(TYPE)
    given: Any = held.get(FIELDS)
    found = TYPES.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(TYPES)
        raise _damage(f"a recorded case has the type {shown(name)}, expected one of {known}", TYPE)
    names, has = sorted(f.name for f in fields(found)), _names(given)
    if names != has:
        shape = f"expected {', '.join(names)}, got {', '.join(has)}"
        raise _damage(f"a recorded case has wrong fields of {name}: {shape}", FIELDS)
    return found(**{key: from_plain(value) for key, value in given.items()})


def _names(given: Any) -> list[str]:
    """The keys of an encoded object's fields; for anything else, what it is."""
    return sorted(cast(dict[str, Any], given)) if isinstance(given, dict) else [shown(given)]


def _damage(fault: str, field: str) -> RequestError:
    return RequestError(f"{fault}; record the cases with this version of Camelid", field=field)
