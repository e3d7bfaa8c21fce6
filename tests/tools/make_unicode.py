"""Writes core/camelid/data/unicode.txt: the character classes of the published pre-tokenizer regexes.

The oracle is the regex engine of `tokenizers`, asked about every code point, because the ids that models
were trained on came from it. Run: python tests/tools/make_unicode.py
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tokenizers import Regex, pre_tokenizers

TABLE = Path(__file__).parents[2] / "core" / "camelid" / "data" / "unicode.txt"
VERSION = "16.0"
CLASSES = {"letter": r"\p{L}", "number": r"\p{N}", "space": r"\s", "punctuation": r"\p{P}"}
# (code point, class, is a member): the first additions of Unicode 16.0 and 17.0.
WITNESSES = ((0x10D40, "number", True), (0x10D4A, "letter", True), (0x323B0, "letter", False))
SEPARATOR = "\x01"  # a control character, in none of the classes
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
SURROGATES = range(0xD800, 0xE000)  # never in valid text, so in no class


def members(regex: str) -> list[int]:
    """Every code point that the oracle's engine matches with `regex`, in ascending order."""
    split = pre_tokenizers.Split(Regex(regex), "isolated")
    text = SEPARATOR.join(chr(c) for c in range(0x110000) if c not in SURROGATES)
    return [ord(part) for part, _ in split.pre_tokenize_str(text) if len(part) == 1 and part != SEPARATOR]


def ranges(code_points: list[int]) -> list[tuple[int, int]]:
    """First and one past the last of each run."""
    edges = [0, *(i for i, (a, b) in enumerate(pairwise(code_points), 1) if b != a + 1), len(code_points)]
    return [(code_points[a], code_points[b - 1] + 1) for a, b in pairwise(edges)]


def base36(number: int) -> str:
    head, tail = divmod(number, 36)
    return (base36(head) if head else "") + DIGITS[tail]


def encode(runs: list[tuple[int, int]]) -> str:
    """Distances between successive range borders, in base 36: gap, length, gap, length, …"""
    borders = [0, *(border for run in runs for border in run)]
    return " ".join(base36(b - a) for a, b in pairwise(borders))


def table() -> str:
    found = {name: members(regex) for name, regex in CLASSES.items()}
    for code_point, name, inside in WITNESSES:
        if (code_point in found[name]) != inside:
            raise SystemExit(f"the oracle is not Unicode {VERSION}: U+{code_point:04X} and {name}")
    lines = [f"# Unicode {VERSION}; class, then gap and length of each range in base 36 (make_unicode.py)"]
    lines += [f"{name} {encode(ranges(code_points))}" for name, code_points in found.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), "utf-8")
    print(f"{TABLE.name}: {TABLE.stat().st_size} bytes")
