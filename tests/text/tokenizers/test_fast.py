"""The tokenizers package as the fast path: ids equal to our own words and merges, for every splitter."""

from __future__ import annotations

from itertools import product

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
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
def test_both_paths_give_equal_ids(name: str) -> None:
    slow = made(name)
    assert slow.fast, "the tokenizers package is missing"
    for text in TEXTS:
        ids = [token_id for word in slow._split(text) for token_id in slow._encode_word(word)]
        assert ids == slow.fast(text), ascii(text)


@pytest.mark.parametrize("name", ["afmoe", "deepseek-llm", "superbpe", "tiny_aya"])
def test_a_long_run_takes_linear_time(name: str) -> None:
    """The package's regex engine takes minutes to hours for these."""
    fast = made(name).fast
    assert fast
    with within(10):
        for unit, tail in product(("1", " ", "1 "), ("1", "x")):
            assert fast(unit * (50_000 // len(unit)) + tail)


def test_tokens_with_spaces_merge_as_listed() -> None:
    """Named tokens are spelled in characters, and may begin with the space that separates a merge's parts."""
    tokens, merges = [*ALPHABET, " b", "a b"], ["a  b"]
    tokenizer = byte_level(tokens, merges, types=[1] * 256 + [4, 4])
    assert tokenizer.fast
    assert tokenizer.fast("abc") == tokenizer.encode("abc")


@pytest.mark.parametrize("special", [False, True])
def test_a_long_text_takes_the_fast_path_to_equal_ids(special: bool) -> None:
    """Named tokens are split off before, so that neither path receives them."""
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


def test_a_vocabulary_without_a_byte_has_no_fast_path() -> None:
    """The package would drop the byte without an error."""
    assert byte_level(["a", "b"]).fast is None
