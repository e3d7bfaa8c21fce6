"""Named tokens: found like the added vocabulary of `tokenizers`, in linear time for any vocabulary."""

from __future__ import annotations

import json
import random

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tokenizers import AddedToken, Tokenizer, models, normalizers

from camelid.errors import ModelFormatError
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json
from camelid.text.tokenizers.specials import MAX_NAME, Named, Specials

LETTERS = "ab<>é"
SPACES = " \t"


def made(rng: random.Random) -> Tokenizer:
    """Characters, and added tokens of the same characters with random flags."""
    found = Tokenizer(models.BPE({char: i for i, char in enumerate(LETTERS + SPACES + "ABÉ")}, []))
    if rng.random() < 0.5:
        found.normalizer = rng.choice([normalizers.Lowercase(), normalizers.Prepend("a")])
    for _ in range(rng.randrange(1, 9)):
        content = "".join(rng.choices(LETTERS, k=rng.randrange(2, 5)))
        flags = {name: rng.random() < 0.25 for name in ("lstrip", "rstrip", "single_word", "normalized")}
        found.add_tokens([AddedToken(content, special=rng.random() < 0.5, **flags)])
    return Tokenizer.from_str(found.to_str())  # drops replaced added tokens


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(40))
def test_matches_equal_the_added_vocabularys(seed: int) -> None:
    rng = random.Random(seed)
    judge = made(rng)
    ours = tokenizer_from_json(TokenizerFiles(json_of(judge)))
    for _ in range(60):
        text = "".join(rng.choices(LETTERS + SPACES + "AB", k=rng.randrange(24)))
        for special in (True, False):
            judge.encode_special_tokens = not special
            assert ours.encode(text, special) == judge.encode(text, add_special_tokens=False).ids, repr(text)


def json_of(judge: Tokenizer) -> dict[str, object]:
    return json.loads(judge.to_str())


def parts(names: list[str], text: str, trusted: list[tuple[int, int]] | None = None) -> list[str | int]:
    named = [Named(name, i, is_control=trusted is not None) for i, name in enumerate(names)]
    return list(Specials(named).partition(text, trusted or []))


def test_untrusted_text_takes_no_token_from_trusted_text() -> None:
    names = ["<s>", "<s>>", "x<s>", "<s"]
    assert parts(names, "<s>>", [(0, 3)]) == [0, ">"]
    assert parts(names, "x<s>", [(1, 4)]) == ["x", 0]
    assert parts(names, "<s>", [(0, 2)]) == [3, ">"]
    assert parts(names, "<s><s>", [(3, 6)]) == ["<s>", 0]


def padded(text: str) -> str:
    """The text after the normalizer Prepend; a name stays unchanged."""
    return text if text == "<s>" else "____" + text


def test_normalization_across_spans_is_untrusted() -> None:
    specials = Specials([Named("<s>", 0, is_control=True, normalized=True)], padded)
    assert list(specials.partition("ca<s>", [(1, 2)])) == ["____ca<s>"]


N = 100_000
HOSTILE: dict[str, tuple[list[str], str]] = {
    "one letter, all lengths": (["a" * i for i in range(1, MAX_NAME + 1)], "a" * N),
    "nearly everywhere": (["a" * i + "b" for i in range(1, MAX_NAME)], "a" * N),
    "no shorter one matches": (["b" * i + "a" for i in range(MAX_NAME)], "b" * N),
    "far down by prefixes": (["a" * i for i in range(1, MAX_NAME + 1)], "ab" * N),
    "as many as can be": (["<" + str(i) for i in range(N)], "<9" * (N // 2)),
    "one long name": (["a" * (MAX_NAME - 1) + "b"], "a" * N),
    "spaces on both sides": ([" ", "  x"], " " * N),
}


@pytest.mark.faults
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("flags", share_of([{"left": True, "right": True}, {}]), ids=["stripped", "bare"])
def test_matching_is_linear_for_any_vocabulary(name: str, flags: dict[str, bool]) -> None:
    names, text = HOSTILE[name]
    with within(6):
        specials = Specials([Named(name, i, **flags) for i, name in enumerate(names)])
        for _ in specials.partition(text, []):
            pass


def test_an_oversized_name_is_refused() -> None:
    with pytest.raises(ModelFormatError, match="has 1025 characters"):
        Specials([Named("a" * (MAX_NAME + 1), 0)])
