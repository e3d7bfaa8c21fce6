"""Character classes and mappings at pinned Unicode versions, the same under every Python.

Python 3.11 and 3.14 disagree about 9,392 code points, so `unicodedata` and the classes of `re` are not used.
The tables reproduce the `tokenizers` package step by step (tests/tools/make_unicode.py queries it for every
code point): its regex engine follows Unicode 16.0; steps that follow an older version have their own rows.
Rows are parsed on first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.resources import files
from itertools import accumulate, chain

Run = tuple[int, int]  # first and one past the last code point

N_CODE_POINTS = 0x110000
BMP_END, ASCII_END = 0x10000, 0x80
BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
NO_CHARACTER = r"[^\x00-\U0010ffff]"
ESCAPES = {r"\s": "space", r"\d": "Nd", r"\w": "word"}
CONTROLS = {r"\r": "\r", r"\n": "\n", r"\t": "\t"}
CLASS = r"\\p\{[A-Za-z-]+\}|\\[sdw]"
CHARACTER = r"\\.|[^\]\\]"
# A set, a single class, its complement, or an escaped character.
SYNTAX = re.compile(rf"\[(?P<not>\^?)(?P<set>(?:{CHARACTER})+)\]|(?P<class>{CLASS})|\\S|\\.")
# The members of a set: classes, characters, or ranges of characters.
MEMBER = re.compile(rf"(?P<class>{CLASS})|(?P<first>{CHARACTER})(?:-(?P<last>{CHARACTER}))?")


@cache
def rows(file: str) -> dict[str, str]:
    """The rows of a data file by name, unparsed."""
    text = files("camelid").joinpath(f"data/{file}").read_text("utf-8")
    named = (line.partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: row for name, _, row in named}


@cache
def runs(name: str) -> list[Run]:
    """The ranges of a class, ascending and not adjacent.

    `name` is a row of the data file, or the prefix of several categories: "L" is the union of Lu to Lo.
    "Lo-Han" is Lo without Han.
    """
    table = rows("unicode.txt")
    base, _, removed = name.partition("-")
    if removed:
        return without(runs(base), runs(removed))
    if name in table:
        borders = list(accumulate(int(delta, 36) for delta in table[name].split()))
        return list(zip(borders[::2], borders[1::2], strict=True))
    return joined(chain.from_iterable(runs(row) for row in table if len(row) == 2 and row[0] == name))


def joined(ranges: Iterable[Run]) -> list[Run]:
    """The union of ranges."""
    found: list[Run] = []
    for start, end in sorted(ranges):
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def without(remaining: list[Run], removed: list[Run]) -> list[Run]:
    """The ranges without those in `removed`."""
    for start, end in removed:
        parts = (
            part for first, last in remaining for part in ((first, min(last, start)), (max(first, end), last))
        )
        remaining = [part for part in parts if part[0] < part[1]]
    return remaining


def complement(found: Iterable[Run]) -> list[Run]:
    """All code points outside a union of ranges."""
    borders = [0, *chain.from_iterable(found), N_CODE_POINTS]
    return [(start, end) for start, end in zip(borders[::2], borders[1::2], strict=True) if start < end]


def members(name: str) -> Iterator[str]:
    """Every character of a class."""
    return (chr(code_point) for start, end in runs(name) for code_point in range(start, end))


@cache
def char_set(name: str) -> str:
    """The class as the inside of a regex set, written in characters only."""
    return ranges(runs(name))


def ranges(found: Iterable[Run]) -> str:
    """Ranges as the inside of a regex set. Characters are written unescaped, since escapes compile slowly.

    The longest ranges come first: `re` tries the ranges above U+FFFF in sequence.
    """
    longest_first = sorted(found, key=lambda run: run[0] - run[1])
    borders = ((re.escape(chr(start)), re.escape(chr(end - 1))) for start, end in longest_first)
    return "".join(first if first == last else f"{first}-{last}" for first, last in borders)


@cache
def mapping(name: str) -> dict[int, str]:
    """A mapping of the data file: code point to replacement text, as `str.translate` expects."""
    tokens = rows("unicode_maps.txt")[name].split()
    code_points = accumulate(int(gap, 36) for gap in tokens[::2])
    results = ("".join(chr(int(code, 36)) for code in token.split(".")) for token in tokens[1::2])
    return dict(zip(code_points, results, strict=True))


@cache
def combining_classes() -> dict[str, int]:
    """The canonical combining class of every mark; all other characters have class 0."""
    names = [name for name in rows("unicode.txt") if name.startswith("ccc")]
    return {mark: int(name.removeprefix("ccc")) for name in names for mark in members(name)}


def end_of(text: str) -> int:
    """The upper limit of a text's characters: the end of ASCII, of the BMP, or of all code points."""
    if text.isascii():
        return ASCII_END
    return N_CODE_POINTS if BEYOND_BMP.search(text) else BMP_END


@cache
def compile_published(regex: str, end: int = N_CODE_POINTS) -> re.Pattern[str]:
    """Compiles a published regex, with its classes (and `\\S`) from the tables.

    Each set becomes the ranges of its union or complement, so `re` tries fewer ranges. A pattern with an
    `end` is valid only for texts with this `end_of`; without ranges above U+FFFF it is up to ten times as
    fast. Raises ValueError for a set with an escaped letter or digit that is neither in CLASS nor CONTROLS.
    """
    return re.compile(SYNTAX.sub(partial(_as_set, end), regex))


def _as_set(end: int, match: re.Match[str]) -> str:
    token = match.group()
    if not (match["set"] or match["class"] or token == r"\S"):
        return token
    found = [(first, min(last, end)) for first, last in _as_runs(match) if first < end]
    return f"[{ranges(found)}]" if found else NO_CHARACTER


def _as_runs(match: re.Match[str]) -> list[Run]:
    if match["set"]:
        found = joined(chain.from_iterable(map(_member, MEMBER.finditer(match["set"]))))
        return complement(found) if match["not"] else found
    return runs(_class_name(match["class"])) if match["class"] else complement(runs("space"))


def _member(match: re.Match[str]) -> list[Run]:
    if match["class"]:
        return runs(_class_name(match["class"]))
    first, last = (ord(_unescaped(match[name] or match["first"])) for name in ("first", "last"))
    return [(first, last + 1)]


def _class_name(token: str) -> str:
    return ESCAPES.get(token) or token[3:-1]


def _unescaped(char: str) -> str:
    if char not in CONTROLS and len(char) > 1 and char[-1].isalnum():
        raise ValueError(f"a set of a regex has the unsupported escape {char!r}")
    return CONTROLS.get(char) or char[-1]
