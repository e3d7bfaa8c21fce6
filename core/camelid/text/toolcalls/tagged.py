"""Arguments written as tagged keys and values, typed by the tool's schema."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.text.toolcalls.family import Tags
from camelid.text.toolcalls.feed import VALUE_LIMIT, InvalidCall, Wait, string_set
from camelid.text.toolcalls.reading import Machine, end, expect, start
from camelid.text.toolcalls.values import STRING, escaped, quoted, schema_types, typed_json

# The type declared in a tag; any other declaration means that the value is JSON.
DECLARED: Mapping[str, frozenset[str]] = {"true": STRING, "string": STRING}


def tagged_call(m: Machine, tags: Tags) -> Wait[None]:
    """Keys and values in tags. The call is certain once its first key or its end has arrived."""
    word = yield from expect(m, tags.key_open, tags.call_end)
    schemas = (m.schemas or {}).get(m.name) or {}
    key, declared = (yield from tagged_key(m, tags)) if word == tags.key_open else ("", "")
    start(m)
    m.writer.arguments("{")
    while word == tags.key_open:
        m.feed.release()
        m.writer.arguments(quoted(key) + ": ")
        allowed = DECLARED.get(declared, frozenset[str]()) if declared else schema_types(schemas.get(key))
        yield from (string_value if allowed == STRING else typed_value)(m, tags, allowed)
        m.feed.hold()
        word = yield from expect(m, tags.key_open, tags.call_end)
        if word == tags.key_open:
            key, declared = yield from tagged_key(m, tags)
            m.writer.arguments(", ")
    m.writer.arguments("}")
    end(m)


def tagged_key(m: Machine, tags: Tags) -> Wait[tuple[str, str]]:
    """The key and the type declared in its tag; reads up to the value."""
    pieces: list[str] = []
    if not (yield from m.feed.until(string_set(tags.key_end), pieces.append)):
        raise InvalidCall
    if tags.value_open:
        yield from expect(m, tags.value_open)
    if tags.padded:
        yield from m.feed.literal("\n")
    key, _, declared = "".join(pieces).partition(tags.attribute or "\0")
    return key, declared


def string_value(m: Machine, tags: Tags, _: frozenset[str]) -> Wait[None]:
    """A string value, streamed."""
    m.writer.arguments('"')
    closing = ("\n" + tags.value_end, tags.value_end) if tags.padded else (tags.value_end,)
    if not (yield from m.feed.until(string_set(*closing), lambda piece: m.writer.arguments(escaped(piece)))):
        raise InvalidCall
    m.writer.arguments('"')


def typed_value(m: Machine, tags: Tags, allowed: frozenset[str]) -> Wait[None]:
    """A value whose type is known only at its end."""
    m.feed.hold(limit=VALUE_LIMIT)
    pieces: list[str] = []
    closing = ("\n" + tags.value_end, tags.value_end) if tags.padded else (tags.value_end,)
    if not (yield from m.feed.until(string_set(*closing), pieces.append)):
        m.writer.arguments(m.feed.release())
        raise InvalidCall
    m.feed.release()
    m.writer.arguments(typed_json("".join(pieces), allowed))
