"""The tokenizers package as the fast path: the same ids as our own words and merges, for every way to cut."""

from __future__ import annotations

import pytest
from tests.text.made import byte_level
from tests.text.splitter_cases import ORACLES
from tests.text.test_bpe import metadata
from tests.text.texts import random_texts

from camelid.text.fast import FAST_CHARS
from camelid.text.pipeline import Pipeline
from camelid.text.pretokenize import SPLITTERS
from camelid.text.tokenizer import tokenizer_from_gguf

BYTE_LEVEL = [name for name in ORACLES if SPLITTERS[name].spells_bytes]
TEXTS = random_texts(400, seed=61)


def made(name: str) -> Pipeline:
    return tokenizer_from_gguf(metadata(changes={"pre": name, "add_bos_token": False}))


@pytest.mark.conformance
@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_both_ways_give_the_same_ids(name: str) -> None:
    slow = made(name)
    assert slow.fast, "the tokenizers package is installed"
    for text in TEXTS:
        assert slow._encode_stretch(text, opens=True) == slow.fast(text), ascii(text)


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
