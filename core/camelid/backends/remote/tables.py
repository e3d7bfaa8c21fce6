"""Plans, weights, states and capabilities as tables of plain values."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (JSON values have no types.)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from camelid.backends.base import Capabilities, MemoryReport, OpenSpec, PoolSize
from camelid.backends.remote.frames import damaged
from camelid.errors import BackendError
from camelid.plan.ops import check_op
from camelid.plan.plan import Buffer, Op, Plan, Stage, StateRef, StateSpec, View
from camelid.plan.step import Capacity, ProgramKey
from camelid.plan.weights import LoadOp, Part, Weight

T = TypeVar("T")
TAG, SET, LOADED = "=", "set", "loaded"
KINDS: dict[str, Callable[..., Any]] = {
    cls.__name__: cls
    for cls in (
        Buffer, Capabilities, Capacity, LoadOp, MemoryReport, Op, OpenSpec, Part, Plan, PoolSize, ProgramKey,
        Stage, StateRef, StateSpec, View, Weight,
    )
}  # fmt: skip
LOCAL = frozenset({"refuses"})  # fields that stay in their process


def table_of(value: Any, *, by_name: bool = False) -> Any:
    """A value as JSON values; with `by_name`, a weight is its name alone, since the stage has loaded it."""
    if by_name and isinstance(value, Weight):
        return {TAG: LOADED, "name": value.name}
    if is_dataclass(value):
        names = (field.name for field in fields(value) if field.init and field.name not in LOCAL)
        own = {name: table_of(getattr(value, name), by_name=by_name) for name in names}
        return {TAG: type(value).__name__, **own}
    if isinstance(value, Mapping):
        return {str(key): table_of(each, by_name=by_name) for key, each in value.items()}
    if isinstance(value, frozenset):
        return {TAG: SET, "of": sorted(value)}
    if isinstance(value, tuple | list):
        return [table_of(each, by_name=by_name) for each in value]
    return value


def value_of(table: Any, loaded: Mapping[str, Weight] | None = None) -> Any:
    """The value of a table. Raises BackendError for a table that `table_of` does not make."""
    try:
        return _value(table, loaded or {})
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(f"a table is no value ({type(error).__name__}: {error})") from error


def _value(table: Any, loaded: Mapping[str, Weight]) -> Any:
    if isinstance(table, list):
        return tuple(_value(each, loaded) for each in table)
    if not isinstance(table, dict):
        return table
    tag = table.get(TAG)
    if tag == SET:
        return frozenset(table["of"])
    if tag == LOADED:
        return loaded[table["name"]]
    own = {key: _value(each, loaded) for key, each in table.items() if key != TAG}
    return KINDS[tag](**own) if tag else own


def plan_of(table: Any, loaded: Mapping[str, Weight]) -> Plan:
    """A plan whose ops keep their contracts. Raises BackendError or PlanError if it is none."""
    plan = expect(Plan, value_of(table, loaded))
    try:
        for op in plan.ops:
            check_op(op)
    except (TypeError, AttributeError, ValueError) as error:
        raise damaged(f"an op of a plan is none ({type(error).__name__}: {error})") from error
    return plan


def expect(kind: type[T], value: object) -> T:
    """The value, if it is of this class. Raises BackendError otherwise."""
    if not isinstance(value, kind):
        raise damaged(f"expected a {kind.__name__}, got a {type(value).__name__}")
    return value


def expect_all(kind: type[T], values: object) -> Sequence[T]:
    """The values of a list, all of this class."""
    return [expect(kind, value) for value in expect(tuple, values)]


def check_loaded(plan: Plan, loaded: Mapping[str, Weight]) -> None:
    """Raises BackendError for a weight that was not loaded as the plan states it."""
    for name, weight in plan.weights().items():
        if loaded.get(name) != weight:
            raise BackendError(
                f"{name} was not loaded before a plan that reads it was compiled", backend="remote"
            )
