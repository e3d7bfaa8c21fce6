"""Inconsistent tokenizer files, and files beyond GGUF: only the documented errors are raised."""

from __future__ import annotations

import copy
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.exhaustive import share_of
from tests.support.formats.hf_tokenizers import byte_level, published, read, sentencepiece
from tests.support.text.hf_families import published as family

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.text.to_gguf.tokenizer import tokenizer_metadata
from camelid.text.tokenizers.hf.files import TokenizerFiles

Change = Callable[[dict[str, Any]], object]
UNSUPPORTED: dict[str, tuple[Change, str]] = {
    "words": (lambda t: t["model"].update(type="WordLevel"), "kind 'WordLevel' .*the directory itself works"),
    "pieces without a mark": (
        lambda t: t["model"].update(type="WordPiece", continuing_subword_prefix=""), "no mark for tokens"
    ),
    "suffix": (lambda t: t["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix"),
    "an unknown regex": (
        lambda t: t.update(pre_tokenizer=regexes(r"\p{Han}+|.")),
        r"no name: '\\\\p\{Han\}\+\|\.', ignore_merges False",
    ),
    "ignore_merges": (lambda t: t["model"].update(ignore_merges=True), "gpt-2.*, except for ignore_merges"),
    "add_prefix_space": (lambda t: t["pre_tokenizer"].update(add_prefix_space=True), "a space before every"),
    "escape codes": (
        lambda t: t["pre_tokenizer"].update({"\x1b[2J": True, "add_prefix_space": True}), "a space before"
    ),
    "lowercase": (lambda t: t.update(normalizer={"type": "Lowercase"}), "normalizer has no name"),
    "no bytes": (lambda t: t.update(pre_tokenizer=None), "neither byte-level nor"),
    "a step unheard of": (lambda t: t.update(pre_tokenizer=regexes(step="Klingon")), "step 'Klingon' has no"),
    "after ByteLevel": (
        lambda t: t.update(pre_tokenizer=sequence(t["pre_tokenizer"], {"type": "Digits"})), "has steps after"
    ),
    "gaps dropped": (
        lambda t: t.update(pre_tokenizer=regexes(r"\p{N}", behavior="Removed", invert=True)), "drops or joins"
    ),
    "two tokens in front": (lambda t: t.update(post_processor=single("<s>", "</s>", None)), "not .BOS. text"),
    "a pair": (lambda t: t.update(post_processor=single(None, None)), "the text 2 times"),
    "another processor": (lambda t: t.update(post_processor={"type": "Odd"}), "post-processor 'Odd' is not"),
    "spaces in merges": (
        lambda t: t["model"].update(vocab={"a ": 990, "b": 991, "a b": 992}, merges=[["a ", "b"]]),
        "have no spaces",
    ),
}  # fmt: skip


def sequence(*steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def regexes(
    *patterns: str, behavior: str = "Isolated", invert: bool = False, step: str = "Split"
) -> dict[str, Any]:
    made = [
        {"type": step, "pattern": {"Regex": p}, "behavior": behavior, "invert": invert}
        for p in patterns or "."
    ]
    return sequence(*made, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False})


def single(*names: str | None) -> dict[str, Any]:
    pieces = [{"SpecialToken": {"id": n, "type_id": 0}} if n else {"Sequence": {"id": "A"}} for n in names]
    return {"type": "TemplateProcessing", "single": pieces}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_settings_beyond_gguf_are_refused_by_name(name: str) -> None:
    change, message = UNSUPPORTED[name]
    made = published(byte_level("gpt-2"))
    change(made)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        read(made, vocab_size=2000)
    assert caught.value.facts
    assert str(caught.value).isprintable()


HOSTILE: dict[str, tuple[Change, str]] = {
    "a far id": (lambda t: t["model"]["vocab"].update(qq=10**12), "has id 1000000000000"),
    "a vast id": (lambda t: t["model"]["vocab"].update(qq=10**5000), "value of type int"),
    "a negative id": (lambda t: t["model"]["vocab"].update(qq=-1), "'qq' has id -1"),
    "a float id": (lambda t: t["model"]["vocab"].update(qq=1.0), "'qq' has id 1.0"),
    "a bool id": (lambda t: t["model"]["vocab"].update(qq=True), "'qq' has id True"),
    "an added id below 0": (lambda t: t["added_tokens"].append({"id": -1, "content": "qq"}), "has id -1"),
    "no id": (lambda t: t["added_tokens"].append({"content": "qq"}), "has id None"),
    "an id twice": (lambda t: t["model"]["vocab"].update(qq=5), "id 5 is .* and 'qq'"),
    "a token twice": (lambda t: t["added_tokens"].append({"content": "!", "id": 1500}), "'!' has two ids"),
    "an id of two": (lambda t: t["added_tokens"].append({"content": "qq", "id": 3}), "id 3 is"),
    "a merge of unknown tokens": (lambda t: t["model"]["merges"].append("qq zz"), "needs 'qq', which is not"),
    "a merge into one": (lambda t: t["model"]["merges"].append(["!", "?"]), "needs '!\\?', which is not"),
    "a merge of three": (lambda t: t["model"]["merges"].append("a b c"), "has 3 parts"),
    "a merge of one": (lambda t: t["model"]["merges"].append(["a"]), "has 1 parts"),
    "a merge of nothing": (lambda t: t["model"]["merges"].append(["", "a"]), "expected two tokens"),
    "a merge of numbers": (lambda t: t["model"]["merges"].append([1, 2]), "expected two tokens"),
    "no merges": (lambda t: t["model"].pop("merges") and t["model"].update(type="BPE"), "merges is NoneType"),
    "no vocabulary": (lambda t: t["model"].pop("vocab"), "vocab is NoneType"),
    "a lone surrogate": (lambda t: t["model"]["vocab"].update({"\ud800": 1500}), "is not Unicode text"),
    "a frame of no token": (lambda t: t.update(post_processor=single("[qq]", None)), "adds '.qq.', which"),
    "deep sequences": (lambda t: t.update(normalizer=nested(100_000)), "normalizer.type is NoneType"),
    "a deep id": (lambda t: t["model"]["vocab"].update(qq=nested(100_000)), "value of type dict"),
    "a deep piece of a merge": (lambda t: t["model"]["merges"].append([nested(100_000), "a"]), "two tokens"),
}  # fmt: skip


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"type": "Sequence", "normalizers": [value]}
    return value


@pytest.mark.faults
@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_contradicts_itself_is_refused(name: str) -> None:
    change, message = HOSTILE[name]
    made = published(byte_level("gpt-2"))
    change(made)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFormatError, match=message) as caught:
            read(made, vocab_size=2000)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.facts


@pytest.mark.faults
@pytest.mark.parametrize("size", [0, -1, 10**12, 1 << 99, True, 7.0, "7", None, 5])
def test_an_impossible_vocab_size_is_refused(size: Any) -> None:
    made = published(byte_level("gpt-2"))
    with pytest.raises(ModelFormatError, match="vocab_size"):
        tokenizer_metadata(TokenizerFiles(made), size)


@pytest.mark.faults
@pytest.mark.parametrize("file", ["config", "generation"])
@pytest.mark.parametrize("role", ["bos", "eos", "pad", "unk"])
@pytest.mark.parametrize("bad", [10**12, -2, "1", 1.5, True, [[1]], {"a": 1}])
def test_an_impossible_id_is_refused(file: str, role: str, bad: Any) -> None:
    with pytest.raises(ModelFormatError, match=f"{role}_token_id is"):
        files: dict[str, Any] = {file: {f"{role}_token_id": bad}}
        read(published(byte_level("gpt-2")), **files)


ODD = (None, True, -1, 10**12, 1.5, "x", "▁", [], [1], ["a", "b"], {}, {"type": "Sequence"}, [None], [{}])


SPOILT: dict[str, Callable[[], dict[str, Any]]] = {
    "gpt2": lambda: published(byte_level("llama-bpe")) | {"post_processor": single("<s>", None)},
    "llama": lambda: published(sentencepiece("mistral", True)) | {"post_processor": single("<s>", None)},
    "mt5": lambda: family("mt5"),
    "bert": lambda: family("bert"),
}


@pytest.mark.faults
@pytest.mark.parametrize("n_cases", share_of([120, 800]))
@pytest.mark.parametrize("kind", SPOILT)
def test_wrong_values_raise_only_documented_errors(kind: str, n_cases: int) -> None:
    made = copy.deepcopy(SPOILT[kind]())
    config = {
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "add_bos_token": True,
        "chat_template": [{}],
    }
    decoder = {"added_tokens_decoder": {"2995": {"content": "q", "special": True}}}
    files = [
        made,
        {**config, **decoder},
        {"unk_token": "q"},
        {"text_config": {"pad_token_id": 1}},
        {"eos_token_id": [1]},
    ]
    rng, refused = random.Random(1), 0
    for _ in range(n_cases):
        changed = copy.deepcopy(files)
        spoil(changed, rng)
        try:
            words = tokenizer_metadata(TokenizerFiles(*changed), 3000)  # type: ignore[misc]
            assert words.metadata.keys() == words.kinds.keys()
        except (ModelFormatError, UnsupportedModelError) as error:
            refused += 1
            assert error.facts
            assert len(str(error)) < 1000
    assert n_cases // 8 < refused < n_cases


def spoil(value: Any, rng: random.Random) -> None:
    """Puts an unusual value at a random place of nested lists and dicts."""
    while True:
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = rng.choice(keys)
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.15:
            value[key] = copy.deepcopy(rng.choice(ODD))
            return
        value = inner
