"""The parts of an output as it streams, and the whole message that they form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a tool call; `index` counts the message's calls from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of a call's arguments; the joined pieces are JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of a call. The arguments are the JSON text of a whole object only if `complete`."""

    index: int
    complete: bool = True


Part = Content | Reasoning | CallStart | CallArguments | CallEnd


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as in OpenAI's API: `arguments` is the JSON text of an object.

    A call that was cut off, or whose JSON is invalid, has the arguments received so far and is not
    `complete`. It must not be run, since the rest of its arguments is unknown.
    """

    id: str
    name: str
    arguments: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """A whole output."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]


def gather(parts: Iterable[Part]) -> Message:
    """The message formed by the parts of one output."""
    content: list[str] = []
    reasoning: list[str] = []
    arguments: list[list[str]] = []
    calls: list[ToolCall] = []
    for part in parts:
        match part:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallStart(_, call_id, name):
                calls.append(ToolCall(call_id, name, "", complete=False))
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
            case CallEnd(index, complete):
                calls[index] = replace(calls[index], complete=complete)
    whole = (replace(call, arguments="".join(pieces)) for call, pieces in zip(calls, arguments, strict=True))
    return Message("".join(content), "".join(reasoning), tuple(whole))
