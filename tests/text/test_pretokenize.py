"""Splitters against `tokenizers`, which is given the regexes as the models publish them."""

from __future__ import annotations

import random
import time

import pytest
from tests.text.texts import random_texts
from tokenizers import Regex, pre_tokenizers

from camelid.errors import UnsupportedModelError
from camelid.text.pretokenize import SPLITTERS, splitter

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")


def split(*patterns: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])


ORACLES = {
    "gpt-2": split(GPT2),
    "qwen2": split(QWEN2),
    "llama-bpe": split(LLAMA3),
    # Published as Digits(individual_digits=True), which follows Rust's Unicode tables, a version ahead.
    "smollm": split(r"\p{N}", GPT2),
    "falcon": split(r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"),
    "default": split(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "deepseek-coder": split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
}


def oracle(name: str, text: str) -> list[str]:
    return [part for part, _ in ORACLES[name].pre_tokenize_str(text)]


def every_code_point() -> list[str]:
    """All of them in order, where a wrong class breaks a run, and a part shuffled, where classes meet."""
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    ordered = ["".join(map(chr, code_points[i : i + 65536])) for i in range(0, len(code_points), 65536)]
    random.Random(7).shuffle(code_points)
    return [*ordered, "".join(map(chr, code_points[:40_000])), *map(chr, code_points[:2000])]


CODE_POINTS = every_code_point()


def test_every_row_has_an_oracle() -> None:
    oracles = {SPLITTERS[name].patterns for name in ORACLES}
    assert {row.patterns for row in SPLITTERS.values()} == oracles


@pytest.mark.conformance
@pytest.mark.parametrize("name", ORACLES)
def test_random_texts_are_cut_as_the_oracle_cuts_them(name: str) -> None:
    for text in random_texts(1500, seed=1):
        assert splitter(name).split(text) == oracle(name, text), repr(text)


@pytest.mark.conformance
@pytest.mark.parametrize("name", ORACLES)
def test_every_code_point_is_cut_as_the_oracle_cuts_it(name: str) -> None:
    for text in CODE_POINTS:
        assert splitter(name).split(text) == oracle(name, text)


@pytest.mark.parametrize("name", sorted(ORACLES))
@pytest.mark.parametrize("unit", ["a", " ", "1", "\n", "'", "\u0301", "😀", " \n", "a1", "'s", "\r "])
def test_a_long_run_takes_linear_time(name: str, unit: str) -> None:
    text = unit * (100_000 // len(unit))
    start = time.process_time()
    assert "".join(splitter(name).split(text)) == text
    # 0.03 to 0.2 s; anything quadratic would take minutes.
    assert time.process_time() - start < 3


def test_a_prompt_of_two_thousand_tokens_is_cut_within_100_ms() -> None:
    text = "The quick brown fox, aged 12, doesn't jump over lazy dogs.\n" * 134
    row = splitter("qwen2")
    assert len(row.split(text)) > 2000
    start = time.process_time()
    row.split(text)
    assert time.process_time() - start < 0.1


def test_an_unknown_row_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre-tokenizer 'klingon' is not known; known: .*gpt-2"):
        splitter("klingon")


def test_no_text_is_no_word() -> None:
    assert splitter("gpt-2").split("") == []
