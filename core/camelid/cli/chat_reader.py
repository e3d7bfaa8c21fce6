"""Input of `camelid chat`: a terminal with history and editing, or plain lines of a pipe.

Three double quotes begin and end a message of several lines. On a terminal Alt-Enter inserts a line break.
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
    """A source of messages."""

    def read(self) -> str:
        """The next message. Raises EOFError at the end and KeyboardInterrupt for Ctrl-C."""
        ...


def is_open(text: str) -> bool:
    """True if the text begins with three quotes and lacks the closing ones."""
    bare = text.strip()
    return bare.startswith(QUOTES) and not (bare.endswith(QUOTES) and len(bare) >= 2 * len(QUOTES))


def unquoted(text: str) -> str:
    """The text without its enclosing three quotes and the line breaks beside them."""
    bare = text.strip()
    if bare.startswith(QUOTES) and bare.endswith(QUOTES) and len(bare) >= 2 * len(QUOTES):
        return bare[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text


class PlainReader:
    """Lines of stdin, without a prompt."""

    def read(self) -> str:
        """The next line, or several between three quotes; the end of input closes an open text."""
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
    except OSError as error:  # the terminal is gone: every further read would fail
        raise EOFError from error


class TerminalReader:
    """A terminal prompt with history, completion of commands, and multi-line editing."""

    def __init__(self, words: Sequence[str], history: Path | None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        self._session: Any = PromptSession(
            history=FileHistory(str(history)) if history else InMemoryHistory(),
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            key_bindings=_bindings(),
            multiline=True,  # lets Enter, bound below, insert a line break
            prompt_continuation=MORE,
        )

    def read(self) -> str:
        """The next message typed at the prompt."""
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

    def insert_break(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    keys.add("enter")(enter)
    keys.add("escape", "enter")(insert_break)
    return keys


def open_reader(words: Sequence[str], history: Path | None, warn: Callable[[str], object]) -> Reader:
    """A `TerminalReader` if stdin and stdout are terminals, else a `PlainReader`."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return PlainReader()
    return TerminalReader(words, _usable(history, warn))


def default_history() -> Path:
    """The history file, in the state directory of the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "camelid" / "chat_history"


def _usable(history: Path | None, warn: Callable[[str], object]) -> Path | None:
    """The history file, created with mode 0600; None, after a warning, if it is not writable."""
    if history is None:
        return None
    try:
        history.parent.mkdir(parents=True, exist_ok=True)
        history.touch(mode=0o600)
        with history.open("ab"):
            return history
    except OSError as error:
        warn(f"warning: the history is not saved: {history}: {error.strerror}")
        return None
