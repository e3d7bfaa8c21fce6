"""Parser of GBNF, the grammar language of llama.cpp (its grammars/README.md).

A rule is `name ::= alternatives`; a newline ends it except within parentheses, after `::=` and after `|`. Two
differences from llama.cpp: a maximum above 2,000 repetitions is enforced, not read as no maximum, and an
empty class `[]` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from camelid.errors import RequestError
from camelid.text.grammar.rules import (
    MAX_CODE_POINT,
    Chars,
    Choice,
    Expr,
    Range,
    Ref,
    Repeat,
    Rules,
    Sequence,
    Text,
    Tokens,
    complement,
)

SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
NEWLINE = re.compile(r"\r\n|\r|\n|\Z")
NAME = re.compile(r"[a-zA-Z0-9-]+")
DEFINED_AS = re.compile("::=")
NUMBER = re.compile(r"[0-9]{1,9}(?![0-9])")
TOKEN_ID = re.compile(r"<\[([0-9]{1,9})\]>")
TOKEN_TEXT = re.compile(r"<[^\[>][^>]*>")
ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([trn\\\"\[\]-]))",
)
ESCAPES = {"t": "\t", "r": "\r", "n": "\n"}  # every other escaped character stands for itself
TIMES: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse_gbnf(text: str, token_id: Callable[[str], int | None] | None = None) -> Rules:
    """The rules of a GBNF grammar, whose root is `root`; of two rules of one name the last counts.

    `token_id` maps a token in angle brackets, such as `<think>`, to its id. Raises RequestError with line and
    column.
    """
    return Parser(text, token_id or (lambda _: None)).rules()


@dataclass(slots=True)
class Group:
    """A group while it is read: its finished alternatives, and the parts of the current one."""

    start: int  # the text position of the group
    done: list[Expr] = field(default_factory=list[Expr])
    parts: list[Expr] = field(default_factory=list[Expr])

    def end_alternative(self) -> None:
        self.done.append(self.parts[0] if len(self.parts) == 1 else Sequence(tuple(self.parts)))
        self.parts = []

    def expr(self) -> Expr:
        self.end_alternative()
        return self.done[0] if len(self.done) == 1 else Choice(tuple(self.done))


class Parser:
    """A parser of one text. Open groups are a list, not recursion, so nesting has no limit."""

    def __init__(self, text: str, token_id: Callable[[str], int | None]) -> None:
        self.text = text
        self.token_id = token_id
        self.at = 0
        self.groups: list[Group] = []
        self.named: dict[str, int] = {}  # the rules referred to, with the position of the first reference

    def rules(self) -> Rules:
        found: dict[str, Expr] = {}
        self.skip(SPACE_AND_LINES)
        while self.at < len(self.text):
            name = self.expect(NAME, "the name of a rule: letters, digits and dashes").group()
            found[name] = self.rule()
        if "root" not in found:
            raise self.error("there is no rule `root`, where a grammar starts", len(self.text))
        for name, at in self.named.items():
            if name not in found:
                raise self.error(f"there is no rule {name!r:.80}; define it or correct the name", at)
        return Rules(found)

    def rule(self) -> Expr:
        self.skip(SPACE)
        self.expect(DEFINED_AS, "`::=`")
        self.skip(SPACE_AND_LINES)
        self.groups = [Group(self.at)]
        while (item := self.text[self.at : self.at + 1]) and item not in "\r\n":
            self.item(item)
        if len(self.groups) > 1:
            raise self.error("this `(` is never closed", self.groups[-1].start)
        self.expect(NEWLINE, "a newline")
        self.skip(SPACE_AND_LINES)
        return self.groups[0].expr()

    def item(self, char: str) -> None:
        """Reads the item that begins with a character, and the white space behind it."""
        read = ITEMS.get(char)
        if read is not None:
            read(self)
        elif NAME.match(char):
            self.reference()
        else:
            raise self.error(
                f'unexpected {char!r}; expected a name, "text", [characters], (group), <token>, `.`, '
                "`|` or a newline",
                self.at,
            )
        self.skip(SPACE_AND_LINES if len(self.groups) > 1 else SPACE)

    def reference(self) -> None:
        at, name = self.at, self.expect(NAME, "a name").group()
        self.named.setdefault(name, at)
        self.add(Ref(name))

    def literal(self) -> None:
        start, chars = self.at, list[str]()
        self.at += 1
        while not self.take('"'):
            chars.append(self.char(start))
        self.add(Text("".join(chars)))

    def char_class(self) -> None:
        start, ranges = self.at, list[Range]()
        self.at += 1
        negated = self.take("^")
        while not self.take("]"):
            ranges.append(self.range(start))
        if not ranges:
            raise self.error("an empty class matches nothing; write `.` for any character", start)
        merged = merge(ranges)
        self.add(Chars(complement(merged) if negated else merged))

    def range(self, start: int) -> Range:
        at, first = self.at, ord(self.char(start))
        if not self.text.startswith("-", self.at) or self.text.startswith("-]", self.at):
            return first, first
        self.at += 1
        last = ord(self.char(start))
        if first > last:
            raise self.error("this range ends before it begins; swap its ends", at)
        return first, last

    def char(self, start: int) -> str:
        """Reads one character, escaped or not, of the literal or class that began at `start`."""
        char = self.text[self.at : self.at + 1]
        if char == "\\":
            return self.escape()
        if not char:
            raise self.error("this text or class is never closed", start)
        if 0xD800 <= ord(char) < 0xE000:
            raise self.error("a lone surrogate is not a character", self.at)
        self.at += 1
        return char

    def escape(self) -> str:
        at = self.at
        match = self.expect(ESCAPE, r"an escape: \t \r \n \\ \" \[ \] \- \xHH \uHHHH or \UHHHHHHHH")
        two, four, eight, char = match.groups()
        if char:
            return ESCAPES.get(char, char)
        code_point = int(two or four or eight, 16)
        if code_point > MAX_CODE_POINT or 0xD800 <= code_point < 0xE000:
            raise self.error(f"U+{code_point:04X} is not a character; the last is U+10FFFF", at)
        return chr(code_point)

    def token(self) -> None:
        negated = self.take("!")
        by_id = TOKEN_ID.match(self.text, self.at)
        if by_id:
            self.at = by_id.end()
            self.add(Tokens(frozenset({int(by_id.group(1))}), negated))
            return
        at, text = self.at, self.expect(TOKEN_TEXT, "a token: <text> or <[id]>").group()
        found = self.token_id(text)
        if found is None:
            raise self.error(
                f"{text!r:.80} is not one token of this vocabulary; put text in quotes, or give an id: <[7]>",
                at,
            )
        self.add(Tokens(frozenset({found}), negated))

    def any_char(self) -> None:
        self.at += 1
        self.add(ANY)

    def open(self) -> None:
        self.groups.append(Group(self.at))
        self.at += 1

    def close(self) -> None:
        if len(self.groups) == 1:
            raise self.error("this `)` closes nothing", self.at)
        self.at += 1
        expr = self.groups.pop().expr()
        self.add(expr)

    def alternative(self) -> None:
        self.at += 1
        self.groups[-1].end_alternative()
        self.skip(SPACE_AND_LINES)

    def times(self) -> None:
        least, most = TIMES[self.text[self.at]]
        self.repeat(self.at, least, most)
        self.at += 1

    def counts(self) -> None:
        start = self.at
        self.at += 1
        least = self.count()
        most: int | None = least
        if self.take(","):
            self.skip(SPACE)
            most = None if self.text.startswith("}", self.at) else self.count()
        if not self.take("}"):
            raise self.error("expected `}`: a repetition is {2}, {2,} or {2,5}", self.at)
        if most is not None and most < least:
            raise self.error(f"{{{least},{most}}} ends before it begins; swap the numbers", start)
        self.repeat(start, least, most)

    def count(self) -> int:
        self.skip(SPACE)
        count = int(self.expect(NUMBER, "a number of at most nine digits").group())
        self.skip(SPACE)
        return count

    def repeat(self, at: int, least: int, most: int | None) -> None:
        parts = self.groups[-1].parts
        if not parts:
            raise self.error("this repetition has nothing to repeat", at)
        parts[-1] = Repeat(parts[-1], least, most)

    def add(self, expr: Expr) -> None:
        self.groups[-1].parts.append(expr)

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def take(self, char: str) -> bool:
        taken = self.text.startswith(char, self.at)
        self.at += len(char) if taken else 0
        return taken

    def expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            got = self.text[self.at : self.at + 20] or "the end"
            raise self.error(f"expected {what}, found {got!r}", self.at)
        self.at = match.end()
        return match

    def error(self, message: str, at: int) -> RequestError:
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return RequestError(
            f"grammar line {line}, column {column}: {message}", field="grammar", line=line, column=column
        )


ANY = Chars(complement(()))
ITEMS: dict[str, Callable[[Parser], None]] = {
    '"': Parser.literal,
    "[": Parser.char_class,
    "<": Parser.token,
    "!": Parser.token,
    ".": Parser.any_char,
    "(": Parser.open,
    ")": Parser.close,
    "|": Parser.alternative,
    "{": Parser.counts,
    **dict.fromkeys(TIMES, Parser.times),
}


def merge(ranges: list[Range]) -> tuple[Range, ...]:
    """Sorted ranges, adjacent ranges merged."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)
