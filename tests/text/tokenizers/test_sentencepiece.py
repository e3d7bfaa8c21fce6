"""SentencePiece BPE against `sentencepiece` and `tokenizers` on vocabularies trained here, and vectors."""

from __future__ import annotations

import io
import itertools
import json
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tests.support.processor_time import within
from tests.support.text.made import sentencepiece_bpe
from tests.support.text.texts import random_texts
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from camelid.errors import ModelFormatError, RequestError, UnsupportedModelError
from camelid.formats.gguf import open_gguf
from camelid.text.tokenizers.pipeline import Frame, Pipeline
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
TEXTS = random_texts(500, seed=41)
NAMED = ["<tool>", "x=1;", "\n\n"]
LLAMA: dict[str, Any] = {"byte_fallback": True, "split_digits": True}
MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "without prefix": LLAMA | {"add_dummy_prefix": False},
    "named tokens": LLAMA | {"add_dummy_prefix": False, "user_defined_symbols": NAMED},
    "tokens over spaces": LLAMA | {"split_by_whitespace": False, "allow_whitespace_only_pieces": True},
    "runs of spaces": LLAMA | {"allow_whitespace_only_pieces": True},
    "no bytes": {"character_coverage": 0.98, "unk_surface": "<unk>"},
    "nfkc": LLAMA | {"normalization_rule_name": "nmt_nfkc"},
}


@cache
def trained(name: str) -> bytes:
    """A small trained model, as stored by `sentencepiece`."""
    corpus = [Path(__file__).read_text("utf-8").replace("\n", " \n "), *random_texts(1000, seed=43)]
    corpus += ["over  the   lazy    dog and the end of the"] * 40
    written = io.BytesIO()
    options = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False} | MODELS[name]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in corpus for line in text.split("\n") if line),
        model_writer=written, model_type="bpe", vocab_size=1600 if name == "no bytes" else 1800,
        hard_vocab_limit=False, minloglevel=2, **options,
    )  # fmt: skip
    return written.getvalue()


def oracle(name: str) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=trained(name))


def kind_of(model: Any, token_id: int, named: Sequence[str]) -> int:
    tests = {
        UNKNOWN: model.is_unknown, CONTROL: model.is_control, BYTE: model.is_byte, UNUSED: model.is_unused
    }  # fmt: skip
    found = [kind for kind, test in tests.items() if test(token_id)]
    return found[0] if found else USER_DEFINED if model.id_to_piece(token_id) in named else NORMAL


def metadata(model: Any, options: dict[str, Any]) -> dict[str, object]:
    """The oracle's vocabulary in converters' metadata."""
    ids, named = range(model.get_piece_size()), options.get("user_defined_symbols", [])
    facts: dict[str, object] = {
        "model": "llama",
        "tokens": [model.id_to_piece(i) for i in ids],
        "scores": [model.get_score(i) for i in ids],
        "token_type": [kind_of(model, i, named) for i in ids],
        "add_space_prefix": options.get("add_dummy_prefix", True),
    }
    return {f"tokenizer.ggml.{key}": value for key, value in facts.items()}


@cache
def ours(name: str) -> Pipeline:
    return tokenizer_from_gguf(metadata(oracle(name), MODELS[name]))


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"nfkc"}))
def test_ids_and_text_equal_sentencepieces(name: str) -> None:
    model = oracle(name)
    for text in TEXTS:
        want = model.encode(text)
        assert ours(name).encode(text) == want, repr(text)
        assert ours(name).decode(want, special=True) == model.decode(want)


@pytest.mark.conformance
def test_only_normalization_is_omitted() -> None:
    """As in llama.cpp. With normalization applied first, the ids equal sentencepiece's."""
    normalizer = sentencepiece.SentencePieceNormalizer(
        rule_name="nmt_nfkc", add_dummy_prefix=False, remove_extra_whitespaces=False
    )
    for text in TEXTS:
        if normal := normalizer.normalize(text):
            assert ours("nfkc").encode(normal) == oracle("nfkc").encode(text)


@pytest.mark.conformance
def test_the_texts_use_every_kind_of_token() -> None:
    for name, kinds in (("named tokens", {NORMAL, USER_DEFINED, BYTE}), ("no bytes", {NORMAL, UNKNOWN})):
        used = {token_id for text in TEXTS for token_id in ours(name).encode(text)}
        assert {ours(name).vocab.types[i] for i in used} == kinds
        assert len(used) > 450
    over = {ours("tokens over spaces").vocab.tokens[i] for i in used_ids("tokens over spaces")}
    assert any("▁" in token.lstrip("▁") for token in over)
    runs = {ours("runs of spaces").vocab.tokens[i] for i in used_ids("runs of spaces")}
    assert "▁▁" in runs


def used_ids(name: str) -> set[int]:
    return {token_id for text in TEXTS for token_id in ours(name).encode(text)}


def with_unused(proto: bytes, unused: set[int]) -> bytes:
    """A stored model starts with its pieces: 0x0A, length, message. 0x18 0x05 is a piece's type, unused."""
    changed, at = b"", 0
    for token_id in itertools.count():
        tag, size = proto[at : at + 2]
        if tag != 0x0A:
            break
        piece = proto[at + 2 : at + 2 + size] + (b"\x18\x05" if token_id in unused else b"")
        changed, at = changed + bytes((tag, len(piece))) + piece, at + 2 + size
    return changed + proto[at:]


@pytest.mark.conformance
def test_unused_tokens_are_split_like_the_oracles() -> None:
    unused = set(random.Random(47).sample(range(300, 1700), 700))
    model = sentencepiece.SentencePieceProcessor(model_proto=with_unused(trained("llama"), unused))
    tokenizer = tokenizer_from_gguf(metadata(model, MODELS["llama"]))
    assert tokenizer.vocab.types.count(UNUSED) > 300
    for text in TEXTS:
        token_ids = tokenizer.encode(text)
        assert token_ids == model.encode(text)
        assert UNUSED not in {tokenizer.vocab.types[i] for i in token_ids}


def test_splitting_into_words_does_not_change_ids() -> None:
    """An unrelated token that spans a space makes the pipeline keep texts whole."""
    facts = metadata(oracle("runs of spaces"), MODELS["runs of spaces"])
    tokens, scores, types = (facts[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type"))
    assert isinstance(tokens, list) and isinstance(scores, list) and isinstance(types, list)
    whole = sentencepiece_bpe([*tokens, "☃▁☃"], [*scores, -1e9], types=[*types, NORMAL])
    rng = random.Random(53)
    spaced = ["".join(rng.choices(["▁", " ", "  ", "the", "over", "x"], k=12)) for _ in range(500)]
    for text in [*TEXTS, *spaced]:
        assert whole.encode(text) == ours("runs of spaces").encode(text)


@cache
def listed() -> Tokenizer:
    """Merges that scores do not imply: trained with Metaspace, byte tokens and merges out of order added."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always", split=False)
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False)
    tokenizer.train_from_iterator([Path(__file__).read_text("utf-8").replace("<", "(")], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    random.Random(59).shuffle(merges)
    vocab: dict[str, int] = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{i:02X}>": 3 + i for i in range(256)}
    for token in model["vocab"]:
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))  # type: ignore[arg-type]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in NAMED])
    return tokenizer


@cache
def listed_ours() -> Pipeline:
    tokens = [listed().id_to_token(i) or "" for i in range(listed().get_vocab_size())]
    kinds = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL} | dict.fromkeys(NAMED, USER_DEFINED)
    facts: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [kinds.get(t, BYTE if re.fullmatch("<0x..>", t) else NORMAL) for t in tokens],
        "merges": [" ".join(pair) for pair in json.loads(listed().to_str())["model"]["merges"]],
    }
    return tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in facts.items()})


@pytest.mark.conformance
def test_listed_merges_named_tokens_and_bytes_equal_those_of_tokenizers() -> None:
    """A space precedes every stretch of text, also after a named token."""
    types: set[int] = set()
    for text in [*TEXTS, "<tool> a", "a<tool>b</s>c  d", "<s>"]:
        want = listed().encode(text, add_special_tokens=False).ids
        assert listed_ours().encode(text, special=True) == want, repr(text)
        assert listed_ours().decode(want) == listed().decode(want, skip_special_tokens=True)
        types |= {listed_ours().vocab.types[i] for i in want}
    assert types == {UNKNOWN, CONTROL, NORMAL, USER_DEFINED, BYTE}


@pytest.mark.conformance
def test_public_vectors(shared: Path) -> None:
    """ggml-org/llama.cpp models/ggml-vocab-llama-spm.gguf with its .inp and .out."""
    path = shared / "data" / "vocab" / "llama-spm.gguf"
    tokenizer = tokenizer_from_gguf(open_gguf(path).metadata)
    inputs = path.with_name(f"{path.name}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    outputs = path.with_name(f"{path.name}.out").read_text().split("\n")
    assert len(inputs) == len(outputs) == 47
    for text, ids in zip(inputs, outputs, strict=True):
        assert tokenizer.encode(text) == [*map(int, ids.split())]
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.frame.around([]) == [1]


BASE = ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "<0xC3>", "<0xA9>"]
BASE_TYPES = [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * 5, BYTE, BYTE]
SCORES = [0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -1.0, -2.0, 0.0, 0.0]


def test_defaults_and_the_files_overrides() -> None:
    tokenizer = sentencepiece_bpe(BASE, SCORES, types=BASE_TYPES)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.frame) == (1, 2, Frame((1,)))
    assert (tokenizer.encode("ab"), tokenizer.encode("")) == ([7], [])
    bare = sentencepiece_bpe(
        BASE, SCORES, types=BASE_TYPES,
        add_space_prefix=False, add_bos_token=False, add_eos_token=True, eos_token_id=1,
    )  # fmt: skip
    assert (bare.encode("ab"), bare.eos_id, bare.frame) == ([6], 1, Frame(after=(1,)))
    assert (tokenizer.decode([7, 7]), bare.decode([7, 7])) == ("ab ab", " ab ab")


def test_text_without_a_token_is_bytes_else_unknown_else_an_error() -> None:
    assert sentencepiece_bpe(BASE, SCORES, types=BASE_TYPES).encode("aé漢漢a") == [3, 4, 8, 9, 0, 4]
    without = sentencepiece_bpe(BASE[1:], SCORES[1:], types=BASE_TYPES[1:], eos_token_id=1, bos_token_id=0)
    with pytest.raises(RequestError, match="no token for '漢', nor for its bytes"):
        without.encode("漢")


def test_control_and_byte_tokens_never_match_text() -> None:
    tokens = [*BASE, "<", "s>", "0", "x", "<0x", "C3", "C3>", "<0"]
    tokenizer = sentencepiece_bpe(
        tokens, [*SCORES, *[-1.0] * 8], types=[*BASE_TYPES, *[NORMAL] * 8], add_space_prefix=False
    )
    assert [tokens[i] for i in tokenizer.encode("<s>")] == ["<", "s>"]
    assert [tokens[i] for i in tokenizer.encode("<0xC3>")] == ["<0x", "C3>"]
    assert tokenizer.encode("<s>", special=True) == [1]


def test_spaces_join_to_a_named_token_in_any_spelling() -> None:
    """Converters write user-defined tokens with spaces; the prepended space meets the text's own."""
    for spelled in ("  ", "▁▁"):
        tokenizer = sentencepiece_bpe(
            [*BASE, spelled], [*SCORES, 0.0], types=[*BASE_TYPES, USER_DEFINED], merges=["▁ ▁"]
        )
        assert tokenizer.encode(" a") == [10, 4]
        assert tokenizer.decode([10, 4]) == " a"


def test_unused_tokens_across_spaces_block_merges_too() -> None:
    tokens = ["<unk>", "<s>", "</s>", "▁", "a", "▁a", "a▁"]
    types = [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * 3, UNUSED]
    for score, want in ((-1.0, [4, 3, 4]), (-3.0, [4, 5])):
        tokenizer = sentencepiece_bpe(tokens, [*[0.0] * 5, -2.0, score], types=types, add_space_prefix=False)
        assert tokenizer.encode("a a") == want


def test_the_best_score_merges_first_and_ties_go_left() -> None:
    tokens = ["a", "b", "c", "ab", "bc", "abc"]
    for scores, want in (((-1.0, -1.0), ["ab", "c"]), ((-2.0, -1.0), ["a", "bc"]), ((0.5, 1), ["a", "bc"])):
        tokenizer = sentencepiece_bpe(
            tokens[:5], [0.0] * 3 + [*map(float, scores)],
            add_space_prefix=False, add_bos_token=False,
        )  # fmt: skip
        assert [tokens[i] for i in tokenizer.encode("abc")] == want


BAD: dict[str, tuple[dict[str, object], str]] = {
    "one score less": ({"scores": SCORES[1:]}, "9 numbers for 10 tokens"),
    "NaN": ({"scores": [float("nan"), *SCORES[1:]]}, "or NaN among them"),
    "scores of text": ({"scores": ["1"] * 10}, "expected float"),
    "byte token": ({"tokens": [*BASE[:-1], "<0xA>"]}, "byte token '<0xA>', expected <0x00> to <0xFF>"),
    "merge": ({"merges": ["a c"]}, "merge 0 is 'a c', but 'c' is not a text token"),
    "merge twice": ({"merges": ["a b", "a b"]}, "'a b' is listed twice"),
    "control merge": ({"merges": ["a b", "▁ a"]}, "'▁a' is not a text token"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_are_refused(name: str) -> None:
    changes, message = BAD[name]
    facts = {"model": "llama", "tokens": BASE, "scores": SCORES, "token_type": BASE_TYPES} | changes
    with pytest.raises(ModelFormatError, match=message):
        tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in facts.items()})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("remove_extra_whitespaces", True),
        ("treat_whitespace_as_suffix", True),
        ("escape_whitespaces", False),
        ("precompiled_charsmap", [1, 2]),
    ],
)
def test_settings_that_would_change_ids_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UnsupportedModelError, match=f"tokenizer.ggml.{key} is"):
        sentencepiece_bpe(BASE, SCORES, types=BASE_TYPES, **{key: value})
    harmless = not value if isinstance(value, bool) else []
    assert sentencepiece_bpe(BASE, SCORES, types=BASE_TYPES, **{key: harmless}).encode("ab") == [7]


@pytest.mark.parametrize("unit", ["a", " ", "\u0301", " the", "ab"])
def test_long_runs_take_almost_linear_time(unit: str) -> None:
    tokens = [
        "<unk>",
        "▁",
        "a",
        "\u0301",
        *("a" * 2**i for i in range(1, 12)),
        *("▁" * i for i in range(2, 40)),
    ]
    tokens += ["b", "t", "h", "e", "th", "the", "▁the", "▁the▁the", "ba"]
    tokenizer = sentencepiece_bpe(
        tokens, [-float(i) for i in range(len(tokens))], types=[UNKNOWN] + [NORMAL] * (len(tokens) - 1)
    )
    with within(8):
        assert tokenizer.encode(unit * (200_000 // len(unit)))
