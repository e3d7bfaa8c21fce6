"""What a chat shows: answers on stdout; thoughts, tool calls and notes on stderr, dimmed on a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from camelid.requests.output_text import Event
from camelid.text.toolcalls.parts import CallArguments, CallEnd, CallStart, Content, Reasoning

# Controls that could steer a terminal, apart from tab and line feed.
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
ANSWER, THOUGHTS, CALLS = "", "[thinks] ", "[calls] "  # sections of an answer, by what marks them


@dataclass(frozen=True, slots=True)
class Theme:
    """Which section a kind of part belongs to, its text, and whether it begins a line."""

    section: str
    text: Callable[[Any], str]
    is_first: bool = False


LOOKS: Mapping[type, Theme] = {
    Content: Theme(ANSWER, lambda part: part.text),
    Reasoning: Theme(THOUGHTS, lambda part: part.text),
    CallStart: Theme(CALLS, lambda part: f"{part.name} ", is_first=True),
    CallArguments: Theme(CALLS, lambda part: part.text),
    CallEnd: Theme(CALLS, lambda part: "" if part.complete else " (cut off)"),
}


class Screen:
    """Writes one answer after the other, each as it is drawn."""

    def __init__(self) -> None:
        self._color = False if os.environ.get("NO_COLOR") else None  # None: on a terminal
        self._section = ANSWER
        self._line_is_empty = True
        self._n_shown = 0  # characters of the answer

    def event(self, event: Event) -> None:
        """Shows what came with a token."""
        for part in event.parts or (Content(event.text),):
            look = LOOKS[type(part)]
            if text := look.text(part):
                self._show(look, text)

    def end(self, answer: str = "") -> None:
        """Closes an answer, with what of its text had not come as an event when it was stopped."""
        if rest := answer[self._n_shown :]:
            self._show(LOOKS[Content], rest)
        self._end_line()
        self._section, self._n_shown = ANSWER, 0

    def note(self, text: str) -> None:
        """A line beside the conversation."""
        self._end_line()
        click.echo(click.style(_harmless(text), dim=True), err=True, color=self._color)

    def error(self, text: str) -> None:
        """What went wrong, as a line."""
        self._end_line()
        line = f"camelid: error: {' '.join(text.split())}"
        click.echo(click.style(_harmless(line), fg="red"), err=True, color=self._color)

    def _show(self, look: Theme, text: str) -> None:
        if look.section != self._section or look.is_first:
            self._end_line()
            self._section = look.section
            self._write(look.section)
        self._n_shown += len(text) if look.section == ANSWER else 0
        self._write(text)

    def _write(self, text: str) -> None:
        if text:
            (self._answer if self._section == ANSWER else self._aside)(text)
            self._line_is_empty = text.endswith("\n")

    def _aside(self, text: str) -> None:
        click.echo(click.style(_harmless(text), dim=True), nl=False, err=True, color=self._color)

    @staticmethod
    def _answer(text: str) -> None:
        """As it is for a file or another program; echo would take colours out of it."""
        sys.stdout.write(_harmless(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def _end_line(self) -> None:
        if not self._line_is_empty:
            click.echo(err=self._section != ANSWER)
            self._line_is_empty = True


def _harmless(text: str) -> str:
    return STEERING.sub("?", text)
