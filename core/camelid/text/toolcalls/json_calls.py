"""Calls written as JSON: {"name": …, "arguments": {…}} and variants."""

from __future__ import annotations

import json
from collections.abc import Callable

from camelid.text.toolcalls.feed import SPACE, InvalidCall, Wait
from camelid.text.toolcalls.json_scanner import is_json
from camelid.text.toolcalls.reading import Machine, arguments, checked, end, expect, held_value, start

NAME_KEYS = frozenset({"name", "tool_name"})
ID_KEYS = frozenset({"id", "tool_call_id"})
ARGUMENT_KEYS = frozenset({"arguments", "parameters"})


def calls(m: Machine, one: Callable[[Machine], Wait[None]]) -> Wait[None]:
    """A call, a list of calls, or consecutive calls."""
    listed = yield from m.feed.literal("[")
    while True:
        yield from expect(m, "{")
        yield from one(m)
        yield from m.feed.run(SPACE)
        parted = yield from m.feed.literal(",", ";")
        yield from m.feed.run(SPACE)
        if (yield from m.feed.peek()) != "{":
            break
    if parted and not listed:
        raise InvalidCall
    yield from m.feed.literal("]" if listed else "")


def named_call(m: Machine) -> Wait[None]:
    """The rest of {"name": …, "arguments": {…}}: members in any order, unknown members skipped."""
    m.name, m.id, early, started = "", "", "", False
    while True:
        key = string_of((yield from held_value(m)))
        yield from expect(m, ":")
        yield from m.feed.run(SPACE)
        if key in ARGUMENT_KEYS and m.name and not started:
            yield from json_arguments(m)
            started = True
        else:
            early = stored_member(m, key, (yield from held_value(m)), started) or early
        yield from m.feed.run(SPACE)
        if not (yield from m.feed.literal(",")):
            break
    if started:  # a missing or surplus bracket does not invalidate the call
        yield from m.feed.literal("}")
        return
    yield from expect(m, "}")
    if not m.name or (m.bare and not early):
        raise InvalidCall
    whole_call(m, early or "{}")


def stored_member(m: Machine, key: str, value: str, started: bool) -> str:
    """Stores a member of the call; returns the arguments if the member is the arguments."""
    if started:
        return ""
    if key in NAME_KEYS:
        m.name = checked(m, string_of(value))
    elif key in ID_KEYS:
        m.id = string_of(value) if value[0] == '"' else value
    elif key in ARGUMENT_KEYS:
        return object_text(value)
    elif m.bare and key != "type":
        raise InvalidCall
    return ""


def keyed_call(m: Machine) -> Wait[None]:
    """The rest of {name: {…}}."""
    m.name = checked(m, string_of((yield from held_value(m))))
    yield from expect(m, ":")
    yield from m.feed.run(SPACE)
    yield from json_arguments(m)
    yield from m.feed.run(SPACE)
    yield from m.feed.literal("}")


def json_arguments(m: Machine) -> Wait[None]:
    """An object, or the forms that some models write in its place."""
    if (yield from m.feed.peek()) == "{":
        yield from arguments(m)
    else:
        whole_call(m, object_text((yield from held_value(m))))


def whole_call(m: Machine, text: str) -> None:
    start(m)
    m.writer.arguments(text)
    end(m)


def object_text(value: str) -> str:
    """The text of an object, given as an object, within a string, or as null."""
    text = string_of(value) if value[0] == '"' else "{}" if value == "null" else value
    if not text.startswith("{") or not is_json(text):
        raise InvalidCall
    return text


def string_of(value: str) -> str:
    """The value of a JSON string. Raises InvalidCall for another type."""
    if value[0] != '"':
        raise InvalidCall
    return str(json.loads(value))
