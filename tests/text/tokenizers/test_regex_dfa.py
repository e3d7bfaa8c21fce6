"""Unknown regexes: Oniguruma's matches in `tokenizers`, in linear time, or a refusal."""

from __future__ import annotations

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.texts import random_texts
from tests.support.text.words_oracle import words_of
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from camelid.errors import UnsupportedModelError
from camelid.text.tokenizers.regex_dfa import automaton

# Published regexes, and plausible variants of their parts.
REGEXES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"\s+", r" {2,}", r"[^\S\n]+|\n", r"\d{2,3}", r"\w+(?=\s)|\w", r"\p{Han}+|[\u3040-\u30ff]", r"a*?b|a",
    r"(?:ab|a)(?:c|bcd)?", r"[a-f[0-9]]+", r"(?i:[sk]t?)", r"\P{L}", r"\p{^L}{1,2}", r"[\]\-x]|\.|\\",
    r"(a+)+b", r"a*b|a", r"\s*\n", r"(?:a|aa)*c", r"x??.|\n", r"(a|b)(c|d){0,2}",
    r"'(?i:[sdmt]|ll|ve|re)", r"\x41|\x{1F600}",
)  # fmt: skip


@pytest.mark.conformance
@pytest.mark.parametrize("regex", REGEXES)
def test_matches_equal_onigurumas(regex: str) -> None:
    judge = Split(Regex(regex), "removed", invert=True)  # keeps the matches
    for text in [*random_texts(400, seed=19), "aab abcd aaab", "sT K ſtſ", "'LL it'ſ"]:
        wanted = words_of(judge, text)
        assert [text[a:b] for a, b in automaton(regex).spans(text)] == wanted, repr(text)


REFUSED = {
    r"a*": "the empty text", r"(?=a)|b": "the empty text", r"^a": "unsupported '\\^'",
    r"a$": "unsupported '\\$'", r"\bfoo": "unsupported escape .b", r"(?<=a)b": "unsupported group",
    r"(a": "not closed",
    r"a)": "closes nothing", r"[a": "ends too early", r"[z-a]": "invalid range",
    r"a{3,1}": "ends before",
    r"a++a": "possessive", r"(?!ab)c": "more than one character", r"\p{Klingon}": "property Klingon",
    r"[a&&b]": "unsupported set", r"a**": "repeats a repeat", r"(?i:é)": "beyond ASCII",
    "a\\": "ends too early", "(" * 40 + "a" + ")" * 40: "nests deeper", "[" * 40: "nests deeper",
    r"(?:a{999}){999}": "instructions", "a" * 5000: "longer than", r"(?P<n>a)": "unsupported group",
    r"(?:a|[ab]{1,40}[ac]{1,40}){1,12}": "large", r"(a)\1": "unsupported escape", r"*a": "unsupported '\\*'",
    r"(?>a|b)": "unsupported group", "": "the empty text",
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("regex", REFUSED, ids=lambda regex: regex[:20])
def test_unsupported_or_slow_regexes_are_refused_by_name(regex: str) -> None:
    with within(5), pytest.raises(UnsupportedModelError, match=REFUSED[regex]) as caught:
        automaton(regex)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("unit", share_of(["a", " ", "\u0301", "'", "\n", "1", "aB"], 3))
@pytest.mark.parametrize("regex", [*REGEXES[:3], r"(a+)+b", r"a*b|a", r"\s*x", r"(?:a|aa)*c", r"(?:.a)*!"])
def test_long_texts_take_linear_time(regex: str, unit: str) -> None:
    text = unit * 60_000
    with within(3):
        assert sum(b - a for a, b in automaton(regex).spans(text)) <= len(text)
