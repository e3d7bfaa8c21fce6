"""Regexes as rules: the subset that is a regular language, as Python's `re` reads it on text.

Literals, escapes, classes, groups, alternation, quantifiers (lazy ones are the same language), the dot, and
`^` and `$` at the ends. Whatever looks around, refers back or sets flags is refused by name and place.
Classes outside ASCII: `char_classes`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from camelid.errors import RequestError
from camelid.text.grammar.char_classes import EVERY, SHORTHANDS, Ranges, shorthand, union
from camelid.text.grammar.rules import Chars, Choice, Expr, Repeat, Rules, Sequence, Text, complement

MAX_PATTERN = 16_384  # characters
MAX_GROUP_DEPTH = 40
MAX_COUNT = 2_000  # of one quantifier
MAX_COPIES = 20_000  # characters and classes, once every counted repeat is written out
NOTHING = Sequence(())
ANY_TEXT = Repeat(Chars(EVERY))

QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
COUNTED = re.compile(r"\{(?=[0-9,])([0-9]*)(,?)([0-9]*)\}", re.ASCII)
GROUP_NAME = re.compile(r"\?P?<[A-Za-z_][A-Za-z_0-9]*>", re.ASCII)
# What may follow "(?", longest first, and what it is called.
REFUSED_GROUPS = {
    "<=": "lookbehind", "<!": "lookbehind", "P=": "a backreference", "P>": "a recursive group",
    "=": "lookahead", "!": "lookahead", ">": "an atomic group", "#": "a comment", "(": "a conditional group",
}  # fmt: skip
CONTROL_ESCAPES = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7}
HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
REFUSED_ESCAPES = {
    "b": "a word boundary", "B": "a word boundary", "A": "an anchor", "Z": "an anchor", "z": "an anchor",
    "p": "a Unicode property", "P": "a Unicode property", "k": "a backreference", "g": "a backreference",
    "c": "a control escape", "N": "a character by name", "G": "an anchor",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Branch:
    """One alternative of the whole pattern, and whether `^` and `$` tie it to the ends."""

    body: Expr
    starts: bool
    ends: bool


def rules_of_regex(pattern: str) -> Rules:
    """Texts that the pattern matches as a whole, as `re.fullmatch` does. Raises RequestError."""
    branches = parse(pattern)
    return Rules({"root": Choice(tuple(branch.body for branch in branches))})


def searched(pattern: str, wide: bool = False) -> Expr:
    """Texts in which `re.search` finds the pattern: free before and after wherever no anchor stands.

    `wide` takes every class and `$` in its wide reading (Python's `$` also stands before a last newline).
    """
    tail = Repeat(Text("\n"), 0, 1) if wide else NOTHING
    return Choice(
        tuple(
            Sequence(
                (NOTHING if b.starts else ANY_TEXT, b.body, tail if b.ends else ANY_TEXT),
            )
            for b in parse(pattern, wide)
        )
    )


def parse(pattern: str, wide: bool = False) -> list[Branch]:
    """The alternatives of a pattern. Raises RequestError with `position` where it is not understood."""
    if len(pattern) > MAX_PATTERN:
        raise RequestError(
            f"the regex has {len(pattern)} characters; at most {MAX_PATTERN} are allowed",
            field="grammar",
            limit=MAX_PATTERN,
        )
    return _Parser(pattern, wide).whole()


@dataclass(slots=True)
class _Parser:
    pattern: str
    wide: bool
    at: int = 0
    depth: int = 0
    copies: int = 0  # characters and classes so far, repeats written out

    def fail(self, what: str, at: int | None = None) -> NoReturn:
        position = self.at if at is None else at
        raise RequestError(
            f"regex: {what} at position {position} of {self.pattern!r:.80}",
            field="grammar",
            position=position,
        )

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def whole(self) -> list[Branch]:
        branches = [self.top_branch()]
        while self.take("|"):
            branches.append(self.top_branch())
        if self.at < len(self.pattern):
            self.fail("')' closes no group")
        return branches

    def top_branch(self) -> Branch:
        starts = self.take("^")
        body = self.items()
        return Branch(body, starts, self.closes())

    def closes(self) -> bool:
        """Read a `$` that ends a branch of the whole pattern."""
        if not self.take("$"):
            return False
        if self.peek() not in {"", "|"}:
            self.fail("'$' stands elsewhere than at the end", self.at - 1)
        return True

    def items(self) -> Expr:
        """What stands between two bars or brackets."""
        parts: list[Expr] = []
        while (char := self.peek()) and char not in "|)$":
            start = self.copies
            atom = self.atom()
            parts.append(self.quantified(atom, start))
        return Sequence(tuple(parts))

    def atom(self) -> Expr:
        self.count(1)
        char = self.peek()
        if char in ("*", "+", "?") or COUNTED.match(self.pattern, self.at):
            self.fail(f"the quantifier {char!r} has nothing to repeat")
        if char == "^":
            self.fail("'^' stands elsewhere than at the start")
        self.at += 1
        match char:
            case "(":
                return self.group()
            case "[":
                return Chars(self.bracket())
            case ".":
                return Chars(shorthand(".", self.wide))
            case "\\":
                return self.escape()
            case _:
                return Text(self.checked(char))

    def checked(self, char: str) -> str:
        if 0xD800 <= ord(char) <= 0xDFFF:
            self.fail(f"a lone surrogate, U+{ord(char):04X}, is no character", self.at - 1)
        return char

    def count(self, n: int) -> None:
        self.copies += n
        if self.copies > MAX_COPIES:
            self.fail(f"with its repeats written out the regex has more than {MAX_COPIES} parts")

    def group(self) -> Expr:
        if self.depth >= MAX_GROUP_DEPTH:
            self.fail(f"groups nest deeper than {MAX_GROUP_DEPTH}")
        start = self.at
        self.open_group()
        self.depth += 1
        branches = [self.items()]
        while self.take("|"):
            branches.append(self.items())
        self.depth -= 1
        if self.peek() == "$":
            self.fail("'$' stands elsewhere than at the end")
        if not self.take(")"):
            self.fail("'(' is never closed", start - 1)
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def open_group(self) -> None:
        """Skip what makes a group plain: nothing, `?:` or a name."""
        if self.peek() != "?" or self.take("?:"):
            return
        if name := GROUP_NAME.match(self.pattern, self.at):
            self.at = name.end()
            return
        rest = self.pattern[self.at + 1 :]
        named = next((what for text, what in REFUSED_GROUPS.items() if rest.startswith(text)), "a flag")
        self.fail(f"{named} '({self.pattern[self.at : self.at + 3]}' is not supported", self.at - 1)

    def quantified(self, atom: Expr, copies_before: int) -> Expr:
        """`atom` with the quantifier that follows, if one does."""
        start = self.at
        bounds = self.quantifier()
        if bounds is None:
            return atom
        if self.peek() == "+":
            self.fail("a possessive quantifier is not supported", start)
        self.take("?")
        if self.peek() in ("*", "+", "?") or COUNTED.match(self.pattern, self.at):
            self.fail("a quantifier follows a quantifier")
        least, most = bounds
        self.count((self.copies - copies_before) * (max(least, most or least) - 1))
        return Repeat(atom, least, most)

    def quantifier(self) -> tuple[int, int | None] | None:
        if simple := QUANTIFIERS.get(self.peek()):
            self.at += 1
            return simple
        found = COUNTED.match(self.pattern, self.at)
        if not found:  # any other brace is text
            return None
        least = counted(found[1])
        most = (counted(found[3]) if found[3] else None) if found[2] else least
        if max(least, most or 0) > MAX_COUNT:
            self.fail(f"the count in {found[0]:.40} is above {MAX_COUNT}")
        if most is not None and most < least:
            self.fail(f"the bounds of {found[0]:.40} are the wrong way round")
        self.at = found.end()
        return least, most

    def escape(self) -> Expr:
        letter = self.peek()
        if letter in SHORTHANDS:
            self.at += 1
            return Chars(shorthand(letter, self.wide))
        if what := REFUSED_ESCAPES.get(letter):
            self.fail(f"{what} '\\{letter}' is not supported", self.at - 1)
        return Text(chr(self.code_point()))

    def code_point(self) -> int:
        """The character after a backslash that stands for just one."""
        letter = self.peek()
        start = self.at - 1
        self.at += 1
        if letter in HEX_ESCAPES:
            return self.hexadecimal(letter, start)
        if letter in CONTROL_ESCAPES:
            return CONTROL_ESCAPES[letter]
        if letter == "0" and self.peek() not in tuple("0123456789"):
            return 0
        if letter in tuple("0123456789"):
            self.fail(f"a backreference or octal escape '\\{letter}' is not supported", start)
        if not letter or (letter.isascii() and letter.isalpha()):
            self.fail(f"'\\{letter}' is no escape", start)
        return ord(self.checked(letter))

    def hexadecimal(self, letter: str, start: int) -> int:
        size = HEX_ESCAPES[letter]
        digits = self.pattern[self.at : self.at + size]
        if not re.fullmatch(f"[0-9a-fA-F]{{{size}}}", digits):
            self.fail(f"'\\{letter}' needs {size} hexadecimal digits", start)
        self.at += size
        value = int(digits, 16)
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            self.fail(f"'\\{letter}{digits}' is no character", start)
        return value

    def bracket(self) -> Ranges:
        """A class after its `[`; `]` as its first member is text, as Python has it."""
        start = self.at - 1
        negated = self.take("^")
        # What a negated class leaves out must be read the other way round.
        wide = self.wide != negated
        ranges = list(self.member(wide, start))
        while not self.take("]"):
            ranges.extend(self.member(wide, start))
        found = union(ranges)
        return complement(found) if negated else found

    def member(self, wide: bool, start: int) -> Ranges:
        """One character, range or shorthand of a class."""
        place = self.at
        first = self.bound(wide, start)
        if not self.pattern.startswith("-", self.at) or self.pattern.startswith("-]", self.at):
            return first if isinstance(first, tuple) else ((first, first),)
        self.at += 1
        last = self.bound(wide, start)
        if isinstance(first, tuple) or isinstance(last, tuple):
            self.fail("a class cannot bound a range", place)
        if last < first:
            self.fail("a range is the wrong way round", place)
        return ((first, last),)

    def bound(self, wide: bool, start: int) -> int | Ranges:
        """A code point, or the ranges of a shorthand."""
        char = self.peek()
        if not char:
            self.fail("'[' is never closed", start)
        self.at += 1
        if char != "\\":
            return ord(self.checked(char))
        letter = self.peek()
        if letter in SHORTHANDS:
            self.at += 1
            return shorthand(letter, wide)
        if letter == "b":  # a backspace inside a class
            self.at += 1
            return 8
        return self.code_point()


def counted(digits: str) -> int:
    """The number, or one that is too large as well."""
    return int(digits.lstrip("0")[:9] or 0)
