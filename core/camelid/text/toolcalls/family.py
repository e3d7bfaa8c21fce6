"""The description of a family's format.

A call is a tuple of steps, read in order with optional white space before each: a required string; a tuple,
an optional group identified by its first string; a Slot or Tags. The closing of a call is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

SPACE = " \t\r\n"


class Slot(Enum):
    """The content that a step reads."""

    NAME = auto()  # the tool's name
    ID = auto()  # the call's id
    NAME_AND_COUNT = auto()  # functions.name:3, which is the id too
    ARGUMENTS = auto()  # a JSON object
    CALLS = auto()  # {"name": …, "arguments": {…}}, one, several, or a list
    KEYED_CALLS = auto()  # the same as {name: {…}}
    PYTHON = auto()  # name(key="value", …), one or a list
    CALLS_OR_PYTHON = auto()  # after an opening marker either form, otherwise CALLS only
    BARE_KEYS = auto()  # {key:<|"|>value<|"|>}
    HARMONY = auto()  # the header of a message with its channel and recipient


@dataclass(frozen=True, slots=True)
class Tags:
    """Arguments as tagged keys and values. A value of schema type string is written without quotes."""

    key_open: str
    key_end: str
    value_end: str
    call_end: str
    value_open: str = ""
    padded: bool = False  # a line break on either side of a value is not part of it
    attribute: str = ""  # separates the key from the type of its value, if the tag has one

    def literals(self) -> tuple[str, ...]:
        return (self.key_open, self.key_end, self.value_open, self.value_end, self.call_end)


Step: TypeAlias = "str | Slot | Tags | tuple[Step, ...]"
Pair: TypeAlias = tuple[str, str]
# Control token -> its id; None for a token that ends the answer, which no grammar can write.
Controls: TypeAlias = "Mapping[str, int | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The format of a model family. A template that contains all `signs` belongs to the family."""

    name: str
    signs: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()  # optional before a call, or before several
    call: tuple[Step, ...] = ()
    closes: tuple[str, ...] = ()
    thinking: Pair | None = ("<think>", "</think>")
    answer: Pair | None = None  # wraps the content, after thoughts only
    dropped: tuple[str, ...] = ()  # control tokens without text
    ends: tuple[str, ...] = ()  # ends of a turn
    primed: str | None = None  # begins a call that lacks its opening ("": nothing does)
    no_tool: str = ""  # a tool name that stands for the user
    calls_end_thoughts: bool = False
    keys: tuple[str, ...] = ("name", "arguments")  # of a call as JSON, in order; an id's key before them

    @property
    def markers(self) -> frozenset[str]:
        """Every string that the parser searches for."""
        pairs = [*(self.thinking or ()), *(self.answer or ())]
        every = [*self.opens, *self.closes, *pairs, *self.dropped, *self.ends, *_literals(self.call)]
        return frozenset(every) - {""}

    def shows(self, control_tokens: Iterable[str]) -> frozenset[str]:
        """The control tokens that the parser needs as text."""
        markers = self.markers
        return frozenset(token for token in control_tokens if any(token in marker for marker in markers))

    @property
    def openings(self) -> frozenset[str]:
        """The strings that may begin a call."""
        first = self.call[0] if self.call else ""
        return frozenset((*self.opens, first if isinstance(first, str) else "")) - {""}


def _literals(steps: tuple[Step, ...]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, str):
            yield step
        elif isinstance(step, Tags):
            yield from step.literals()
        elif isinstance(step, tuple):
            yield from _literals(step)
