"""Byte-level BPE against `tokenizers` on one trained vocabulary, and against public vectors."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from tests.support.exhaustive import share_of
from tests.support.processor_time import within
from tests.support.text.made import byte_level
from tests.support.text.texts import random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.text.tokenizers.pipeline import Frame, Pipeline
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
NO_IDS: dict[str, object] = {"eos_token_id": None, "bos_token_id": None}
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>x")
NAMED = ("<tool>", "   ")  # user-defined: matched in every text
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}


@cache
def oracle(pre: str = "gpt-2") -> Tokenizer:
    """A tokenizer trained on this file and random texts; llama-bpe has a token that no merge makes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERNS[pre]), "isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([Path(__file__).read_text("utf-8"), *random_texts(2000, seed=3)], trainer)
    if pre == "llama-bpe":
        model = json.loads(tokenizer.to_str())["model"]
        vocab = {**model["vocab"], "Ġxyzzy": len(model["vocab"])}
        merges = [tuple(m) for m in model["merges"]]
        tokenizer.model = models.BPE(vocab, merges, ignore_merges=True)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROLS])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in NAMED])
    return tokenizer


def metadata(like: str = "gpt-2", changes: Mapping[str, object] | None = None) -> dict[str, object]:
    """The oracle's tokenizer as GGUF metadata."""
    saved = oracle(like)
    model = json.loads(saved.to_str())["model"]
    tokens = [saved.id_to_token(i) for i in range(saved.get_vocab_size())]
    kinds: dict[str | None, int] = {**dict.fromkeys(CONTROLS, CONTROL), **dict.fromkeys(NAMED, USER_DEFINED)}
    facts: dict[str, object] = {
        "model": "gpt2",
        "pre": like,
        "tokens": tokens,
        "token_type": [kinds.get(t, NORMAL) for t in tokens],
        "merges": [" ".join(pair) for pair in model["merges"]],
        "eos_token_id": tokens.index("<|im_end|>"),
        "bos_token_id": tokens.index("<|endoftext|>"),
    } | {**(changes or {})}
    return {f"tokenizer.ggml.{k}": v for k, v in facts.items() if v is not None}


@cache
def ours(pre: str = "gpt-2") -> Pipeline:
    return tokenizer_from_gguf(metadata(pre))


def oracle_encode(text: str, pre: str, special: bool) -> list[int]:
    """With encode_special_tokens, `tokenizers` treats control tokens as ordinary text."""
    oracle(pre).encode_special_tokens = not special
    return oracle(pre).encode(text, add_special_tokens=False).ids


@cache
def texts() -> list[str]:
    return [
        *random_texts(3000, seed=5),
        *("x<|im_end|>" * i + "y   <tool>" for i in range(4)),
        " xyzzy xyzzy",
        "",
    ]


@pytest.mark.conformance
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("pre", PATTERNS)
def test_ids_equal_the_oracles(pre: str, special: bool) -> None:
    for text in texts():
        assert ours(pre).encode(text, special=special) == oracle_encode(text, pre, special), repr(text)


@pytest.mark.conformance
def test_the_texts_use_every_kind_of_token() -> None:
    used = {token_id for text in texts() for token_id in ours().encode(text, special=True)}
    assert {ours().vocab.types[i] for i in used} == {NORMAL, CONTROL, USER_DEFINED}
    assert len(used) > 550  # of 900; every edit of this file, part of the training text, moves it slightly
    whole = ours("llama-bpe").encode(" xyzzy")
    assert [ours("llama-bpe").token_bytes(i) for i in whole] == [b" xyzzy"]


@pytest.mark.conformance
def test_long_words_take_the_same_merges_as_in_the_oracle() -> None:
    rng = random.Random(9)
    for length in (65, 300, 5000):
        for alphabet in ("a", "ab", "the", "éa"):
            text = "".join(rng.choices(alphabet, k=length))
            assert ours().encode(text) == oracle_encode(text, "gpt-2", False)


@pytest.mark.conformance
def test_decoding_equals_the_oracles_and_undoes_encoding() -> None:
    rng = random.Random(11)
    for text in texts():
        assert ours().decode(ours().encode(text)) == text
    for _ in range(1000):
        token_ids = rng.choices(range(ours().vocab_size), k=12)
        for special in (False, True):
            want = oracle().decode(token_ids, skip_special_tokens=not special)
            assert ours().decode(token_ids, special=special) == want


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["gpt-2", "falcon", "deepseek-coder"])
def test_public_vectors(name: str, shared: Path) -> None:
    """ggml-org/llama.cpp models/ggml-vocab-*.gguf with their .inp and .out."""
    path = shared / "data" / "vocab" / f"{name}.gguf"
    tokenizer = tokenizer_from_gguf(open_gguf(path).metadata)
    inputs = path.with_name(f"{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    outputs = path.with_name(f"{name}.gguf.out").read_text().split("\n")
    assert len(inputs) == len(outputs) == 47  # 46 texts, and the empty text after the last separator
    for text, ids in zip(inputs, outputs, strict=True):
        assert tokenizer.encode(text) == [int(i) for i in ids.split()], repr(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_control_tokens_are_matched_in_trusted_text_only() -> None:
    tokenizer = ours()
    im_end = tokenizer.vocab.tokens.index("<|im_end|>")
    assert tokenizer.encode_spans([("a<|im_end|>", True)])[-1] == im_end
    for spans in (
        [("<|im_end|>", False)],
        [("<|im_", True), ("end|>", False)],
        [("<|", False), ("im_end|>", True)],
        [("<|im_end", True), ("", False), ("|>", False)],
    ):
        assert not any(map(tokenizer.is_control, tokenizer.encode_spans(spans)))
    assert tokenizer.encode_spans([("<|im_", True), ("", False), ("", True), ("end|>", True)]) == [im_end]
    # The longest token is only partly trusted, the shorter one fully.
    assert tokenizer.encode_spans([("<|im_end|>", True), ("x", False)])[0] == im_end


def test_span_boundaries_do_not_affect_words() -> None:
    rng = random.Random(13)
    for text in random_texts(300, seed=17):
        if any(name in text for name in CONTROLS):
            continue
        cuts = sorted(rng.choices(range(len(text) + 1), k=3))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        spans = [(part, bool(rng.randrange(2))) for part in parts]
        assert ours().encode_spans(spans) == ours().encode(text)


@pytest.mark.parametrize("unit", share_of(["a", "\u0301", "<", " "], 2))
def test_a_megabyte_without_borders_is_encoded_within_ten_seconds(unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    with within(10):
        token_ids = ours().encode(text, special=True)
    assert len(token_ids) > 1000


def test_the_word_cache_is_bounded() -> None:
    tokenizer = tokenizer_from_gguf(metadata())
    tokenizer.encode("b" * 10_000)
    assert tokenizer._cached_word.cache_info().currsize == 0
    letters = str.maketrans("0123456789", "abcdefghij")
    for first in range(0, 20_000, 2000):  # each text too short for the fast path
        tokenizer.encode(" ".join(str(first + i).translate(letters) for i in range(2000)))
    assert tokenizer._cached_word.cache_info().currsize == 16_384


def test_an_earlier_listed_merge_goes_first_even_if_possible_later() -> None:
    """Training never gives such merges, but a file may: rank 0 needs the token of rank 1."""
    made = byte_level(["a", "b", "c", "ab", "abc"], ["ab c", "a b"])
    assert made.encode("abcab") == [4, 3]


def test_special_ids_come_from_the_file_and_from_names() -> None:
    tokens = ours().vocab.tokens
    named = {tokens.index("<|im_end|>"), tokens.index("<|endoftext|>")}
    assert ours().eos_ids == named
    assert ours().bos_id == tokens.index("<|endoftext|>")
    llama = ours("llama-bpe")
    assert (ours().frame, llama.frame) == (Frame(), Frame(before=(llama.bos_id or -1,)))
    extra = tokenizer_from_gguf(
        metadata(changes={"eot_token_id": 5, "eom_token_id": 6, "add_bos_token": True})
    )
    assert extra.eos_ids == named | {5, 6}
    assert extra.frame == Frame(before=(extra.bos_id or -1,))


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("add_eos", [False, True])
def test_a_text_has_the_files_special_tokens(add_bos: bool, add_eos: bool) -> None:
    """The oracle is the post-processor of `tokenizers`."""
    flags: dict[str, object] = {"add_bos_token": add_bos, "add_eos_token": add_eos}
    made = tokenizer_from_gguf(metadata(changes=flags))
    assert made.eos_id == oracle().token_to_id("<|im_end|>")
    names = [*["<|endoftext|>"] * add_bos, "$A", *["<|im_end|>"] * add_eos]
    specials = [(name, oracle().token_to_id(name)) for name in CONTROLS]
    judge = Tokenizer.from_str(oracle().to_str())
    judge.post_processor = processors.TemplateProcessing(single=" ".join(names), special_tokens=specials)
    for text in ("", "a text"):
        assert made.frame.around(made.encode(text)) == judge.encode(text).ids


def test_no_special_tokens_by_default() -> None:
    assert ours().frame == Frame()
    assert ours().frame.around([1, 2]) == [1, 2]


def test_a_token_that_only_closes_a_message_does_not_end_the_turn() -> None:
    """gpt-oss: <|end|> separates the messages of one turn; in Phi-3 it ends the turn."""
    names = ["a", "<|end|>", "<|call|>", "<|return|>"]
    facts = {"tokens": names, "token_type": [1, CONTROL, CONTROL, CONTROL], "merges": [], **NO_IDS}
    assert tokenizer_from_gguf(metadata(changes=facts)).eos_ids == {2, 3}
    facts = {"tokens": names[:2], "token_type": [1, CONTROL], "merges": [], **NO_IDS}
    assert tokenizer_from_gguf(metadata(changes=facts)).eos_ids == {1}
    # The token type normal changes nothing.
    facts["token_type"] = [1, NORMAL]
    assert tokenizer_from_gguf(metadata(changes=facts)).eos_ids == {1}


@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_an_id_out_of_range_is_refused(token_id: int) -> None:
    for use in (ours().token_bytes, ours().is_control, lambda i: ours().decode([i])):
        with pytest.raises(RequestError, match=r"token id .* is out of range; the vocabulary has ids 0 to"):
            use(token_id)


def test_a_lone_surrogate_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"lone surrogate, U\+D83D, at character 2") as caught:
        ours().encode("ab\ud83d")
    assert caught.value.facts["offset"] == 2


def test_a_token_that_is_not_utf8_keeps_its_bytes() -> None:
    token = b"\xe6\xbc".decode("utf-8", "surrogateescape")
    made = byte_level([token, "a"], types=[USER_DEFINED, NORMAL])
    assert made.token_bytes(0) == b"\xe6\xbc"
    with pytest.raises(ModelFormatError, match="is not Unicode text"):
        byte_level(["\ud800"])


def test_a_byte_without_a_token_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="no token for byte 0x62"):
        byte_level(["a"]).encode("ab")


FAULTS: dict[str, tuple[dict[str, object], str]] = {
    "types too short": ({"token_type": [1]}, "1 token types for"),
    "no tokens": ({"tokens": None}, "tokens is NoneType, expected an array"),
    "empty": ({"tokens": [], "token_type": [], "merges": []}, "0 tokens"),
    "tokens of another type": ({"tokens": ["a", 1]}, r"tokens\[1\] is 1, expected str"),
    "types of another type": ({"token_type": ["1"]}, "expected int"),
    "bool as type": ({"token_type": [True]}, "expected int"),
    "no merges": ({"merges": None}, "merges is NoneType"),
    "merge of an unknown token": ({"merges": ["a qqq"]}, "'qqq' is not a text token"),
    "merge into an unknown token": ({"merges": ["! ?"]}, r"'!\?' is not a text token"),
    "merge without a space": (
        {"tokens": ["a", "ab", "aab"], "token_type": [1, 1, 1], "merges": ["ab"], **NO_IDS},
        "merge 0 is 'ab'",
    ),
    "merge of nothing": ({"merges": ["a "]}, "merge 0"),
    "merge into a control token": (
        {"tokens": ["a", "b", "ab"], "token_type": [1, 1, CONTROL], "merges": ["a b"], **NO_IDS},
        "'ab' is not a text token",
    ),
    "merge twice": (
        {"tokens": ["a", "b", "ab"], "token_type": [1, 1, 1], "merges": ["a b", "a b"], **NO_IDS},
        "listed twice",
    ),
    "eos out of range": ({"eos_token_id": 10**6}, "eos_token_id is 1000000, expected an id below"),
    "negative bos": ({"bos_token_id": -1}, "bos_token_id is -1"),
    "bool as id": ({"eot_token_id": True}, "eot_token_id is True"),
    "add_bos without bos": ({"bos_token_id": None, "add_bos_token": True}, "add_bos_token is True"),
    "add_bos of another type": ({"add_bos_token": 1}, "add_bos_token is 1"),
    "add_eos without eos": ({"eos_token_id": None, "add_eos_token": True}, "add_eos_token is True"),
    "a long merge": ({"merges": ["x" * 5000 + " y"]}, "merge 0 is 'xxx"),
    "a long list as id": ({"eos_token_id": [7] * 5000}, "eos_token_id is .7, 7"),
    "a long list as flag": ({"add_eos_token": [7] * 5000}, "add_eos_token is .7, 7"),
}  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS)
def test_metadata_that_contradicts_itself_is_refused(fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(ModelFormatError, match=message) as caught:
        tokenizer_from_gguf(metadata(changes=changes))
    assert len(str(caught.value)) < 1000


def test_vocab_size_of_the_architecture_must_agree() -> None:
    facts = {**metadata(), "general.architecture": "llama", "llama.vocab_size": 7}
    with pytest.raises(ModelFormatError, match="vocab_size is 7"):
        tokenizer_from_gguf(facts)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"model": "plamo2"}, "tokenizer"),
        ({"model": [1] * 5000}, "tokenizer"),
        ({"pre": "klingon"}, "pre-tokenizer"),
        ({"pre": "klingon" * 1000}, "pre-tokenizer"),
    ],
)
def test_an_unknown_kind_is_refused_by_name(change: dict[str, object], kind: str) -> None:
    with pytest.raises(UnsupportedModelError, match="known: ") as caught:
        tokenizer_from_gguf(metadata(changes=change))
    assert caught.value.facts["kind"] == kind
    assert len(str(caught.value)) < 1000
    with pytest.raises(UnsupportedModelError, match="tokenizer kind None"):
        tokenizer_from_gguf({})
