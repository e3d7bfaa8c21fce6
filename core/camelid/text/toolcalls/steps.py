"""The steps of a family's row, with a reader for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from camelid.text.toolcalls.family import Slot, Step, Tags
from camelid.text.toolcalls.feed import SPACE, VALUE_LIMIT, InvalidCall, Wait, string_set
from camelid.text.toolcalls.json_calls import calls, keyed_call, named_call, whole_call
from camelid.text.toolcalls.python_calls import python_calls
from camelid.text.toolcalls.reading import NAME_CHARS, Machine, arguments, checked
from camelid.text.toolcalls.tagged import tagged_call
from camelid.text.toolcalls.values import bare_json

HEADER_LIMIT = 256
HEADER = re.compile(r"[A-Za-z0-9_.:/= \n-]*")
CHANNEL = re.compile(r"<\|channel\|>([a-z]*)")
RECIPIENT = re.compile(r"to=([^ <]+)")
COUNTED = re.compile(r"(?:functions\.)?(.+?)(?::[0-9]+)?")


def follow(m: Machine, steps: Sequence[Step]) -> Wait[None]:
    """Reads the steps of a call. Raises InvalidCall where the text does not match."""
    for step in steps:
        yield from m.feed.run(SPACE)
        if isinstance(step, Slot):
            yield from SLOTS[step](m)
        elif isinstance(step, Tags):
            yield from tagged_call(m, step)
        elif isinstance(step, tuple):
            if (yield from m.feed.literal(str(step[0]))):
                yield from follow(m, step[1:])
        elif not (yield from m.feed.literal(step)) and not m.called:
            raise InvalidCall


def read_name(m: Machine) -> Wait[None]:
    m.name = checked(m, (yield from m.feed.run(NAME_CHARS)))
    if m.name == m.family.no_tool:
        yield from m.feed.run(SPACE)
        m.feed.hold()
        m.writer.border()
        raise InvalidCall


def read_id(m: Machine) -> Wait[None]:
    m.id = yield from m.feed.run(NAME_CHARS)


def name_and_count(m: Machine) -> Wait[None]:
    m.id = yield from m.feed.run(NAME_CHARS)
    found = COUNTED.fullmatch(m.id)
    m.name = checked(m, found[1] if found else "")


def bare_keys(m: Machine) -> Wait[None]:
    """An object up to the literal that ends the call; valid or not only at its end."""
    m.feed.hold(m.feed.release(), VALUE_LIMIT)
    pieces: list[str] = []
    yield from m.feed.until(string_set("<tool_call|>"), pieces.append)
    text = bare_json("".join(pieces))
    if text is None:
        raise InvalidCall
    whole_call(m, text)


def calls_or_python(m: Machine) -> Wait[None]:
    """JSON if the text begins like JSON, or if no marker separates a call from code meant as text."""
    if m.bare or (yield from m.feed.peek()) == "{":
        yield from calls(m, named_call)
    else:
        yield from python_calls(m)


def harmony(m: Machine) -> Wait[None]:
    """The header of a message of gpt-oss, before reasoning, text for the user, or a call."""
    m.feed.hold(m.feed.release(), HEADER_LIMIT)
    marker = ""
    while marker != "<|message|>":
        yield from m.feed.run(HEADER)
        marker = yield from m.feed.literal("<|channel|>", "<|constrain|>", "<|message|>")
        if not marker:
            raise InvalidCall
    header = m.feed.release()
    recipients = [name for name in RECIPIENT.findall(header) if name != "assistant"]
    if not recipients:
        m.writer.border()
        m.thinking = CHANNEL.findall(header)[-1:] == ["analysis"]
        return
    m.feed.hold(header)
    m.name = checked(m, recipients[-1].removeprefix("functions."))
    yield from m.feed.run(SPACE)
    yield from arguments(m)


SLOTS: Mapping[Slot, Callable[[Machine], Wait[None]]] = {
    Slot.NAME: read_name,
    Slot.ID: read_id,
    Slot.NAME_AND_COUNT: name_and_count,
    Slot.ARGUMENTS: arguments,
    Slot.CALLS: lambda m: calls(m, named_call),
    Slot.KEYED_CALLS: lambda m: calls(m, keyed_call),
    Slot.PYTHON: python_calls,
    Slot.CALLS_OR_PYTHON: calls_or_python,
    Slot.BARE_KEYS: bare_keys,
    Slot.HARMONY: harmony,
}
