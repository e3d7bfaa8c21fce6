"""Text that arrives in pieces, read by generators that pause until more text arrives."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
# A generator that yields while it needs more text, and returns a T. Its result is independent of how the text
# is cut: it decides on characters that have arrived, or on the end of the text.
Wait: TypeAlias = Generator[None, None, T]
Sink: TypeAlias = Callable[[str], object]
SPACE = re.compile(r"[ \t\r\n]*")
HEAD_LIMIT = 1 << 16  # characters of a call held back before its arguments begin
VALUE_LIMIT = 1 << 20  # characters of one argument whose type is known only at its end


class InvalidCall(Exception):
    """The text is not a valid call. Caught by the parser."""


class StringSet:
    """A set of strings that are searched for at once."""

    def __init__(self, strings: tuple[str, ...]) -> None:
        self.strings = sorted({text for text in strings if text}, key=len, reverse=True)
        self.longest = max(map(len, self.strings), default=0)
        self._prefixes = {text[:end] for text in self.strings for end in range(1, len(text))}
        self._pattern = re.compile("|".join(map(re.escape, self.strings)) or r"(?!)")

    def find(self, text: str, at: int, closed: bool) -> tuple[int, int]:
        """The span of the first match, the longest at its position.

        An empty span at `begin` means: no match before it, and the text from there may be the beginning of a
        match.
        """
        found = self._pattern.search(text, at)
        start, end = found.span() if found else (len(text), len(text))
        if not closed:
            for begin in range(max(at, len(text) - self.longest + 1), min(start + 1, len(text))):
                if text[begin:] in self._prefixes:
                    return begin, begin
        return start, end

    def may_begin(self, text: str) -> bool:
        """True if the text may become a match, or a longer match, when more text arrives."""
        return (not text and bool(self.strings)) or text in self._prefixes


@lru_cache(maxsize=1024)
def string_set(*texts: str) -> StringSet:
    """The cached `StringSet` of some strings."""
    return StringSet(texts)


class Feed:
    """The text that has arrived and is not read yet, and the text read of a call that is not certain yet."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.closed = False
        self._held: list[str] | None = None
        self._room: int = 0

    def push(self, text: str) -> None:
        """Appends text."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def hold(self, text: str = "", limit: int = HEAD_LIMIT) -> None:
        """Begins to record the text read; more than `limit` characters raise InvalidCall."""
        self._held = [text]
        self._room = limit

    def release(self) -> str:
        """Ends the recording and returns the text read since `hold`."""
        held, self._held = self._held or [], None
        return "".join(held)

    def take(self, length: int) -> str:
        """Reads the next characters.

        Raises InvalidCall beyond the limit of `hold`, after one character more: the limit is then independent
        of how the text was cut.
        """
        if self._held is not None:
            length = min(length, self._room + 1)
        piece = self.text[self.at : self.at + length]
        self.at += length
        if self._held is not None and piece:
            self._held.append(piece)
            self._room -= length
            if self._room < 0:
                raise InvalidCall
        return piece

    def peek(self) -> Wait[str]:
        """The next character, without reading it; "" at the end."""
        while self.at == len(self.text):
            if self.closed:
                return ""
            yield
        return self.text[self.at]

    def run(self, pattern: re.Pattern[str]) -> Wait[str]:
        """Reads characters of a class, given as the pattern `[...]*`."""
        pieces: list[str] = []
        while (yield from self.peek()):
            found = pattern.match(self.text, self.at)
            if not found or found.end() == self.at:
                break
            pieces.append(self.take(found.end() - self.at))
        return "".join(pieces)

    def literal(self, *texts: str) -> Wait[str]:
        """Reads the longest of the texts that comes next; "" if none does."""
        strings = string_set(*texts)
        while True:
            rest = self.text[self.at : self.at + strings.longest]
            if not self.closed and strings.may_begin(rest):
                yield
                continue
            return self.take(next((len(text) for text in strings.strings if rest.startswith(text)), 0))

    def until(self, strings: StringSet, sink: Sink) -> Wait[str]:
        """Reads up to and including the next match, "" at the end; `sink` receives the text before it."""
        while True:
            begin, end = strings.find(self.text, self.at, self.closed)
            length = end - begin
            if begin > self.at:
                sink(self.take(begin - self.at))
            if length:
                return self.take(length)
            if self.closed:
                return ""
            yield
