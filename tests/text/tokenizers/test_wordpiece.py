"""WordPiece against llama.cpp's vectors and `tokenizers`, with the vocabulary of bge."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.texts import random_texts
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from camelid.errors import ModelFormatError
from camelid.formats.gguf import open_gguf
from camelid.text.tokenizers.pipeline import Frame, Pipeline, StreamDecoder
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf
from camelid.text.tokenizers.wordpiece import WordPiece

NORMAL, CONTROL = 1, 3


@cache
def texts() -> list[str]:
    """Texts without "▁", which llama.cpp treats as its marker."""
    return [text for text in random_texts(6000, seed=11) if "▁" not in text]


@cache
def ours(shared: Path) -> Pipeline:
    return tokenizer_from_gguf(open_gguf(shared / "data" / "vocab" / "bert-bge.gguf").metadata)


@cache
def names(shared: Path) -> dict[str, int]:
    """The vocabulary in BERT's spelling: ## before a continuation, no prefix at the beginning of a word."""
    vocab = ours(shared).vocab
    return {spelled(token): i for i, token in enumerate(vocab.tokens)}


def spelled(token: str) -> str:
    if token.startswith("▁"):
        return token[1:]
    return token if token.startswith("[") and token.endswith("]") and len(token) > 1 else "##" + token


def oracle(shared: Path, *, max_chars: int = 10**6, lowercase: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(
        models.WordPiece(names(shared), unk_token="[UNK]", max_input_chars_per_word=max_chars)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


@pytest.mark.conformance
def test_public_vectors(shared: Path) -> None:
    """ggml-org/llama.cpp models/ggml-vocab-bert-bge.gguf with its .inp and .out."""
    path = shared / "data" / "vocab" / "bert-bge.gguf"
    inputs = path.with_name("bert-bge.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    outputs = path.with_name("bert-bge.gguf.out").read_text().split("\n")
    assert len(inputs) == len(outputs) == 47  # 46 texts, and the empty text after the last separator
    for text, ids in zip(inputs, outputs, strict=True):
        assert ours(shared).encode(text) == [int(i) for i in ids.split()], repr(text)


@pytest.mark.conformance
@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_equal_those_of_tokenizers(lowercase: bool, shared: Path) -> None:
    judge = oracle(shared, lowercase=lowercase)
    facts = dict(open_gguf(shared / "data" / "vocab" / "bert-bge.gguf").metadata)
    made = tokenizer_from_gguf(facts | {"tokenizer.ggml.normalizer.lowercase": lowercase})
    used: set[int] = set()
    for text in texts():
        token_ids = made.encode(text)
        assert token_ids == judge.encode(text).ids, repr(text)
        used.update(token_ids)
    assert len(used) > 300


@pytest.mark.conformance
@pytest.mark.parametrize("max_chars", [3, 100])
def test_the_model_alone_equals_that_of_tokenizers(max_chars: int, shared: Path) -> None:
    """The rules of a tokenizer.json: longer words are unknown, ## marks a continuation."""
    judge = oracle(shared, max_chars=max_chars)
    made = WordPiece(names(shared), names(shared)["[UNK]"], max_chars=max_chars)
    judge.normalizer, judge.pre_tokenizer = normalizers.Sequence([]), pre_tokenizers.WhitespaceSplit()
    rng = random.Random(6)
    words = ["".join(rng.choices("aeinrstu#é漢", k=rng.randrange(1, 9))) for _ in range(3000)]
    for word in [*words, "a" * max_chars, "a" * (max_chars + 1), "é" * max_chars, "##ing", "[UNK]"]:
        assert list(made.encode_word(word)) == judge.encode(word).ids, word


@pytest.mark.conformance
def test_decoding_equals_that_of_tokenizers(shared: Path) -> None:
    """For ids whose first token begins a word: a leading continuation keeps its ##."""
    judge, rng = oracle(shared), random.Random(8)
    opening = [i for name, i in names(shared).items() if not name.startswith(("##", "["))]
    for _ in range(1000):
        token_ids = [rng.choice(opening), *rng.choices(range(1000, ours(shared).vocab_size), k=9)]
        assert ours(shared).decode(token_ids) == judge.decode(token_ids)
    for text in ("Hello, world! Is this it? Yes. No", "don't, they're 3.14"):
        token_ids = ours(shared).encode(text)
        assert ours(shared).decode(token_ids) == judge.decode(token_ids)


@pytest.mark.conformance
def test_streaming_equals_decoding(shared: Path) -> None:
    rng = random.Random(9)
    for _ in range(500):
        token_ids = rng.choices(range(ours(shared).vocab_size), k=10)
        for special in (False, True):
            decoder = StreamDecoder(ours(shared), special=special)
            text = "".join([*map(decoder.push, token_ids), decoder.finish()])
            assert text == ours(shared).decode(token_ids, special=special)


def test_a_text_has_cls_and_sep(shared: Path) -> None:
    made = ours(shared)
    assert made.frame == Frame((names(shared)["[CLS]"],), (names(shared)["[SEP]"],))
    assert made.frame.around(made.encode("hello")) == [101, 7592, 102]
    assert made.encode("[SEP]") != [102]
    assert made.encode("[SEP]", special=True) == [102]


@pytest.mark.parametrize("unit", share_of(["a", " ", "\u0301", "漢", "a ", ".", "#"], 3))
def test_a_megabyte_is_encoded_within_ten_seconds(unit: str, shared: Path) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    with within(10):
        ours(shared).encode(text)


def test_a_hostile_vocabulary_takes_linear_time() -> None:
    """Tokens that agree with the word as long as possible, and then end in another letter."""
    ids = {"a" * length + "b": length for length in range(1, 200)} | {"a": 0}
    with within(10):
        assert WordPiece(ids, 7, prefix="", max_chars=None).encode_word("a" * 50_000) == (0,) * 50_000


def small(**changes: object) -> dict[str, object]:
    facts: dict[str, object] = {
        "model": "bert",
        "tokens": ["[UNK]", "[CLS]", "[SEP]", "▁a", "b", "▁a▁"],
        "token_type": [CONTROL, CONTROL, CONTROL, NORMAL, NORMAL, NORMAL],
        "unknown_token_id": 0,
        "cls_token_id": 1,
        "seperator_token_id": 2,
    } | changes
    return {f"tokenizer.ggml.{name}": fact for name, fact in facts.items()}


def test_words_are_split_greedily_or_not_at_all() -> None:
    made = tokenizer_from_gguf(small())
    assert made.encode("ab b abb Áb ac") == [3, 4, 0, 3, 4, 4, 3, 4, 0]
    assert tokenizer_from_gguf(small(**{"normalizer.lowercase": False})).encode("ab Ab áb") == [3, 4, 0, 0]
    accents = {"normalizer.lowercase": True, "normalizer.strip_accents": False}
    assert tokenizer_from_gguf(small(**accents)).encode("Ab áb") == [3, 4, 0]
    assert tokenizer_from_gguf(small(bos_token_id=0)).frame == Frame((0,), (2,))


FAULTS: dict[str, tuple[dict[str, object], str]] = {
    "no such unknown": ({"unknown_token_id": 6}, "unknown_token_id is 6, expected an id below 6"),
    "unknown is no id": ({"unknown_token_id": None}, "unknown_token_id is missing"),
    "no such start": ({"cls_token_id": -1}, "cls_token_id is -1"),
    "the usual end, which the file lacks": ({"seperator_token_id": 102}, "seperator_token_id is 102"),
    "a long token": ({"tokens": [*"abcde", "▁" + "a" * 256]}, "has 257 characters; at most 256"),
    "a flag that is none": ({"normalizer.lowercase": "yes"}, "normalizer.lowercase is 'yes', expected bool"),
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
def test_inconsistent_metadata_is_refused(fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(ModelFormatError, match=message):
        tokenizer_from_gguf(small(**changes))
