"""Writes core/camelid/data/graphemes.txt: the character classes of grapheme clusters.

The oracle is the normalizer Precompiled of `tokenizers`, which splits text into clusters. It replaces a whole
cluster below 6 bytes that begins with a key: "a" and its marks become X; in "á" the accent remains exactly
if the cluster began before the "a". Every code point is tested.
Run: python -m tests.tools.make_graphemes
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.text.charsmaps import compiled
from tests.tools.make_unicode import CODE_POINTS, HANGUL, runs_of, set_row
from tokenizers import normalizers

DATA = Path(__file__).parents[2] / "core" / "camelid" / "data" / "graphemes.txt"
ACCENT, KA, VIRAMA, LEAD, VOWEL, TAIL, PHONE, JOINER = "\u0301\u0915\u094d\u1100\u1161\u11a8\u260e\u200d"
LETTERS = normalizers.Precompiled(compiled(dict.fromkeys(("a", KA, LEAD, VOWEL, TAIL, PHONE), "X")))
MARK = normalizers.Precompiled(compiled({ACCENT: "X"}))


def where(probe: normalizers.Precompiled, text: Callable[[str], str], shown: str) -> set[int]:
    """Code points whose text ends in `shown` after normalization."""
    return {c for c in CODE_POINTS if probe.normalize_str(text(chr(c))).endswith(shown)}


def glued(before: str, after: str) -> set[int]:
    """Code points between the two that leave no boundary before the last character of `after`."""
    return where(LETTERS, lambda char: before + char + after + ACCENT, "X" + ACCENT)


def classes() -> dict[str, set[int]]:
    """Every class by its name. `Joined` extends any cluster; some of it is also `Extend`."""
    prepend = glued("", "a")
    to_lead, to_vowel, to_tail = (glued("", jamo) - prepend for jamo in (LEAD, VOWEL, TAIL))
    consonant, linker = glued("", VIRAMA + KA) - prepend, glued(KA, KA) - prepend
    both = to_vowel & to_tail
    bare, marked = (where(MARK, lambda char: char + 2 * ACCENT, shown) for shown in ("XX", "X"))
    return {
        "Joined": {c for c in CODE_POINTS if LETTERS.normalize_str("a" + chr(c)) == "X"},
        "Prepend": prepend,
        "Control": marked - bare,
        "Lead": to_lead,
        "Vowel": {c for c in both if c not in HANGUL},
        "LeadVowel": both & {*HANGUL},
        "LeadVowelTail": (to_tail - both) & {*HANGUL},
        "Tail": {c for c in to_tail - both if c not in HANGUL},
        "Pictographic": glued("", JOINER + PHONE) - prepend,
        "Consonant": consonant,
        "Linker": linker,
        "Extend": glued(KA, VIRAMA + KA) - prepend - consonant - linker,
    }


if __name__ == "__main__":
    head = "# class, then gap and length of each range, in base 36 (make_graphemes.py)"
    rows = [set_row(name, runs_of(sorted(members))) for name, members in classes().items()]
    DATA.write_text("\n".join([head, *rows, ""]), "utf-8")
    print(f"{DATA.name}: {DATA.stat().st_size} bytes")
