"""Character classes at one pinned Unicode version, the same under every Python.

Python 3.11 and 3.14 disagree about 9,392 code points, so neither `unicodedata` nor the classes of `re` are
used; the ranges come from data/unicode.txt, which tests/tools/make_unicode.py writes.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import accumulate

CLASSES = {r"\p{L}": "letter", r"\p{N}": "number", r"\p{P}": "punctuation", r"\s": "space"}
# A class, its complement, an escaped character, or a bracket that opens or closes a set.
SYNTAX = re.compile(r"\\p\{[A-Z]\}|\\.|\[|\]")


@cache
def tables() -> dict[str, list[tuple[int, int]]]:
    """Ranges (first, one past the last) of every class."""
    text = files("camelid").joinpath("data/unicode.txt").read_text("utf-8")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name: ranges(deltas) for name, *deltas in rows}


def ranges(deltas: list[str]) -> list[tuple[int, int]]:
    """Undo the coding of the table: distances between successive range borders, in base 36."""
    borders = list(accumulate(int(delta, 36) for delta in deltas))
    return list(zip(borders[::2], borders[1::2], strict=True))


@cache
def char_set(name: str) -> str:
    """The class as the inside of a regex set, in code points only."""
    return "".join(f"\\U{first:08x}-\\U{end - 1:08x}" for first, end in tables()[name])


@cache
def compile_published(regex: str) -> re.Pattern[str]:
    """Compile a regex as a model publishes it, with its classes (and `\\S`) from the tables."""
    inside = False

    def replace(match: re.Match[str]) -> str:
        nonlocal inside
        token = match.group()
        if token in "[]":
            inside = token == "["
            return token
        if token == r"\S":
            return f"[^{char_set('space')}]"
        if token not in CLASSES:
            return token
        return char_set(CLASSES[token]) if inside else f"[{char_set(CLASSES[token])}]"

    return re.compile(SYNTAX.sub(replace, regex))
