"""The tokenizers package as the fast path: the same ids as our own words and merges, for every way to cut."""

from __future__ import annotations

import time
from itertools import product

import pytest
from tests.support.exhaustive import share_of
from tests.support.text.made import byte_level
from tests.support.text.splitter_cases import ORACLES
from tests.support.text.texts import random_texts
from tests.text.tokenizers.test_bpe import metadata

from camelid.text.tokenizers.fast import FAST_CHARS
from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.pretokenize import SPLITTERS
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf
from camelid.text.tokenizers.vocab import ALPHABET

BYTE_LEVEL = [name for name in ORACLES if SPLITTERS[name].spells_bytes]
TEXTS = random_texts(400, seed=61)


def made(name: str) -> Pipeline:
    return tokenizer_from_gguf(metadata(changes={"pre": name, "add_bos_token": False}))


@pytest.mark.conformance
@pytest.mark.parametrize("name", share_of(BYTE_LEVEL, 14))
def test_both_ways_give_the_same_ids(name: str) -> None:
    slow = made(name)
    assert slow.fast, "the tokenizers package is installed"
    for text in TEXTS:
        ids = [token_id for word in slow._split(text) for token_id in slow._encode_word(word)]
        assert ids == slow.fast(text), ascii(text)


@pytest.mark.parametrize("name", ["afmoe", "deepseek-llm", "superbpe", "tiny_aya"])
def test_a_long_run_takes_linear_time(name: str) -> None:
    """The package's own regex engine takes minutes to hours for these."""
    fast = made(name).fast
    assert fast
    start = time.process_time()
    for unit, tail in product(("1", " ", "1 "), ("1", "x")):
        assert fast(unit * (50_000 // len(unit)) + tail)
    assert time.process_time() - start < 10


def test_tokens_with_spaces_merge_as_listed() -> None:
    """Named tokens are spelled in characters, and may so begin with the space that parts a merge."""
    tokens, merges = [*ALPHABET, " b", "a b"], ["a  b"]
    tokenizer = byte_level(tokens, merges, types=[1] * 256 + [4, 4])
    assert tokenizer.fast
    assert tokenizer.fast("abc") == tokenizer.encode("abc")


@pytest.mark.parametrize("special", [False, True])
def test_a_long_text_takes_the_fast_way_to_the_same_ids(special: bool) -> None:
    """Named tokens are cut out before, so that neither way sees them."""
    text = " ".join(TEXTS) * 3
    calls: list[str] = []
    tokenizer, slow = made("llama-bpe"), made("llama-bpe")
    fast = tokenizer.fast
    assert fast
    tokenizer.__dict__["fast"] = lambda part: calls.append(part) or fast(part)
    slow.__dict__["fast"] = None
    assert tokenizer.encode("x " * FAST_CHARS + text, special) == slow.encode(
        "x " * FAST_CHARS + text, special
    )
    assert calls
    assert all(len(part) >= FAST_CHARS for part in calls)


def test_a_vocabulary_without_a_byte_has_no_fast_way() -> None:
    """The package would drop the byte and say nothing."""
    assert byte_level(["a", "b"]).fast is None
