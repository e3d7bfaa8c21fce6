"""What every way of writing a call is read with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from camelid.text.toolcalls.family import Family
from camelid.text.toolcalls.feed import SPACE, Broken, Feed, Sink, Wait
from camelid.text.toolcalls.json_scanner import JsonScanner
from camelid.text.toolcalls.writer import Writer

# What no tool is named with: white space, brackets, quotes and what parts a name from its arguments.
NAME_CHARS = re.compile(r"""[^\x00-\x20\x7f"'`<>{}\[\]()|,;=｜\ud800-\udfff]*""")
NAME_LIMIT = 128


class Machine(Protocol):
    """The parser's state, as far as a shape needs it."""

    family: Family
    feed: Feed
    writer: Writer
    schemas: Mapping[str, Mapping[str, object]] | None
    name: str
    id: str
    bare: bool  # no marker says that this is a call
    called: bool  # a call has ended: what closes it may be missing
    thinking: bool


def expect(m: Machine, *texts: str) -> Wait[str]:
    """One of the texts, white space before it; Broken if none comes."""
    yield from m.feed.run(SPACE)
    found = yield from m.feed.literal(*texts)
    if not found:
        raise Broken
    return found


def start(m: Machine) -> None:
    """The call is sure to be one: nothing read of it will be text."""
    m.feed.let_go()
    m.writer.start(m.name, m.id)


def end(m: Machine) -> None:
    """The call's arguments are whole."""
    m.writer.end(complete=True)
    m.called, m.name, m.id = True, "", ""
    m.feed.hold()


def checked(m: Machine, name: object) -> str:
    """The name of a tool; Broken if it cannot be one, or if only a known tool's name makes this a call."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LIMIT or not NAME_CHARS.fullmatch(name):
        raise Broken
    if m.bare and m.schemas is not None and name not in (*m.schemas, m.family.no_tool):
        raise Broken
    return name


def arguments(m: Machine) -> Wait[None]:
    """A JSON object, streamed."""
    if (yield from m.feed.peek()) != "{":
        raise Broken
    start(m)
    yield from json_value(m, m.writer.arguments)
    end(m)


def json_value(m: Machine, sink: Sink) -> Wait[None]:
    """One JSON value, into the sink as it comes. Broken at the character that makes it none."""
    scanner = JsonScanner()
    while not scanner.done and (yield from m.feed.peek()):
        sink(m.feed.take(scanner.feed(m.feed.text, m.feed.at) - m.feed.at))
    if scanner.broken or not scanner.end():
        raise Broken


def held_value(m: Machine) -> Wait[str]:
    """One JSON value's text."""
    pieces: list[str] = []
    yield from m.feed.run(SPACE)
    yield from json_value(m, pieces.append)
    return "".join(pieces)
