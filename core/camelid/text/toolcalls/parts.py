"""What an answer is made of, as it streams, and the same gathered into one message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins; `index` counts the message's calls from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of a call's arguments; the pieces joined are JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is over. Only if `complete` are its arguments the JSON text of a whole object."""

    index: int
    complete: bool = True


Part = Content | Reasoning | CallStart | CallArguments | CallEnd


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as OpenAI's API has it: `arguments` is the JSON text of an object.

    A call that was cut off, or whose JSON broke, keeps what came of its arguments and is not `complete`:
    nobody can tell what the rest would have been, so it must not be run.
    """

    id: str
    name: str
    arguments: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """A whole answer."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]


def gather(parts: Iterable[Part]) -> Message:
    """The message that the parts of one answer make."""
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
