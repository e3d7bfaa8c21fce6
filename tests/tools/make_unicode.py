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
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
VALID = (range(0xD800), range(0xE000, 0x110000))  # surrogates are never in valid text, so in no class


def ranges(regex: str) -> list[tuple[int, int]]:
    """First and one past the last of each run of code points that the oracle's engine matches."""
    split = pre_tokenizers.Split(Regex(f"(?:{regex})+"), "removed", invert=True)
    found: list[tuple[int, int]] = []
    for part in VALID:
        runs = split.pre_tokenize_str("".join(map(chr, part)))
        found += [(part.start + start, part.start + end) for _, (start, end) in runs]
    return found


def base36(number: int) -> str:
    head, tail = divmod(number, 36)
    return (base36(head) if head else "") + DIGITS[tail]


def encode(runs: list[tuple[int, int]]) -> str:
    """Distances between successive range borders, in base 36: gap, length, gap, length, …"""
    borders = [0, *(border for run in runs for border in run)]
    return " ".join(base36(b - a) for a, b in pairwise(borders))


def table() -> str:
    found = {name: ranges(regex) for name, regex in CLASSES.items()}
    for code_point, name, inside in WITNESSES:
        if any(first <= code_point < end for first, end in found[name]) != inside:
            raise SystemExit(f"the oracle is not Unicode {VERSION}: U+{code_point:04X} and {name}")
    lines = [f"# Unicode {VERSION}; class, then gap and length of each range in base 36 (make_unicode.py)"]
    lines += [f"{name} {encode(runs)}" for name, runs in found.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), "utf-8")
    print(f"{TABLE.name}: {TABLE.stat().st_size} bytes")
