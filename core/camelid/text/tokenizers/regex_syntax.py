"""A compiler of pre-tokenizer regexes, in Oniguruma's dialect, to programs of four instructions.

Supported: literals, classes with properties, groups, alternation, greedy and lazy repeats, possessive repeats
that do not change the match, (?i:…) over ASCII, and lookahead for one character. Other syntax is refused with
its name and position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NoReturn

from camelid.errors import UnsupportedModelError
from camelid.text.grammar.char_classes import EVERY, LINE_FEED, Ranges, unicode_class, union
from camelid.text.grammar.rules import complement
from camelid.text.unicode_tables import rows

MAX_REGEX = 4096  # characters
MAX_DEPTH = 32  # nesting of groups and sets
MAX_PROGRAM = 2048  # instructions; counted repeats are expanded

CHAR, SPLIT, LOOK, MATCH = range(4)
COUNTED = re.compile(r"\{([0-9]{1,4})(,?)([0-9]{0,4})\}")
PROPERTY = re.compile(r"\\([pP])\{(\^?)([A-Za-z]+)\}")
HEX = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\})")
CLASSES = {"s": "space", "d": "Nd", "w": "word"}
CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7, "e": 27}
# Non-ASCII characters that equal an ASCII letter when case is ignored.
FOLDED = {"s": 0x17F, "k": 0x212A}


@dataclass(frozen=True, slots=True)
class Instruction:
    """CHAR continues at `then` over a character of `chars`; SPLIT tries `then` before `other`.

    LOOK continues if the next character is in `chars`; with `negative`, if it is not or the text has ended.
    """

    op: int
    then: int = 0
    other: int = 0
    chars: Ranges = ()
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """Part of a regex. `emit` appends its instructions, which continue at `then`, and returns their start."""

    emit: Callable[[list[Instruction], int], int]
    nullable: bool
    first: Ranges  # the characters that a match may begin with
    chars: Ranges | None = None  # for an item of one character
    possessive: bool = False


def compile_regex(regex: str) -> tuple[list[Instruction], int]:
    """The program of a regex and its start. Raises UnsupportedModelError."""
    parser = Parser(regex)
    if len(regex) > MAX_REGEX:
        parser.refuse(f"is longer than {MAX_REGEX} characters")
    item = parser.alternatives(fold=False)
    if parser.at < len(regex):
        parser.refuse("has a ) that closes nothing")
    if item.nullable:
        parser.refuse("matches the empty text")
    program: list[Instruction] = [Instruction(MATCH)]
    return program, item.emit(program, 0)


def char(chars: Ranges) -> Item:
    def emit(program: list[Instruction], then: int) -> int:
        return add(program, Instruction(CHAR, then, chars=chars))

    return Item(emit, nullable=False, first=chars, chars=chars)


def look(chars: Ranges, negative: bool) -> Item:
    def emit(program: list[Instruction], then: int) -> int:
        return add(program, Instruction(LOOK, then, chars=chars, negative=negative))

    return Item(emit, nullable=True, first=EVERY)


def chain(items: Sequence[Item]) -> Item:
    """The items in sequence."""

    def emit(program: list[Instruction], then: int) -> int:
        for item in reversed(items):
            then = item.emit(program, then)
        return then

    chars = items[0].chars if len(items) == 1 else None
    return Item(emit, all(item.nullable for item in items), first_of(items), chars)


def first_of(items: Iterable[Item]) -> Ranges:
    found: list[tuple[int, int]] = []
    for item in items:
        found += item.first
        if not item.nullable:
            break
    return union(found)


def either(items: Sequence[Item]) -> Item:
    """The first item that leads to a match."""

    def emit(program: list[Instruction], then: int) -> int:
        start = items[-1].emit(program, then)
        for item in reversed(items[:-1]):
            start = add(program, Instruction(SPLIT, item.emit(program, then), start))
        return start

    if len(items) == 1:
        return items[0]
    first = union(pair for item in items for pair in item.first)
    return Item(emit, any(item.nullable for item in items), first)


def repeat(item: Item, least: int, most: int | None, *, lazy: bool) -> Item:
    """`item` from `least` to `most` times, as often as possible, or with `lazy` as rarely as possible."""

    def emit(program: list[Instruction], then: int) -> int:
        if most is None:
            start = loop(program, item, then, lazy)
        else:
            start = then
            for _ in range(most - least):
                start = fork(program, item.emit(program, start), then, lazy)
        for _ in range(least):
            start = item.emit(program, start)
        return start

    return Item(emit, least == 0 or item.nullable, item.first)


def loop(program: list[Instruction], item: Item, then: int, lazy: bool) -> int:
    start = fork(program, 0, then, lazy)
    body = item.emit(program, start)
    program[start] = replace(program[start], **({"other": body} if lazy else {"then": body}))
    return start


def fork(program: list[Instruction], into: int, past: int, lazy: bool) -> int:
    return add(program, Instruction(SPLIT, past, into) if lazy else Instruction(SPLIT, into, past))


def add(program: list[Instruction], instruction: Instruction) -> int:
    if len(program) >= MAX_PROGRAM:
        raise UnsupportedModelError(
            f"tokenizer: a regex needs more than {MAX_PROGRAM} instructions", kind="regex", name="size"
        )
    program.append(instruction)
    return len(program) - 1


@dataclass(slots=True)
class Parser:
    """A recursive-descent parser of one regex."""

    regex: str
    at: int = 0
    depth: int = field(default=0)

    def refuse(self, why: str) -> NoReturn:
        raise UnsupportedModelError(
            f"tokenizer: the regex {self.regex[:80]!r} {why}, at character {self.at}; "
            "add it to tokenizers/published.py",
            kind="regex",
            name=self.regex[:80],
        )

    def take(self, text: str) -> bool:
        found = self.regex.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def matched(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.regex, self.at)
        self.at = found.end() if found else self.at
        return found

    def next(self) -> str:
        """Reads the next character; an error at the end."""
        if self.at >= len(self.regex):
            self.refuse("ends too early")
        self.at += 1
        return self.regex[self.at - 1]

    def nested(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.refuse(f"nests deeper than {MAX_DEPTH}")

    def alternatives(self, *, fold: bool) -> Item:
        self.nested()
        found = [self.sequence(fold)]
        while self.take("|"):
            found.append(self.sequence(fold))
        self.depth -= 1
        return either(found)

    def sequence(self, fold: bool) -> Item:
        items: list[Item] = []
        while self.at < len(self.regex) and self.regex[self.at] not in "|)":
            items.append(self.repeated(self.atom(fold)))
        for i, item in enumerate(items):
            if item.possessive and not is_harmless(item, items[i + 1 :]):
                self.refuse("has a possessive repeat that changes what matches")
        return chain(items)

    def repeated(self, item: Item) -> Item:
        least, most = self.bounds()
        if (least, most) == (1, 1):
            return item
        if least > (least if most is None else most):
            self.refuse("has a repeat that ends before it begins")
        lazy, possessive = self.take("?"), self.take("+")
        if (possessive and item.chars is None) or self.bounds() != (1, 1):
            self.refuse("repeats a repeat")
        return replace(repeat(item, least, most, lazy=lazy), possessive=possessive, chars=None)

    def bounds(self) -> tuple[int, int | None]:
        """Reads the quantifier here; (1, 1) without one."""
        for quantifier, found in {"*": (0, None), "+": (1, None), "?": (0, 1)}.items():
            if self.take(quantifier):
                return found
        counted = self.matched(COUNTED)
        if counted is None:
            return 1, 1
        least = int(counted[1])
        return least, int(counted[3]) if counted[3] else None if counted[2] else least

    def atom(self, fold: bool) -> Item:
        if self.take("("):
            return self.group(fold)
        if self.take("["):
            return char(self.folded(self.bracket(), fold))
        if self.take("."):
            return char(complement(LINE_FEED))
        if self.regex[self.at] in "^$*+?":
            self.refuse(f"has an unsupported {self.regex[self.at]!r}")
        return char(self.folded(self.escape_or_literal(), fold))

    def group(self, fold: bool) -> Item:
        for opening, negative in {"?!": True, "?=": False}.items():
            if self.take(opening):
                inner = self.closed(fold)
                if inner.chars is None:
                    self.refuse("looks ahead for more than one character")
                return look(inner.chars, negative)
        if self.take("?i:"):
            return self.closed(fold=True)
        if not self.take("?:") and self.regex.startswith("?", self.at):
            self.refuse("has an unsupported group")
        return self.closed(fold)

    def closed(self, fold: bool) -> Item:
        item = self.alternatives(fold=fold)
        if not self.take(")"):
            self.refuse("has a ( that is not closed")
        return item

    def bracket(self) -> Ranges:
        """Reads a set after its [."""
        self.nested()
        negative, found = self.take("^"), list[tuple[int, int]]()
        while not self.take("]"):
            if self.take("&&") or self.take("[:"):
                self.refuse("has an unsupported set")
            found += self.bracket() if self.take("[") else self.range_()
        self.depth -= 1
        return complement(union(found)) if negative else union(found)

    def range_(self) -> Ranges:
        """Reads a class, a character, or a range of characters."""
        first = self.escape_or_literal()
        if not re.compile(r"-[^\]\[]").match(self.regex, self.at):
            return first
        self.at += 1
        last = self.escape_or_literal()
        if not is_one(first) or not is_one(last) or first[0][0] > last[0][0]:
            self.refuse("has an invalid range")
        return ((first[0][0], last[0][0]),)

    def escape_or_literal(self) -> Ranges:
        if found := self.matched(PROPERTY):
            return self.property(found[3], negative=(found[1] == "P") != bool(found[2]))
        if found := self.matched(HEX):
            code = int(found[1] or found[2] or found[3], 16)
            return ((code, code),)
        symbol = self.next()
        return self.escape(self.next()) if symbol == "\\" else ((ord(symbol), ord(symbol)),)

    def escape(self, letter: str) -> Ranges:
        if letter.lower() in CLASSES:
            chars = unicode_class(CLASSES[letter.lower()])
            return chars if letter.islower() else complement(chars)
        if letter in CONTROLS:
            return ((CONTROLS[letter], CONTROLS[letter]),)
        if letter.isascii() and letter.isalnum():
            self.refuse(f"has the unsupported escape \\{letter}")
        return ((ord(letter), ord(letter)),)

    def property(self, name: str, *, negative: bool) -> Ranges:
        known = rows("unicode.txt")
        if (len(name) > 2 and name != "Han") or not any(row.startswith(name) for row in known):
            self.refuse(f"has the unknown property {name[:40]}")
        return complement(unicode_class(name)) if negative else unicode_class(name)

    def folded(self, chars: Ranges, fold: bool) -> Ranges:
        """The characters; with `fold`, the letters of both cases."""
        if not fold:
            return chars
        if any(last > 0x7F for _, last in chars):
            self.refuse("ignores the case of letters beyond ASCII")
        return union((*chars, *((code, code) for code in other_cases(chars))))


def other_cases(chars: Ranges) -> Iterator[int]:
    for first, last in chars:
        for letter in filter(str.isalpha, map(chr, range(first, last + 1))):
            yield ord(letter.swapcase())
            yield FOLDED.get(letter.lower(), ord(letter))


def is_one(chars: Ranges) -> bool:
    return len(chars) == 1 and chars[0][0] == chars[0][1]


def is_harmless(item: Item, rest: Sequence[Item]) -> bool:
    """True if a possessive repeat matches the same text: the rest never needs a character of the repeat."""
    if all(one.nullable for one in rest):
        return not any(one.first == EVERY for one in rest)
    return not overlap(item.first, first_of(rest))


def overlap(left: Ranges, right: Ranges) -> bool:
    return any(one[1] >= after[0] for one, after in pairwise(sorted((*left, *right))))
