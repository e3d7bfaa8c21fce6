"""Sets of characters as sorted, disjoint ranges, and the character classes of regexes in two readings.

Regex dialects disagree on `\\d`, `\\w`, `\\s` and `.` outside ASCII, and Python's classes follow the
interpreter's Unicode version. Each class therefore has a narrow reading (characters that belong to it in
ECMAScript and in every Python) and a wide reading (characters that belong to it in some dialect). A grammar
accepts the narrow reading; a text that must *not* match a pattern stays outside the wide one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from camelid.text.grammar.rules import Range, complement
from camelid.text.unicode_tables import runs

Ranges = tuple[Range, ...]

EVERY: Ranges = complement(())
DIGIT: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
LINE_FEED: Ranges = ((0x0A, 0x0A),)
LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
# Outside the ASCII spaces: str.isspace accepts U+001C to U+001F, ECMAScript accepts U+FEFF.
ODD_SPACES: Ranges = ((0x1C, 0x1F), (0xFEFF, 0xFEFF))
SHORT_GAP = 32


def union(ranges: Iterable[Range]) -> Ranges:
    """The same characters in sorted, disjoint ranges."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


@cache
def unicode_class(*names: str) -> Ranges:
    """The union of Unicode classes, by their names in `unicode_tables`."""
    return union((first, end - 1) for name in names for first, end in runs(name))


@cache
def wide_word() -> Ranges:
    """Letters, marks and numbers, with gaps shorter than SHORT_GAP filled.

    Exact ranges would put hundreds of ranges on every edge of an automaton; the filled gaps are rare
    characters.
    """
    outside = complement(unicode_class("word", "L", "N"))
    ascii_part = tuple((first, min(last, 0x7F)) for first, last in outside if first < 0x80)
    return complement((*ascii_part, *((a, b) for a, b in outside if a >= 0x80 and b - a >= SHORT_GAP)))


@cache
def shorthand(letter: str, wide: bool) -> Ranges:
    """The class of `\\letter`, or of the dot, in one reading."""
    match letter.lower():
        case "d":
            narrow, broad = DIGIT, unicode_class("Nd")
        case "w":
            narrow, broad = WORD, wide_word()
        case "s":
            narrow, broad = SPACE, union((*unicode_class("space"), *ODD_SPACES))
        case _:
            return complement(LINE_FEED if wide else LINE_ENDS)
    if letter.islower():
        return broad if wide else narrow
    return complement(narrow if wide else broad)


SHORTHANDS = frozenset("dDwWsS")
