"""Regexes to rules: the regular subset of Python's `re` on text.

Supported: literals, escapes, classes, groups, alternation, quantifiers (lazy ones match the same language),
the dot, and `^` and `$` at the ends. Lookaround, backreferences and flags are refused with name and position.
For classes outside ASCII see `char_classes`.
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
MAX_COPIES = 20_000  # characters and classes, with every counted repeat expanded
NOTHING = Sequence(())
ANY_TEXT = Repeat(Chars(EVERY))

QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
COUNTED = re.compile(r"\{(?=[0-9,])([0-9]*)(,?)([0-9]*)\}", re.ASCII)
GROUP_NAME = re.compile(r"\?P?<[A-Za-z_][A-Za-z_0-9]*>", re.ASCII)
# The refused groups by the text after "(?", longest first, with their names.
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
    """One alternative of the whole pattern; `starts` and `ends` are True if `^` and `$` anchor it."""

    body: Expr
    starts: bool
    ends: bool


def rules_of_regex(pattern: str) -> Rules:
    """The rules of the texts that `re.fullmatch` matches. Raises RequestError."""
    branches = parse(pattern)
    return Rules({"root": Choice(tuple(branch.body for branch in branches))})


def searched(pattern: str, wide: bool = False) -> Expr:
    """The texts in which `re.search` finds the pattern: any text before and after where no anchor stands.

    `wide` selects the wide reading of classes and `$` (Python's `$` also matches before a final newline).
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
    """The alternatives of a pattern.

    Raises RequestError with `position` for invalid or unsupported syntax.
    """
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
    copies: int = 0  # characters and classes so far, repeats expanded

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
        """Reads a `$` at the end of a top-level branch."""
        if not self.take("$"):
            return False
        if self.peek() not in {"", "|"}:
            self.fail("'$' is supported only at the end", self.at - 1)
        return True

    def items(self) -> Expr:
        """Reads the items up to a bar or a closing bracket."""
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
            self.fail("'^' is supported only at the start")
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
            self.fail(f"a lone surrogate, U+{ord(char):04X}, is not a character", self.at - 1)
        return char

    def count(self, n: int) -> None:
        self.copies += n
        if self.copies > MAX_COPIES:
            self.fail(f"with repeats expanded the regex has more than {MAX_COPIES} parts")

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
            self.fail("'$' is supported only at the end")
        if not self.take(")"):
            self.fail("'(' is never closed", start - 1)
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def open_group(self) -> None:
        """Skips the opening of a plain group: nothing, `?:` or a name."""
        if self.peek() != "?" or self.take("?:"):
            return
        if name := GROUP_NAME.match(self.pattern, self.at):
            self.at = name.end()
            return
        rest = self.pattern[self.at + 1 :]
        named = next((what for text, what in REFUSED_GROUPS.items() if rest.startswith(text)), "a flag")
        self.fail(f"{named} '({self.pattern[self.at : self.at + 3]}' is not supported", self.at - 1)

    def quantified(self, atom: Expr, copies_before: int) -> Expr:
        """`atom` with the quantifier that follows it, if any."""
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
            self.fail(f"the minimum of {found[0]:.40} is above its maximum")
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
        """Reads the escape of a single character, after its backslash."""
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
            self.fail(f"'\\{letter}' is not an escape", start)
        return ord(self.checked(letter))

    def hexadecimal(self, letter: str, start: int) -> int:
        size = HEX_ESCAPES[letter]
        digits = self.pattern[self.at : self.at + size]
        if not re.fullmatch(f"[0-9a-fA-F]{{{size}}}", digits):
            self.fail(f"'\\{letter}' needs {size} hexadecimal digits", start)
        self.at += size
        value = int(digits, 16)
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            self.fail(f"'\\{letter}{digits}' is not a character", start)
        return value

    def bracket(self) -> Ranges:
        """Reads a class after its `[`; a `]` as its first member is a literal, as in Python."""
        start = self.at - 1
        negated = self.take("^")
        # The complement of the narrow reading is the wide reading of a negated class, and vice versa.
        wide = self.wide != negated
        ranges = list(self.member(wide, start))
        while not self.take("]"):
            ranges.extend(self.member(wide, start))
        found = union(ranges)
        return complement(found) if negated else found

    def member(self, wide: bool, start: int) -> Ranges:
        """Reads one character, range or shorthand of a class."""
        place = self.at
        first = self.bound(wide, start)
        if not self.pattern.startswith("-", self.at) or self.pattern.startswith("-]", self.at):
            return first if isinstance(first, tuple) else ((first, first),)
        self.at += 1
        last = self.bound(wide, start)
        if isinstance(first, tuple) or isinstance(last, tuple):
            self.fail("a class cannot bound a range", place)
        if last < first:
            self.fail("a range ends before it begins", place)
        return ((first, last),)

    def bound(self, wide: bool, start: int) -> int | Ranges:
        """Reads a code point, or the ranges of a shorthand."""
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
    """The value of a count; of a very long one its first nine digits, which exceed MAX_COUNT too."""
    return int(digits.lstrip("0")[:9] or 0)
