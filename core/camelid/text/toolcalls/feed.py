"""Text that is still coming, read by generators that pause where more of it is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

T = TypeVar("T")
# A generator that yields when it needs more text, and returns a T. What it returns never depends on
# how the text was cut: it decides only on characters that are there, or on the end.
Wait: TypeAlias = Generator[None, None, T]
Sink: TypeAlias = Callable[[str], object]
SPACE = re.compile(r"[ \t\r\n]*")
HEAD_LIMIT = 1 << 16  # characters of a call held back before it is one
VALUE_LIMIT = 1 << 20  # characters of one argument whose type is known only at its end


class Broken(Exception):
    """Not the call that it began like. Never leaves the parser."""


class Words:
    """Strings to look for, all at once."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = sorted({word for word in words if word}, key=len, reverse=True)
        self.longest = max(map(len, self.words), default=0)
        self._begun = {word[:end] for word in self.words for end in range(1, len(word))}
        self._pattern = re.compile("|".join(map(re.escape, self.words)) or r"(?!)")

    def find(self, text: str, at: int, closed: bool) -> tuple[int, int]:
        """The span of the first word, of those the longest. An empty span: none before it, and what
        comes there may be the beginning of one."""
        found = self._pattern.search(text, at)
        start, end = found.span() if found else (len(text), len(text))
        if not closed:
            for begin in range(max(at, len(text) - self.longest + 1), min(start + 1, len(text))):
                if text[begin:] in self._begun:
                    return begin, begin
        return start, end

    def may_begin(self, text: str) -> bool:
        """Whether the text, if more comes, may become a word or a longer one."""
        return (not text and bool(self.words)) or text in self._begun


@lru_cache(maxsize=1024)
def words(*texts: str) -> Words:
    """The same Words for the same strings."""
    return Words(texts)


class Feed:
    """The text pushed and not yet read, and what was read of a call that is not sure to be one."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.closed = False
        self._held: list[str] | None = None
        self._room: int = 0

    def push(self, text: str) -> None:
        """More text, at the end."""
        self.text = self.text[self.at :] + text
        self.at = 0

    def hold(self, text: str = "", limit: int = HEAD_LIMIT) -> None:
        """From here on, remember what is read; more than `limit` characters break the call."""
        self._held = [text]
        self._room = limit

    def let_go(self) -> str:
        """Stop remembering; what was read since `hold`."""
        held, self._held = self._held or [], None
        return "".join(held)

    def take(self, length: int) -> str:
        """The next characters, read. Broken if that is more than may be held; one more is read then, so that
        it does not matter how the text was cut."""
        if self._held is not None:
            length = min(length, self._room + 1)
        piece = self.text[self.at : self.at + length]
        self.at += length
        if self._held is not None and piece:
            self._held.append(piece)
            self._room -= length
            if self._room < 0:
                raise Broken
        return piece

    def peek(self) -> Wait[str]:
        """The next character, not read; "" at the end."""
        while self.at == len(self.text):
            if self.closed:
                return ""
            yield
        return self.text[self.at]

    def run(self, pattern: re.Pattern[str]) -> Wait[str]:
        """The characters up to the first that is none of a class, given as `[...]*`."""
        pieces: list[str] = []
        while (yield from self.peek()):
            found = pattern.match(self.text, self.at)
            if not found or found.end() == self.at:
                break
            pieces.append(self.take(found.end() - self.at))
        return "".join(pieces)

    def literal(self, *texts: str) -> Wait[str]:
        """Which of the texts comes next, the longest that does, read; "" if none."""
        wanted = words(*texts)
        while True:
            rest = self.text[self.at : self.at + wanted.longest]
            if not self.closed and wanted.may_begin(rest):
                yield
                continue
            return self.take(next((len(word) for word in wanted.words if rest.startswith(word)), 0))

    def until(self, wanted: Words, sink: Sink) -> Wait[str]:
        """The next word, read, or "" at the end; the text before it goes into `sink` as it comes."""
        while True:
            begin, end = wanted.find(self.text, self.at, self.closed)
            length = end - begin
            if begin > self.at:
                sink(self.take(begin - self.at))
            if length:
                return self.take(length)
            if self.closed:
                return ""
            yield
