"""Calls in Python syntax: name(key="value", …)."""

from __future__ import annotations

from camelid.text.toolcalls.feed import SPACE, VALUE_LIMIT, InvalidCall, Wait
from camelid.text.toolcalls.reading import NAME_CHARS, Machine, checked, end, expect, start
from camelid.text.toolcalls.values import python_json, quoted


def python_calls(m: Machine) -> Wait[None]:
    """name(key=value, …), a list of such calls, or name.call(…)."""
    listed = yield from m.feed.literal("[")
    while True:
        yield from m.feed.run(SPACE)
        m.name = checked(m, (yield from m.feed.run(NAME_CHARS)).removesuffix(".call"))
        yield from python_call(m)
        yield from m.feed.run(SPACE)
        if not listed or not (yield from m.feed.literal(",")):
            break
    yield from m.feed.literal("]" if listed else "")


def python_call(m: Machine) -> Wait[None]:
    """The arguments after the name."""
    yield from expect(m, "(")
    pair = yield from python_pair(m)
    closed = "" if pair else (yield from expect(m, ")"))
    start(m)
    m.writer.arguments("{" + pair)
    while not closed:
        m.feed.hold(limit=VALUE_LIMIT)
        closed = (yield from expect(m, ",", ")")) == ")"
        pair = "" if closed else (yield from python_pair(m))
        m.writer.arguments(", " + pair if pair else "")
    m.writer.arguments("}")
    end(m)


def python_pair(m: Machine) -> Wait[str]:
    """A key and its value as a member of a JSON object; "" if there is none."""
    yield from m.feed.run(SPACE)
    key = yield from m.feed.run(NAME_CHARS)
    if not key:
        return ""
    yield from expect(m, "=")
    value = python_json((yield from python_text(m)))
    if value is None:
        raise InvalidCall
    return f"{quoted(key)}: {value}"


def python_text(m: Machine) -> Wait[str]:
    """The text of a value, up to the comma or bracket that ends it."""
    pieces: list[str] = []
    depth, quote = 0, ""
    while char := (yield from m.feed.peek()):
        if not quote and depth == 0 and char in ",)":
            break
        pieces.append(m.feed.take(1))
        if quote and char == "\\" and (yield from m.feed.peek()):
            pieces.append(m.feed.take(1))
        elif char in "'\"" and quote in {"", char}:
            quote = "" if quote else char
        elif not quote:
            depth += (char in "([{") - (char in ")]}")
    return "".join(pieces)
