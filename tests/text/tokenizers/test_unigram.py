"""Unigram: GGUF metadata against SentencePiece, a tokenizer.json's rules against `tokenizers`."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.texts import random_texts
from tests.support.text.unigrams import as_metadata, from_pieces, lines, processor, trained
from tokenizers import Tokenizer, models

from camelid.errors import ModelFormatError, RequestError
from camelid.text.tokenizers.pipeline import Frame, Pipeline, StreamDecoder
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf
from camelid.text.tokenizers.unigram import Unigram

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
# Training options, by name.
WAYS: dict[str, dict[str, Any]] = {
    "as T5": {"normalization_rule_name": "nmt_nfkc"},
    "folded": {"normalization_rule_name": "nfkc_cf"},
    "as it stands": {"normalization_rule_name": "identity"},
    "with bytes": {"normalization_rule_name": "nmt_nfkc", "byte_fallback": True},
    "with all spaces": {"normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": False},
    "without a first space": {"normalization_rule_name": "nfkc", "add_dummy_prefix": False},
    "across words": {"normalization_rule_name": "nmt_nfkc", "split_by_whitespace": False},
    "with named tokens": {"normalization_rule_name": "nmt_nfkc", "user_defined_symbols": "<tool>,=>"},
}
# Texts that SentencePiece may split in another, equally good way: it rounds sums to float32.
MOST_TIES = 30
NAMED = ("<tool>", "=>")


@cache
def texts() -> list[str]:
    return [*random_texts(2500, seed=11), *lines(), "", " ", "  ", "\u3000", "▁", "a ▁", "\x01"]


@cache
def model(way: str) -> bytes:
    return trained(**WAYS[way])


@cache
def ours(way: str) -> Pipeline:
    return tokenizer_from_gguf(as_metadata(model(way)))


def score(way: str, token_ids: list[int]) -> float:
    return sum(processor(model(way)).get_score(i) for i in token_ids)


@pytest.mark.conformance
@pytest.mark.parametrize("way", share_of(WAYS, 4))
def test_ids_equal_sentencepieces(way: str) -> None:
    """Or another, rare segmentation with an equal sum."""
    judge, differing = processor(model(way)), 0
    for text in texts():
        if any(name in text for name in NAMED):
            continue  # SentencePiece inserts no space after a named token; llama.cpp does
        want, got = judge.encode(text), ours(way).encode(text)
        if got != want:
            assert score(way, got) >= score(way, want) - 1e-9, repr(text)
            assert score(way, got) < score(way, want) + 1e-3, repr(text)
            differing += 1
    assert differing <= MOST_TIES


@pytest.mark.conformance
@pytest.mark.parametrize("way", ["as T5", "with all spaces", "with bytes"])
def test_decoding_equals_sentencepieces(way: str) -> None:
    judge = processor(model(way))
    for text in texts():
        token_ids = judge.encode(text)
        if judge.unk_id() not in token_ids:  # hidden here, marked there
            assert ours(way).decode(token_ids) == judge.decode(token_ids)


@pytest.mark.conformance
@pytest.mark.parametrize("way", ["as T5", "with bytes", "without a first space"])
def test_streaming_equals_decoding(way: str) -> None:
    rng = random.Random(5)
    for _ in range(500):
        token_ids = rng.choices(range(ours(way).vocab_size), k=10)
        for special in (False, True):
            decoder = StreamDecoder(ours(way), special=special)
            text = "".join([*map(decoder.push, token_ids), decoder.finish()])
            assert text == ours(way).decode(token_ids, special=special)


def pieces_of(way: str) -> list[tuple[str, float]]:
    judge = processor(model(way))
    return [(judge.id_to_piece(i), judge.get_score(i)) for i in range(len(judge))]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("way", "byte_fallback"), [("as T5", False), ("with bytes", True), ("with bytes", False)]
)
def test_ids_equal_those_of_tokenizers(way: str, byte_fallback: bool) -> None:
    """For raw text with many unknown characters, and with the names of all tokens in it."""
    pieces = pieces_of(way)
    judge = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=byte_fallback))
    made = from_pieces(pieces, 0, byte_fallback=byte_fallback)
    rng = random.Random(2)
    for text in texts():
        text = text.replace(" ", "▁") + rng.choice(("", "<unk>", "<unk>꙰", "<0x41>", "<s>"))
        assert list(made.encode_word(text)) == judge.encode(text).ids, repr(text)


@pytest.mark.conformance
def test_random_vocabularies_give_the_ids_of_tokenizers() -> None:
    """Small ones with many ties, equal tokens, positive scores and unknown letters."""
    rng = random.Random(4)
    for _ in range(300):
        words = ["".join(rng.choices("abcé", k=rng.randrange(1, 5))) for _ in range(rng.randrange(1, 12))]
        pieces = [("<unk>", 0.0), *((word, rng.choice((-1.0, -2.0, -2.5, 0.5))) for word in words)]
        judge, made = Tokenizer(models.Unigram(pieces, unk_id=0)), from_pieces(pieces, 0)
        for _ in range(10):
            text = "".join(rng.choices("abcéd", k=rng.randrange(1, 30)))
            assert list(made.encode_word(text)) == judge.encode(text).ids, (pieces, text)


@pytest.mark.conformance
def test_the_unknown_penalty_equals_that_of_tokenizers() -> None:
    """An unknown letter and one long token, or as many short ones; and bytes, one of them without a token."""
    for n in range(6, 15):
        pieces = [("xa", -1.0), ("b", -1.0), ("a" + "b" * n, -1.0), ("<unk>", -1.0), ("<0xC3>", -1.0)]
        judge = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=True))
        for text in ("xa" + "b" * n, "bé"):
            assert (
                list(from_pieces(pieces, 3, byte_fallback=True).encode_word(text)) == judge.encode(text).ids
            )


@pytest.mark.conformance
def test_single_words_are_split_like_whole_texts() -> None:
    """The model on whole texts must agree with the tokenizer, which first splits at spaces."""
    made = ours("as T5")
    whole, cuts = made._encode_word, 0
    for text in texts():
        prepared = made._prepare(text, True)
        words = list(made._split(prepared))
        assert [i for word in words for i in whole(word)] == list(whole(prepared))
        cuts += len(words) > 1
    assert cuts > 500
    assert list(ours("across words")._split("▁a▁b")) == ["▁a▁b"]


def test_named_tokens_are_matched_before_and_after_normalization() -> None:
    """llama.cpp's way: each stretch between named tokens is normalized as a separate text."""
    made = ours("with named tokens")
    tokens = made.vocab.tokens
    spelled = [tokens[i] for i in made.encode("to <tool> to")]
    at = spelled.index("<tool>")
    assert ["".join(spelled[:at]), "".join(spelled[at + 1 :])] == ["▁to", "▁to"]
    assert tokens.index("<tool>") in made.encode("＜tool＞")  # the map produces it from wide letters


def test_a_text_ends_with_eos() -> None:
    made = ours("as T5")
    assert made.frame == Frame(after=(processor(model("as T5")).eos_id(),))
    facts = {k: v for k, v in as_metadata(model("as T5")).items() if "token_id" not in k}
    assert tokenizer_from_gguf(facts).frame == Frame(after=(1,))  # llama.cpp's default


@pytest.mark.parametrize("unit", share_of(["a", " ", "\u0301", "▁a", "é", "ab ", "\u0bcd"], 2))
def test_a_megabyte_is_encoded_within_ten_seconds(unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    for way in ("as T5", "across words"):
        with within(10):
            ours(way).encode(text)


def test_a_hostile_vocabulary_takes_linear_time() -> None:
    """Tokens that agree with the text as long as possible, and then end in another letter."""
    pieces = {"a" * length + "b": (-1.0, length) for length in range(1, 200)}
    made = Unigram(pieces, unk_id=0, unk_score=-9.0)
    with within(10):
        assert made.encode_word("a" * 50_000) == (0,)


def small(**changes: object) -> dict[str, object]:
    """Four tokens; `changes` replace facts."""
    facts: dict[str, object] = {
        "model": "t5",
        "tokens": ["<pad>", "</s>", "<unk>", "a"],
        "scores": [0.0, 0.0, 0.0, -1.0],
        "token_type": [CONTROL, CONTROL, UNKNOWN, NORMAL],
        "eos_token_id": 1,
    } | changes
    return {f"tokenizer.ggml.{name}": fact for name, fact in facts.items() if fact is not None}


FAULTS: dict[str, tuple[dict[str, object], str]] = {
    "no scores": ({"scores": None}, "scores is NoneType, expected an array"),
    "too few scores": ({"scores": [0.0]}, "1 scores for 4 tokens"),
    "scores of another type": ({"scores": [0, 0, 0, 1]}, "expected float"),
    "a score that is no number": ({"scores": [0.0, 0.0, 0.0, float("nan")]}, "score of 'a' is nan"),
    "a score without bound": ({"scores": [0.0, 0.0, 0.0, -float("inf")]}, "score of 'a' is -inf"),
    "unknown out of range": ({"unknown_token_id": 4}, "unknown_token_id is 4, expected an id below 4"),
    "end out of range": ({"eos_token_id": 4}, "eos_token_id is 4"),
    "a long token": ({"tokens": ["<pad>", "</s>", "<unk>", "a" * 257]}, "has 257 characters; at most 256"),
    "a map that is damaged": ({"precompiled_charsmap": [1, 0, 0, 0, 7]}, "a trie of 1 bytes"),
    "a map of no bytes": ({"precompiled_charsmap": [256, 0, 0, 0]}, "numbers that are not bytes"),
    "a map of another type": ({"precompiled_charsmap": "abc"}, "is str, expected an array"),
    "a byte token that is none": ({"token_type": [CONTROL, CONTROL, UNKNOWN, 6]}, "byte token 'a'"),
    "a flag that is none": ({"add_space_prefix": 1}, "add_space_prefix is 1, expected bool"),
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
def test_inconsistent_metadata_is_refused(fault: str) -> None:
    assert tokenizer_from_gguf(small()).encode("aba") == [3, 2, 3]
    changes, message = FAULTS[fault]
    with pytest.raises(ModelFormatError, match=message):
        tokenizer_from_gguf(small(**changes))


def test_pieces_without_the_unknown_refuse_unknown_text() -> None:
    made = from_pieces([("a", -1.0)], None)
    assert made.encode_word("aa") == (0, 0)
    with pytest.raises(RequestError, match="no token for 'b'"):
        made.encode_word("ab")


@pytest.mark.conformance
def test_the_unknown_penalty_with_metadata() -> None:
    for n in range(6, 15):
        tokens = ["<pad>", "</s>", "<unk>", "xa", "b", "a" + "b" * n]
        types, scores = [CONTROL, CONTROL, UNKNOWN, NORMAL, NORMAL, NORMAL], [-1.0] * 6
        made = tokenizer_from_gguf(small(tokens=tokens, token_type=types, scores=scores))
        judge = Tokenizer(models.Unigram([(token, -1.0) for token in tokens], unk_id=2))
        assert made.encode("xa" + "b" * n) == judge.encode("xa" + "b" * n).ids
