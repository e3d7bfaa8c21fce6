"""The words in which a family's way of writing is put.

A call is a tuple of steps, read in order with optional white space before each: a string that must come;
a tuple, an optional group known by its first string; a Slot or Tags. What closes a call may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

SPACE = " \t\r\n"


class Slot(Enum):
    """What a step reads."""

    NAME = auto()  # the tool's name
    ID = auto()  # the call's id
    NAME_AND_COUNT = auto()  # functions.name:3, which is the id too
    ARGUMENTS = auto()  # a JSON object
    CALLS = auto()  # {"name": …, "arguments": {…}}, one, several, or a list of them
    KEYED_CALLS = auto()  # the same as {name: {…}}
    PYTHON = auto()  # name(key="value", …), one or a list of them
    CALLS_OR_PYTHON = auto()  # after an opening either of them, without one CALLS only
    BARE_KEYS = auto()  # {key:<|"|>value<|"|>}
    HARMONY = auto()  # the header of a message, which names its channel and recipient


@dataclass(frozen=True, slots=True)
class Tags:
    """Arguments as tagged keys and values. A value stands there bare if the tool's schema says string."""

    key_open: str
    key_end: str
    value_end: str
    call_end: str
    value_open: str = ""
    padded: bool = False  # a line break on either side of a value is no part of it
    attribute: str = ""  # parts the key from its value's type, where the tag tells it

    def literals(self) -> tuple[str, ...]:
        return (self.key_open, self.key_end, self.value_open, self.value_end, self.call_end)


Step: TypeAlias = "str | Slot | Tags | tuple[Step, ...]"
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One way of writing. `signs`: a template that holds all of them is of this family."""

    name: str
    signs: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()  # may stand before a call (before several, where the call opens itself)
    call: tuple[Step, ...] = ()
    closes: tuple[str, ...] = ()
    thinking: Pair | None = ("<think>", "</think>")
    answer: Pair | None = None  # wraps the content, after thoughts only
    dropped: tuple[str, ...] = ()  # control tokens that carry no text
    ends: tuple[str, ...] = ()  # ends of a turn
    primed: str | None = None  # a call may begin the message without its opening, with this ("": at once)
    no_tool: str = ""  # a "tool" that means the user
    calls_end_thoughts: bool = False

    @property
    def markers(self) -> frozenset[str]:
        """Every string that the parser looks for."""
        pairs = [*(self.thinking or ()), *(self.answer or ())]
        every = [*self.opens, *self.closes, *pairs, *self.dropped, *self.ends, *_literals(self.call)]
        return frozenset(every) - {""}

    def shows(self, control_tokens: Iterable[str]) -> frozenset[str]:
        """Those whose text the parser needs to see."""
        markers = self.markers
        return frozenset(token for token in control_tokens if any(token in marker for marker in markers))

    @property
    def openings(self) -> frozenset[str]:
        """The strings at which a call may begin."""
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
