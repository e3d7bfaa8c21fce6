"""Normalizers against `tokenizers`: every code point, random texts of every kind, hostile runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from tests.text.texts import random_texts
from tokenizers import normalizers

from camelid.text.normalize import NORMALIZERS, bert, strip

BERT = {
    "BertNormalizer": {},
    "BertNormalizer, cased": {"lowercase": False},
    "BertNormalizer, accents kept": {"strip_accents": False},
    "BertNormalizer, accents alone": {"strip_accents": True, "lowercase": False, "clean_text": False},
    "BertNormalizer, clean alone": {"lowercase": False, "handle_chinese_chars": False},
}
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
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]


@pytest.mark.conformance
@pytest.mark.parametrize("name", CASES)
def test_every_code_point_becomes_what_the_oracle_makes_of_it(name: str) -> None:
    case = CASES[name]
    for first in range(0, len(CODE_POINTS), 0x4000):
        chars = [chr(code_point) for code_point in CODE_POINTS[first : first + 0x4000]]
        for text in ("".join(chars), "e".join(chars), "\u0323\u0301".join(chars)):
            assert case.ours(text) == case.oracle.normalize_str(text), f"from U+{ord(chars[0]):04X}"


@pytest.mark.conformance
@pytest.mark.parametrize("name", CASES)
def test_random_texts_become_what_the_oracle_makes_of_them(name: str) -> None:
    for text in random_texts(2600, seed=11):
        assert CASES[name].ours(text) == CASES[name].oracle.normalize_str(text), ascii(text)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "unit", ["a", "é", "\u0301", "\u0323\u0301", "가", "\u1100", "e\u0301", " ", "漢", "\x00", "Σ"]
)
def test_a_long_run_takes_linear_time(name: str, unit: str) -> None:
    start = time.process_time()
    CASES[name].ours(unit * (100_000 // len(unit)))
    # At most 0.1 s; anything quadratic would take minutes.
    assert time.process_time() - start < 3
