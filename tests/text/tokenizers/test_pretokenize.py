"""Splitters against `tokenizers` with the published regexes."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Iterator
from functools import cache
from itertools import chain, product

import pytest
import regex
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.splitter_cases import ORACLES, UNVERIFIED
from tests.support.text.texts import random_texts
from tests.support.text.words_oracle import words_of

from camelid.errors import UnsupportedModelError
from camelid.text.tokenizers.pretokenize import SPLITTERS, splitter
from camelid.text.tokenizers.splitting import FUNCTIONS, REWRITTEN, spans

BATCH = 0x4000
CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
UNITS = (
    "a", "A", " ", "1", "\n", "'", "\u0301", "漢", "ʰ", "😀", " \n", "a1", "'s", "\r ", "aA", "\u0301A", "Aʰ",
)  # fmt: skip
AROUND = (("", ""), ("x", "x"), ("x", "!"), ("", "5"), ("\n", "\nx"), ("²", " "))
# Limits of groups of three digits, of 510 digits and of 512 spaces.
LENGTHS = (*range(1, 9), *range(255, 259), *range(509, 515), *range(1019, 1026), 1533)

# Families for which llama.cpp (src/llama-vocab.cpp) sets a fact, overriding the file.
LLAMA_3 = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
FACTS = {
    "add_bos": f"{LLAMA_3} tekken chameleon gemma4 granite-embed-multi-311m",
    "ignore_merges": f"{LLAMA_3} minicpm5 youtu glm4 glm5 tekken granite-embed-multi-97m",
}


def oracle(name: str, text: str) -> list[str]:
    return words_of(ORACLES[name], text)


def batches(code_points: list[int], between: str) -> Iterator[str]:
    for first in range(0, len(code_points), BATCH):
        yield between.join(map(chr, code_points[first : first + BATCH]))


def is_in_every_run(c: int) -> bool:
    """In order, all code points show the limits of classes; a sample identifies the classes."""
    return c < 0x3400 or 0xE0000 <= c < 0xE0200 or c % (16 if c < 0x20000 else 128) == 0


@cache
def code_points() -> list[str]:
    """A sample in order, where a wrong class breaks a run; between letters; shuffled; and alone. The last
    code points of ASCII and of the BMP also occur without their successors.
    """
    varied = [*filter(is_in_every_run, CODE_POINTS)]
    shuffled = random.Random(7).sample(varied, BATCH)
    ends = [
        between.join(map(chr, some))
        for some in (range(0x80), range(0xE000, 0x10000))
        for between in ("", "a")
    ]
    texts = (*ends, *batches(varied, ""), *batches(varied, "a"), *batches(shuffled, ""))
    return [*texts, *map(chr, shuffled[:1000])]


def test_no_regex_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 matches it wrong, and the test machine may run a later version."""
    assert not [linear for _, linear in REWRITTEN if re.search(r"\)(?:[+*?]|\{[\d,]+\})\+", linear)]


def test_every_row_has_an_oracle() -> None:
    oracles = {SPLITTERS[name].patterns for name in ORACLES}
    assert {row.patterns for row in SPLITTERS.values()} == oracles
    assert UNVERIFIED.keys() <= ORACLES.keys()


@pytest.mark.conformance
@pytest.mark.parametrize("n_texts", share_of([500, 1500]))
@pytest.mark.parametrize("name", ORACLES)
def test_random_texts_are_split_like_the_oracles(name: str, n_texts: int) -> None:
    for text in random_texts(n_texts, seed=1):
        assert splitter(name).split(text) == oracle(name, text), ascii(text)


@pytest.mark.conformance
@pytest.mark.parametrize("name", ORACLES)
def test_code_points_are_split_like_the_oracles(name: str) -> None:
    for text in code_points():
        assert splitter(name).split(text) == oracle(name, text), ascii(text[:40])


@pytest.mark.conformance
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ORACLES)
def test_every_code_point_is_split_like_the_oracles(name: str) -> None:
    for text in chain(batches(CODE_POINTS, ""), batches(CODE_POINTS, "a")):
        assert splitter(name).split(text) == oracle(name, text), ascii(text[:40])


@pytest.mark.conformance
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("unit", share_of([" ", "A", "1", "\n", "\u0301"], 2))
def test_runs_of_every_length_are_split_like_the_oracles(name: str, unit: str) -> None:
    for length, (before, after) in product(LENGTHS, AROUND):
        text = before + unit * length + after
        assert splitter(name).split(text) == oracle(name, text), ascii(text)


@pytest.mark.parametrize("pattern", FUNCTIONS)
def test_functions_match_like_their_regexes(pattern: str) -> None:
    # The regexes take quadratic time, so runs of up to 514 must suffice.
    for unit, length, (before, after) in product("1 \n", [n for n in LENGTHS if n < 515], AROUND):
        text = before + unit * length + after
        found = [match.span() for match in regex.finditer(pattern, text)]
        assert list(spans(pattern)(text)) == found, ascii(text)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("unit", share_of(UNITS, 4))
def test_a_long_run_takes_linear_time(name: str, unit: str) -> None:
    text = unit * (25_000 // len(unit))
    # At most 0.1 s each; anything quadratic would take minutes.
    with within(5):
        for tail in ("", "x", "1"):
            assert "".join(splitter(name).split(text + tail)) == text + tail


@pytest.mark.parametrize("name", ["gpt-4o", "exaone-moe", "laguna"])
@pytest.mark.parametrize("text", ["a", "word ", "Word", "漢"])
def test_a_long_line_takes_little_memory(name: str, text: str) -> None:
    """Besides its pieces: an atomic group keeps some memory per iteration until it ends."""
    line = "\n" + text * (1_000_000 // len(text))
    row = splitter(name)
    row.split(line[:100])
    tracemalloc.start()
    pieces = row.split(line)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "".join(pieces) == line and peak - held < 24e6


def test_a_prompt_of_two_thousand_tokens_is_split_within_100_ms() -> None:
    text = "The quick brown fox, aged 12, doesn't jump over lazy dogs.\n" * 134
    row = splitter("qwen2")
    assert len(row.split(text)) > 2000
    with within(0.1):
        row.split(text)


@pytest.mark.parametrize("fact", FACTS)
def test_families_have_their_facts(fact: str) -> None:
    assert {name for name, row in SPLITTERS.items() if getattr(row, fact)} == set(FACTS[fact].split())


def test_an_unknown_row_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"pre-tokenizer 'klingon' is not known; known: .*gpt-2"):
        splitter("klingon")


def test_empty_text_has_no_words() -> None:
    assert splitter("gpt-2").split("") == []
