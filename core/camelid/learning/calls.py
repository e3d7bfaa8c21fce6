"""Tool calls against the schemas of their tools: an answer that calls a tool wrongly is no right answer.

Of JSON Schema (draft 2020-12), the words that the arguments of calls use: type, enum, required, properties,
additionalProperties and items. Other words, and malformed ones, refuse nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

Json: TypeAlias = Mapping[str, Any]
TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip


def fault_of_calls(answer: Json, tools: Sequence[Json]) -> str:
    """The first fault of an answer's calls, "" for none. Calls of a request without tools have none."""
    named = [function for function in map(_function, tools) if function.get("name")]
    schemas = {str(function["name"]): _mapping(function.get("parameters")) for function in named}
    calls = map(_function, _list(answer.get("tool_calls"))) if schemas else ()
    return next((fault for call in calls for fault in _faults(call, schemas)), "")


def _function(entry: Json) -> Json:
    """The function of a tool or of a call."""
    return _mapping(entry.get("function", entry))


def _mapping(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _list(value: object) -> list[Any]:
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else []


def _faults(call: Json, schemas: Mapping[str, Json]) -> Iterator[str]:
    name, arguments = str(call.get("name")), call.get("arguments")
    if name not in schemas:
        yield f"there is no tool {name!r:.80}"
        return
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        yield f"the arguments of {name} are no JSON"
        return
    for misfit in _misfits(value, {"type": "object", **schemas[name]}, "arguments"):
        yield f"{name} is called with {misfit}"


def _misfits(value: object, schema: Json, place: str) -> Iterator[str]:
    """The faults of a value by a schema."""
    kind, among = schema.get("type"), _list(schema.get("enum"))
    kinds = [each for each in (_list(kind) or [kind]) if isinstance(each, str) and each in TYPES]
    if kinds and not any(_is_a(value, each) for each in kinds):
        yield f"{place} not of type {' or '.join(kinds)}"
    elif among and value not in among:
        yield f"{place} not one of {', '.join(map(str, among))}"
    elif isinstance(value, dict):
        yield from _misfits_of_object(cast("Json", value), schema, place)
    else:
        for i, each in enumerate(_list(value)):
            yield from _misfits(each, _mapping(schema.get("items")), f"{place}[{i}]")


def _misfits_of_object(value: Json, schema: Json, place: str) -> Iterator[str]:
    known, needed = _mapping(schema.get("properties")), filter(_is_text, _list(schema.get("required")))
    yield from (f"{place} without {name!r}" for name in needed if name not in value)
    for name, each in value.items():
        if name in known:
            yield from _misfits(each, _mapping(known[name]), f"{place}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{place}.{name:.80}, which it does not have"


def _is_a(value: object, kind: str) -> bool:
    """True for a value of a JSON type. A bool is no number, and 2.0 is an integer."""
    if isinstance(value, bool) or kind == "boolean":
        return isinstance(value, bool) and kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[kind])
