"""Where a chat's lines come from: a terminal with history and editing, or plain lines of a pipe.

Three double quotes begin and end a text of several lines. On a terminal Alt-Enter begins a line, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

QUOTES = '"""'
PROMPT, MORE = ">>> ", "... "


class Reader(Protocol):
    """Gives what was typed, a text at a time."""

    def read(self) -> str:
        """The next text. EOFError at the end; KeyboardInterrupt for Ctrl-C."""
        ...


def is_open(text: str) -> bool:
    """Whether a text of several lines has begun and not ended."""
    begun = text.lstrip()
    ended = text.rstrip()
    return begun.startswith(QUOTES) and not (
        ended.endswith(QUOTES) and len(ended.lstrip()) >= 2 * len(QUOTES)
    )


def unquoted(text: str) -> str:
    """The text without the quotes around it, and without the line breaks beside them."""
    bare = text.strip()
    if bare.startswith(QUOTES) and bare.endswith(QUOTES) and len(bare) >= 2 * len(QUOTES):
        return bare[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text


class PlainReader:
    """Lines of stdin, without a prompt."""

    def read(self) -> str:
        """The next line, or several between quotes; a text that the end cuts off counts as it is."""
        text = _line()
        if not text:
            raise EOFError
        while is_open(text):
            more = _line()
            if not more:
                break
            text += more
        return text.removesuffix("\n")


def _line() -> str:
    try:
        return sys.stdin.readline()
    except OSError as error:  # the terminal is gone, and every further read would say so
        raise EOFError from error


class TerminalReader:
    """A prompt with history, completion of commands, and editing of several lines."""

    def __init__(self, words: Sequence[str], history: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        self._session: Any = PromptSession(
            history=FileHistory(str(history)) if history else InMemoryHistory(),
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            key_bindings=_bindings(),
            multiline=True,  # Enter is bound below, so that it can also begin a line
            prompt_continuation=MORE,
        )

    def read(self) -> str:
        """What was typed."""
        return self._session.prompt(PROMPT)


def _bindings() -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def enter(event: Any) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def begin_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    keys.add("enter")(enter)
    keys.add("escape", "enter")(begin_line)
    return keys


def open_reader(words: Sequence[str], history: Path | None, warn: Callable[[str], object]) -> Reader:
    """A terminal's reader if stdin and stdout are one, else plain lines."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return PlainReader()
    return TerminalReader(words, _usable(history, warn))


def default_history() -> Path:
    """Where lines are kept between chats, as the XDG base directories have it."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "camelid" / "chat_history"


def _usable(history: Path | None, warn: Callable[[str], object]) -> Path | None:
    """The file, readable by its owner alone; None, with a warning, if it cannot be written."""
    if history is None:
        return None
    try:
        history.parent.mkdir(parents=True, exist_ok=True)
        history.touch(mode=0o600)
        with history.open("ab"):
            return history
    except OSError as error:
        warn(f"warning: no history is kept: {history}: {error.strerror}")
        return None
