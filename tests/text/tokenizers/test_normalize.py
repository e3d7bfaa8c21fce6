"""Normalizers against `tokenizers`: code points with a mapping, random texts of every kind, hostile runs.

Ordinary runs test some blocks of code points, exhaustive runs the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.texts import random_texts
from tokenizers import normalizers

from camelid.text.tokenizers.normalize import NORMALIZERS, bert, strip
from camelid.text.unicode_tables import N_CODE_POINTS

BERT = {
    "BertNormalizer": {},
    "BertNormalizer, cased": {"lowercase": False},
    "BertNormalizer, accents kept": {"strip_accents": False},
    "BertNormalizer, accents alone": {"strip_accents": True, "lowercase": False, "clean_text": False},
    "BertNormalizer, clean alone": {"lowercase": False, "handle_chinese_chars": False},
}
BLOCK = 0x1000  # code points
CHANGED = (*range(0, 0x20000, BLOCK), 0x2F000)  # all other blocks lack mappings and marks
# Most scripts, ideographs, both ends of Hangul, compatibility forms, letters of mathematics and music.
SOME = (0, 0x1000, 0x2000, 0x3000, 0x9000, 0xA000, 0xD000, 0xF000, 0x1D000, 0x2F000)
BLOCKS = {
    "some": SOME,
    "changed": sorted({*CHANGED}.difference(SOME)),
    "others": sorted({*range(0, N_CODE_POINTS, BLOCK)}.difference(CHANGED)),
}
MARKED = ("", "e", "\u0323\u0301")  # alone, after a letter, between marks
AMONG = {"some": MARKED, "changed": MARKED, "others": ("",)}
RUNS_OF = ("\u0323\u0301", "\u1100", "Σ", " ", "a", "é", "\u0301", "가", "e\u0301", "漢", "\x00")
STRIP = {"Strip": {}, "Strip, left": {"right": False}, "Strip, right": {"left": False}}


@dataclass(frozen=True, slots=True)
class Case:
    ours: Callable[[str], str]
    oracle: normalizers.Normalizer


CASES = {
    **{name: Case(ours, getattr(normalizers, name)()) for name, ours in NORMALIZERS.items()},
    **{name: Case(partial(bert, **f), normalizers.BertNormalizer(**f)) for name, f in BERT.items()},
    **{name: Case(partial(strip, **fields), normalizers.Strip(**fields)) for name, fields in STRIP.items()},
}


@cache
def code_points(blocks: str) -> dict[str, str]:
    """Texts by name, each a block in order."""
    return {
        f"from U+{first:04X}, between {between!a}": between.join(
            chr(c) for c in range(first, first + BLOCK) if not 0xD800 <= c < 0xE000
        )
        for between in AMONG[blocks]
        for first in BLOCKS[blocks]
    }


@pytest.mark.conformance
@pytest.mark.parametrize("blocks", share_of(BLOCKS))
@pytest.mark.parametrize("name", CASES)
def test_code_points_normalize_like_the_oracles(name: str, blocks: str) -> None:
    for what, text in code_points(blocks).items():
        assert CASES[name].ours(text) == CASES[name].oracle.normalize_str(text), what


@pytest.mark.conformance
@pytest.mark.parametrize("name", CASES)
def test_random_texts_normalize_like_the_oracles(name: str) -> None:
    for text in random_texts(1000, seed=11):
        assert CASES[name].ours(text) == CASES[name].oracle.normalize_str(text), ascii(text)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("unit", share_of(RUNS_OF, 4))
def test_a_long_run_takes_linear_time(name: str, unit: str) -> None:
    # At most 0.1 s; anything quadratic would take minutes.
    with within(3):
        CASES[name].ours(unit * (100_000 // len(unit)))
