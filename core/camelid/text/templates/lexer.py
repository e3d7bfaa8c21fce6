"""The lexer of chat templates, with Jinja's whitespace rules under trim_blocks and lstrip_blocks.

transformers sets these two options and drops one trailing newline. White space is as in `str.strip`, as in
Jinja.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from camelid.errors import TemplateError

NEWLINE = re.compile(r"\r\n|\r|\n")
TAG = re.compile(r"\{%[-+]?|\{\{[-+]?|\{#[-+]?")
RAW = re.compile(r"\{%[-+]?[ \t\n]*raw[ \t\n]*(-%\}|%\})")
ENDRAW = re.compile(r"\{%([-+]?)[ \t\n]*endraw[ \t\n]*([-+]?%\})")
COMMENT_END = re.compile(r"[-+]?#\}")
ENDS = {"{%": re.compile(r"[-+]?%\}"), "{{": re.compile(r"-?\}\}")}
NUMBER = r"(?<!\.)[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][-+]?[0-9]+)?|[0-9]+"
STRING = r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\""
OPERATOR = r"//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,]"
TOKEN = re.compile(
    rf"(?P<space>[ \t\n\f\v]+)|(?P<number>{NUMBER})|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    rf"|(?P<string>{STRING})|(?P<op>{OPERATOR})",
    re.DOTALL,
)
CLOSES = {"(": ")", "[": "]", "{": "}"}
ESCAPE = re.compile(
    r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL
)
ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": "", "a": "\a", "b": "\b",
    "f": "\f", "v": "\v",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """A token of `kind` text, begin ({{ or {%), end, name, number, string, op or eof."""

    kind: str
    value: str
    line: int


class Lexer:
    """A lexer of one template source."""

    def __init__(self, source: str) -> None:
        lines = NEWLINE.split(source)
        if lines[-1] == "":
            lines.pop()
        self.source = "\n".join(lines)
        self.at = 0
        self._counted, self._line = 0, 1

    def tokens(self) -> Iterator[Token]:
        """All tokens of the source; the last is of kind eof. Raises TemplateError with the line."""
        while (tag := TAG.search(self.source, self.at)) is not None:
            raw = RAW.match(self.source, tag.start())
            yield from self._text(tag.start(), tag.group())
            if raw:
                yield from self._raw(raw)
            elif tag.group()[:2] == "{#":
                self._comment(tag)
            else:
                yield from self._tag(tag)
        yield from self._text(len(self.source), "")
        yield Token("eof", "", self._line_at(len(self.source)))

    def _line_at(self, at: int) -> int:
        self._line += self.source.count("\n", self._counted, at)
        self._counted = max(at, self._counted)
        return self._line

    def _fail(self, message: str, at: int) -> TemplateError:
        line = self.source.count("\n", 0, at) + 1
        return TemplateError(f"template line {line}: {message}", line=line)

    def _text(self, end: int, tag: str) -> Iterator[Token]:
        """The text up to a tag, without the white space that the tag strips."""
        start, text = self.at, self.source[self.at : end]
        line_start = text.rfind("\n") + 1
        if tag.endswith("-"):
            text = text.rstrip()
        elif tag in ("{%", "{#") and (line_start > 0 or self.source[start - 1 : start] in ("", "\n")):
            text = text if text[line_start:].strip() else text[:line_start]
        if text:
            yield Token("text", text, self._line_at(start))

    def _close(self, closer: str, at: int) -> None:
        """Advances past the end of a tag and the white space that it strips."""
        self.at = at
        if closer.startswith("-"):
            while self.source[self.at : self.at + 1].isspace():
                self.at += 1
        elif closer in ("%}", "#}") and self.source.startswith("\n", self.at):
            self.at += 1

    def _comment(self, tag: re.Match[str]) -> None:
        end = COMMENT_END.search(self.source, tag.end())
        if end is None:
            raise self._fail("a comment {# has no #}", tag.start())
        self._close(end.group(), end.end())

    def _raw(self, begin: re.Match[str]) -> Iterator[Token]:
        end = ENDRAW.search(self.source, begin.end())
        if end is None:
            raise self._fail("{% raw %} has no {% endraw %}", begin.start())
        self._close("-" if begin.group(1) == "-%}" else "", begin.end())
        yield from self._text(end.start(), "{%" + end.group(1))
        self._close(end.group(2), end.end())

    def _tag(self, tag: re.Match[str]) -> Iterator[Token]:
        kind = tag.group()[:2]
        yield Token("begin", kind, self._line_at(tag.start()))
        self.at, closers = tag.end(), list[str]()
        while closers or (end := ENDS[kind].match(self.source, self.at)) is None:
            match = TOKEN.match(self.source, self.at)
            if match is None or match.lastgroup is None:
                if self.at >= len(self.source):
                    raise self._fail(f"the tag {kind} is not closed", tag.start())
                raise self._fail(f"unexpected character {self.source[self.at]!r}", self.at)
            self._balance(match, closers)
            if match.lastgroup != "space":
                yield Token(match.lastgroup, match.group(), self._line_at(self.at))
            self.at = match.end()
        yield Token("end", kind, self._line_at(self.at))
        self._close(end.group(), end.end())

    def _balance(self, match: re.Match[str], closers: list[str]) -> None:
        """Tracks the open brackets: }} ends a tag only outside of them."""
        value = match.group()
        if match.lastgroup == "op" and value in CLOSES:
            closers.append(CLOSES[value])
        elif match.lastgroup == "op" and value in ")]}" and (not closers or closers.pop() != value):
            raise self._fail(f"unexpected {value!r}", match.start())


def unescape(literal: str) -> str:
    """The value of a quoted string; unknown escapes are kept, as in Python."""

    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code in ESCAPES:
            return ESCAPES[code]
        if code[0] in "xuU" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if code[0] in "01234567" else match.group()

    return ESCAPE.sub(replace, literal[1:-1])
