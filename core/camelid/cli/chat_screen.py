"""Output of `camelid chat`: answers on stdout; reasoning, tool calls and notes, dimmed, on stderr."""

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

# Control characters of a terminal except tab and line feed.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
ANSWER, REASONING, CALLS = "", "[thinks] ", "[calls] "  # prefix of each section of an answer


@dataclass(frozen=True, slots=True)
class Theme:
    """The section of a kind of part, its text, and whether it starts a new line."""

    section: str
    text: Callable[[Any], str]
    is_first: bool = False


THEMES: Mapping[type, Theme] = {
    Content: Theme(ANSWER, lambda part: part.text),
    Reasoning: Theme(REASONING, lambda part: part.text),
    CallStart: Theme(CALLS, lambda part: f"{part.name} ", is_first=True),
    CallArguments: Theme(CALLS, lambda part: part.text),
    CallEnd: Theme(CALLS, lambda part: "" if part.complete else " (cut off)"),
}


class Screen:
    """Streams answers to the terminal, one after another."""

    def __init__(self) -> None:
        self._color = False if os.environ.get("NO_COLOR") else None  # None: colors on a terminal only
        self._section = ANSWER
        self._line_is_empty = True
        self._n_shown = 0  # characters of the answer

    def event(self, event: Event) -> None:
        """Writes the parts of one token's event."""
        for part in event.parts or (Content(event.text),):
            theme = THEMES[type(part)]
            if text := theme.text(part):
                self._show(theme, text)

    def end(self, answer: str = "") -> None:
        """Ends an answer; first writes the part of its text that no event carried before a stop."""
        if rest := answer[self._n_shown :]:
            self._show(THEMES[Content], rest)
        self._end_line()
        self._section, self._n_shown = ANSWER, 0

    def note(self, text: str) -> None:
        """Writes a line of the chat itself to stderr."""
        self._end_line()
        click.echo(click.style(_sanitized(text), dim=True), err=True, color=self._color)

    def error(self, text: str) -> None:
        """Writes an error to stderr, on one line."""
        self._end_line()
        line = f"camelid: error: {' '.join(text.split())}"
        click.echo(click.style(_sanitized(line), fg="red"), err=True, color=self._color)

    def _show(self, theme: Theme, text: str) -> None:
        if theme.section != self._section or theme.is_first:
            self._end_line()
            self._section = theme.section
            self._write(theme.section)
        self._n_shown += len(text) if theme.section == ANSWER else 0
        self._write(text)

    def _write(self, text: str) -> None:
        if text:
            (self._answer if self._section == ANSWER else self._aside)(text)
            self._line_is_empty = text.endswith("\n")

    def _aside(self, text: str) -> None:
        click.echo(click.style(_sanitized(text), dim=True), nl=False, err=True, color=self._color)

    @staticmethod
    def _answer(text: str) -> None:
        """Writes unchanged text to a file or pipe; click.echo would strip escape sequences."""
        sys.stdout.write(_sanitized(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def _end_line(self) -> None:
        if not self._line_is_empty:
            click.echo(err=self._section != ANSWER)
            self._line_is_empty = True


def _sanitized(text: str) -> str:
    return CONTROLS.sub("?", text)
