"""Readers that all call formats share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from camelid.text.toolcalls.family import Family
from camelid.text.toolcalls.feed import SPACE, Feed, InvalidCall, Sink, Wait
from camelid.text.toolcalls.json_scanner import JsonScanner
from camelid.text.toolcalls.writer import Writer

# No tool name has white space, brackets, quotes or the characters that separate a name from its arguments.
NAME_CHARS = re.compile(r"""[^\x00-\x20\x7f"'`<>{}\[\]()|,;=｜\ud800-\udfff]*""")
NAME_LIMIT = 128


class Machine(Protocol):
    """The parser's state, as used by the readers of call formats."""

    family: Family
    feed: Feed
    writer: Writer
    schemas: Mapping[str, Mapping[str, object]] | None
    name: str
    id: str
    bare: bool  # no marker identifies this as a call
    called: bool  # a call has ended; its closing is optional
    thinking: bool


def expect(m: Machine, *texts: str) -> Wait[str]:
    """Reads one of the texts after optional white space. Raises InvalidCall if none follows."""
    yield from m.feed.run(SPACE)
    found = yield from m.feed.literal(*texts)
    if not found:
        raise InvalidCall
    return found


def start(m: Machine) -> None:
    """Starts the call: from here on it is certain, and its text is not held back."""
    m.feed.release()
    m.writer.start(m.name, m.id)


def end(m: Machine) -> None:
    """Ends the call with complete arguments."""
    m.writer.end(complete=True)
    m.called, m.name, m.id = True, "", ""
    m.feed.hold()


def checked(m: Machine, name: object) -> str:
    """The name of a tool.

    Raises InvalidCall for an invalid name, and for an unknown tool in a call without a marker.
    """
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LIMIT or not NAME_CHARS.fullmatch(name):
        raise InvalidCall
    if m.bare and m.schemas is not None and name not in (*m.schemas, m.family.no_tool):
        raise InvalidCall
    return name


def arguments(m: Machine) -> Wait[None]:
    """A JSON object, streamed."""
    if (yield from m.feed.peek()) != "{":
        raise InvalidCall
    start(m)
    yield from json_value(m, m.writer.arguments)
    end(m)


def json_value(m: Machine, sink: Sink) -> Wait[None]:
    """One JSON value, streamed to the sink. Raises InvalidCall at the first invalid character."""
    scanner = JsonScanner()
    while not scanner.done and (yield from m.feed.peek()):
        sink(m.feed.take(scanner.feed(m.feed.text, m.feed.at) - m.feed.at))
    if scanner.broken or not scanner.end():
        raise InvalidCall


def held_value(m: Machine) -> Wait[str]:
    """The text of one JSON value."""
    pieces: list[str] = []
    yield from m.feed.run(SPACE)
    yield from json_value(m, pieces.append)
    return "".join(pieces)
