"""Steps that split text into words, against `tokenizers`: code points, random texts, hostile runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.texts import random_texts
from tests.support.text.words_oracle import words_of
from tokenizers import Regex, pre_tokenizers

from camelid.text.tokenizers.words import (
    BEHAVIORS,
    PRE_TOKENIZERS,
    char_delimiter_split,
    digits,
    fixed_length,
    punctuation,
    split,
)
from camelid.text.unicode_tables import N_CODE_POINTS

PATTERNS = {"a string": " ", "a run": "[ e]+", "two kinds": "'s|[0-9]"}


@dataclass(frozen=True, slots=True)
class Case:
    ours: Callable[[str], list[str]]
    oracle: pre_tokenizers.PreTokenizer


def snake(behavior: str) -> str:
    return re.sub("(?<=.)([A-Z])", r"_\1", behavior).lower()


def of_pattern(pattern: str, behavior: str, invert: bool) -> Case:
    ours = partial(split, rx=re.compile(pattern), behavior=behavior, invert=invert)
    return Case(ours, pre_tokenizers.Split(Regex(pattern), snake(behavior), invert=invert))


CASES = {
    **{name: Case(ours, getattr(pre_tokenizers, name)()) for name, ours in PRE_TOKENIZERS.items()},
    "Digits, each": Case(
        partial(digits, individual_digits=True), pre_tokenizers.Digits(individual_digits=True)
    ),
    "FixedLength, 3": Case(partial(fixed_length, length=3), pre_tokenizers.FixedLength(length=3)),
    "CharDelimiterSplit": Case(
        partial(char_delimiter_split, delimiter="e"), pre_tokenizers.CharDelimiterSplit("e")
    ),
    **{
        f"Punctuation, {behavior}": Case(
            partial(punctuation, behavior=behavior), pre_tokenizers.Punctuation(behavior=snake(behavior))
        )
        for behavior in BEHAVIORS
    },
}
SPLITS = {
    f"{name}, {behavior}, invert {invert}": of_pattern(pattern, behavior, invert)
    for name, pattern in PATTERNS.items()
    for behavior in BEHAVIORS
    for invert in (False, True)
}


def oracle(case: Case, text: str) -> list[str]:
    return words_of(case.oracle, text)


# Code points of many classes, in order and between letters; and the others, which are letters or unassigned.
CODE_POINTS = {"of many classes": range(0x20000), "others": range(0x20000, N_CODE_POINTS)}
BETWEEN = {"of many classes": ("", "a"), "others": ("",)}


@cache
def code_points(kind: str) -> dict[str, str]:
    """Texts of 4,096 code points, by name."""
    return {
        f"from U+{first:04X}, between {between!a}": between.join(
            chr(c) for c in range(first, first + 0x1000) if not 0xD800 <= c < 0xE000
        )
        for between in BETWEEN[kind]
        for first in CODE_POINTS[kind][::0x1000]
    }


@pytest.mark.conformance
@pytest.mark.parametrize("kind", share_of(CODE_POINTS))
@pytest.mark.parametrize("name", CASES)
def test_code_points_are_split_like_the_oracles(name: str, kind: str) -> None:
    for what, text in code_points(kind).items():
        assert CASES[name].ours(text) == oracle(CASES[name], text), what


@pytest.mark.conformance
@pytest.mark.parametrize("name", [*CASES, *SPLITS])
def test_random_texts_are_split_like_the_oracles(name: str) -> None:
    case = {**CASES, **SPLITS}[name]
    for text in ["", " ", "e", "''s's1", *random_texts(500, seed=12)]:
        assert case.ours(text) == oracle(case, text), ascii(text)


@pytest.mark.parametrize(
    "name", [*CASES, *(f"two kinds, {behavior}, invert False" for behavior in BEHAVIORS)]
)
@pytest.mark.parametrize("unit", share_of([" ", "\u0301", "'s", "a", "1", "!", "漢", " a"], 3))
def test_a_long_run_takes_linear_time(name: str, unit: str) -> None:
    # At most 0.1 s; anything quadratic would take minutes.
    with within(3):
        {**CASES, **SPLITS}[name].ours(unit * (100_000 // len(unit)))
