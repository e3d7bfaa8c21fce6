"""Hugging Face tokenizers as GGUF metadata, against `tokenizers` and the gguf package's vocab classes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gguf.constants import TokenType
from gguf.vocab import BpeVocab, SpecialVocab
from tests.support.formats.hf_tokenizers import (
    BYTE_LEVEL,
    CONTROLS,
    NAMED,
    SPACES,
    byte_level,
    crowded,
    n_tokens,
    published,
    read,
    sentencepiece,
)  # fmt: skip
from tests.support.text.texts import random_texts
from tokenizers import Tokenizer, processors

from camelid.errors import UnsupportedModelError
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = (int(kind) for kind in TokenType)
TEXTS = [*random_texts(400, seed=5), " xyzzy", "a<s>b</s>c<tool>   <|im_end|>", "", "the llama " * 9]


def as_gguf(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"tokenizer.{'' if key == 'chat_template' else 'ggml.'}{key}": value for key, value in facts.items()
    }


def oracle_encode(made: Tokenizer, text: str, special: bool) -> list[int]:
    made.encode_special_tokens = not special
    return made.encode(text, add_special_tokens=False).ids


@pytest.mark.conformance
@pytest.mark.parametrize("pre", BYTE_LEVEL)
def test_byte_level_ids_equal_those_of_tokenizers(pre: str) -> None:
    facts = read(published(byte_level(pre)))
    assert (facts["model"], facts["pre"]) == ("gpt2", pre)
    ours = tokenizer_from_gguf(as_gguf(facts))
    for text in TEXTS:
        for special in (False, True):
            assert ours.encode(text, special) == oracle_encode(byte_level(pre), text, special), repr(text)
        assert ours.decode(ours.encode(text), special=True) == text


def test_merges_in_both_forms_are_equal() -> None:
    new = published(byte_level("gpt-2"))
    old = copy.deepcopy(new)
    old["model"]["merges"] = [" ".join(pair) for pair in new["model"]["merges"]]
    del old["model"]["type"]  # as in GPT-2's file
    assert read(old) == read(new)
    assert len(read(old)["merges"]) > 300


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ({"Regex": "'(?i:[sdmt]|ll|ve|re)|" + "REST"}, "qwen2"),
        ({"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + "REST"}, "qwen2"),
        (
            {"Regex": ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + "REST").replace(r"\r", "\r").replace(r"\n", "\n")},
            "qwen2",
        ),
    ],
)
@pytest.mark.parametrize(("behavior", "invert"), [("Isolated", False), ("Removed", True)])
def test_other_spellings_of_a_splitter_are_recognized(
    spelling: dict[str, str], name: str, behavior: str, invert: bool
) -> None:
    made = published(byte_level("qwen2"), normalizer={"type": "NFC"})
    split = made["pre_tokenizer"]["pretokenizers"][0]
    rest = split["pattern"]["Regex"].split("|", 7)[7]
    pattern = {key: regex.replace("REST", rest) for key, regex in spelling.items()}
    split |= {"pattern": pattern, "behavior": behavior, "invert": invert}
    assert read(made)["pre"] == name
    assert Tokenizer.from_str(json.dumps(made)).encode("I'LL 23\n\n x").tokens == (
        byte_level("qwen2").encode("I'LL 23\n\n x").tokens
    )


def spm_encode(facts: Mapping[str, Any], text: str) -> list[int]:
    """The reading of GGUF's kind "llama": joins the pair of best score, or by listed merges, then bytes for
    text without a token.
    """
    ids = {t: i for i, t in reversed(list(enumerate(facts["tokens"]))) if facts["token_type"][i] == NORMAL}
    ranks: dict[Any, float] = {tuple(merge.split(" ")): i for i, merge in enumerate(facts.get("merges", []))}
    if not ranks:
        ranks = ranks_by_score(facts, ids)
    parts = list((" " * (facts["add_space_prefix"] and text != "") + text).replace(" ", "▁"))
    while ranked := [(ranks[p], i) for i, p in enumerate(pairwise(parts)) if p in ranks]:
        i = min(ranked)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [i for part in parts for i in ([ids[part]] if part in ids else by_bytes(facts, part))]


def ranks_by_score(facts: Mapping[str, Any], ids: Mapping[str, int]) -> dict[Any, float]:
    """Pairs of texts whose concatenation is a token, the best score first."""
    ways = ((token, i) for token in ids for i in range(1, len(token)))
    return {(token[:i], token[i:]): -facts["scores"][ids[token]] for token, i in ways}


def by_bytes(facts: Mapping[str, Any], part: str) -> list[int]:
    found = [facts["tokens"].index(f"<0x{byte:02X}>") for byte in part.encode()]
    assert {facts["token_type"][i] for i in found} == {BYTE}
    return found


@pytest.mark.conformance
@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("spaces", SPACES)
def test_sentencepiece_style_ids_equal_those_of_tokenizers(spaces: str, complete: bool) -> None:
    made = sentencepiece(spaces, complete)
    facts = read(published(made))
    assert (facts["model"], facts["pre"], facts["add_space_prefix"]) == (
        "llama",
        "default",
        SPACES[spaces][2],
    )
    assert ("merges" in facts) == (not complete), "scores and complete merges give other ids"
    for text in [*random_texts(200, seed=9), *crowded(400, seed=4), "x"]:
        # `spm_encode` matches no named tokens: ▁▁, user-defined here, and control tokens.
        if any(name in text for name in ("  ", "▁▁", "<unk>", "<s>", "</s>")):
            continue
        if not (text.startswith((" ", "▁")) and facts["add_space_prefix"]):
            assert spm_encode(facts, text) == made.encode(text, add_special_tokens=False).ids, repr(text)


def test_sentencepiece_style_tokens_have_their_types() -> None:
    made = sentencepiece("llama-2", True)
    facts = read(published(made), {"unk_token": "<unk>"}, vocab_size=made.get_vocab_size() + 2)
    kinds = dict(zip(facts["tokens"], facts["token_type"], strict=True))
    wanted = {
        "<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL, "<0x0A>": BYTE, "a": NORMAL, "  ": USER_DEFINED,
        f"[PAD{made.get_vocab_size()}]": UNUSED, f"[PAD{made.get_vocab_size() + 1}]": UNUSED,
    }  # fmt: skip
    assert {token: kinds[token] for token in wanted} == wanted
    assert facts["unknown_token_id"] == made.token_to_id("<unk>")
    assert "  " in facts["tokens"], "a user-defined token does not spell its spaces"
    n_merged = len({score for score in facts["scores"] if score})
    assert n_merged > 100
    assert min(facts["scores"]) == -n_merged


def test_metaspace_splitting_is_accepted_without_tokens_across_words() -> None:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    made = published(sentencepiece("mistral", True), pre_tokenizer=metaspace)
    with pytest.raises(UnsupportedModelError, match="some tokens have ▁ inside"):
        read(made)
    made["model"] |= {"vocab": {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3}, "merges": ["▁ a"]}
    assert read({**made, "added_tokens": []})["add_space_prefix"] is True


SETTINGS: dict[str, dict[str, Any]] = {
    "names": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": {"content": "<|im_end|>"}},
    "no names": {},
    "a name that is no token": {"bos_token": "<s>", "pad_token": "[nowhere]"},
}
FRAMES: dict[str, Any] = {
    "none": None,
    "bos": "<s> $A",
    "both": "<s> $A </s>",
    "eos": "$A </s>",
}


@pytest.mark.conformance
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_metadata_agrees_with_the_gguf_package(settings: str, frame: str, tmp_path: Path) -> None:
    judge = published(byte_level("gpt-2"))
    if FRAMES[frame]:
        judge["post_processor"] = json.loads(framed_by(FRAMES[frame]).to_str())["post_processor"]
    config = {"bos_token_id": 3, "eos_token_id": 4, "pad_token_id": 5}
    files = {"tokenizer.json": judge, "tokenizer_config.json": SETTINGS[settings], "config.json": config}
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    vocab, special = BpeVocab(tmp_path), SpecialVocab(tmp_path, load_merges=True)
    facts = read(judge, SETTINGS[settings], config=config)
    assert facts["tokens"] == [t if isinstance(t, str) else t.decode() for t, _, _ in vocab.all_tokens()]
    assert facts["merges"] == special.merges
    if SETTINGS[settings]:  # without names it only checks flags
        ids = {role: facts[f"{role}_token_id"] for role in ("bos", "eos")} | {
            "pad": facts["padding_token_id"]
        }
        assert ids == special.special_token_ids
    flags = {role: facts[f"add_{role}_token"] for role in ("bos", "eos")}
    assert {role: flag for role, flag in flags.items() if flag} == {
        r: f for r, f in special.add_special_token.items() if f
    }


FLAGS: list[dict[str, Any]] = [
    {},
    {"add_bos_token": True},
    {"add_bos_token": False},
    {"add_eos_token": True},
    {"add_bos_token": True, "add_eos_token": True},
    {"add_bos_token": None},
]


@pytest.mark.conformance
@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("frame", FRAMES)
def test_the_post_processor_overrides_the_flags(flags: dict[str, Any], frame: str) -> None:
    """As in transformers 5.23, which ignores the flags if there is a tokenizer.json."""
    made = framed_by(FRAMES[frame]) if FRAMES[frame] else byte_level("gpt-2")
    settings = {"bos_token": "<s>", "eos_token": "</s>", **flags}
    wanted = made.encode("a llama").ids
    for ours in (
        tokenizer_from_gguf(as_gguf(read(published(made), settings))),
        tokenizer_from_json(TokenizerFiles(published(made), settings)),
    ):
        assert ours.frame.around(ours.encode("a llama")) == wanted


def framed_by(template: str) -> Tokenizer:
    made = Tokenizer.from_str(byte_level("gpt-2").to_str())
    specials = [(name, made.token_to_id(name)) for name in CONTROLS]
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=specials)
    return made


@pytest.mark.parametrize("template", ["$A", "<s> $A", "$A </s>", "<s> $A </s>", "<|im_end|> $A"])
@pytest.mark.parametrize("in_sequence", [False, True])
def test_texts_have_the_post_processors_special_tokens(template: str, in_sequence: bool) -> None:
    judge = framed_by(template)
    if in_sequence:
        judge.post_processor = processors.Sequence([processors.ByteLevel(), judge.post_processor])
    ours = tokenizer_from_gguf(as_gguf(read(json.loads(judge.to_str()), {"bos_token": "<s>"})))
    assert ours.frame.around(ours.encode("a llama")) == judge.encode("a llama").ids


def test_robertas_special_tokens() -> None:
    judge = Tokenizer.from_str(byte_level("gpt-2").to_str())
    ids = judge.get_vocab()
    judge.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    ours = tokenizer_from_gguf(as_gguf(read(json.loads(judge.to_str()))))
    assert ours.frame.around(ours.encode("llama")) == judge.encode("llama").ids


@pytest.mark.parametrize("pair", ["<s> $A </s> </s> $B </s>", "<s> $A </s> $B </s>", ""])
def test_pairs_with_two_separators_are_marked(pair: str) -> None:
    judge = Tokenizer.from_str(byte_level("gpt-2").to_str())
    ids = judge.get_vocab()
    judge.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    if pair:
        ends = [(name, ids[name]) for name in ("<s>", "</s>")]
        judge.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, ends)
    n_separators = judge.encode("a", "b").tokens.count("</s>") - 1
    assert read(json.loads(judge.to_str())).get("add_sep_token", False) == (n_separators == 2)


def test_types_follow_the_added_tokens() -> None:
    made = published(byte_level("gpt-2"))
    n = n_tokens(made)
    made["added_tokens"].append({"id": n, "content": "<|fim_prefix|>", "special": False})
    decoder = {str(n + 2): {"content": "<extra>", "special": True}, str(n + 3): {"content": "</think>"}}
    facts = read(made, {"added_tokens_decoder": decoder}, vocab_size=n + 5)
    kinds = dict(zip(facts["tokens"], facts["token_type"], strict=True))
    controls = {*CONTROLS, "<|fim_prefix|>", "<extra>"}
    assert {token for token, kind in kinds.items() if kind == CONTROL} == controls
    assert {token for token, kind in kinds.items() if kind == USER_DEFINED} == {*NAMED, "</think>"}
    assert {token for token, kind in kinds.items() if kind == UNUSED} == {f"[PAD{n + 1}]", f"[PAD{n + 4}]"}


def test_added_tokens_beyond_the_embedding_are_dropped() -> None:
    made = published(byte_level("gpt-2"))
    n = n_tokens(made)
    made["added_tokens"].append({"id": n, "content": "<image_soft_token>", "special": True})
    decoder = {str(n): {"content": "<image_soft_token>"}, str(10**11): {"content": "far"}}
    facts = read(made, {"added_tokens_decoder": decoder}, vocab_size=n)
    assert len(facts["tokens"]) == n
    assert not {"<image_soft_token>", "far"} & {*facts["tokens"]}
    assert "<image_soft_token>" in read(made, vocab_size=n + 1)["tokens"]


def test_a_named_token_is_a_control_token_without_a_list_entry() -> None:
    made = published(byte_level("gpt-2"), added_tokens=[])
    facts = read(made, {"bos_token": "<s>", "pad_token": "!", "unk_token": "Ġthe"})
    kinds = dict(zip(facts["tokens"], facts["token_type"], strict=True))
    assert (kinds["<s>"], kinds["!"], kinds["Ġthe"]) == (CONTROL, NORMAL, NORMAL)


EOS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "name first": (
        {"tokenizer_config": {"eos_token": {"content": "</s>"}}, "generation": {"eos_token_id": [7, -2]}},
        [-4, 7, -2],
    ),
    "special_tokens_map": ({"special_tokens": {"eos_token": "</s>"}}, [-4]),
    "generation before config": ({"generation": {"eos_token_id": 7}, "config": {"eos_token_id": 8}}, [7]),
    "config": ({"config": {"eos_token_id": [9, 8]}}, [9, 8]),
    "text_config": ({"config": {"text_config": {"eos_token_id": 9}}}, [9]),
    "-1 is none": ({"config": {"eos_token_id": -1}}, []),
    "null is none": ({"config": {"eos_token_id": None}}, []),
    "known by name": ({"config": {"eos_token_id": [1, -3, 2, 3]}}, [1, 2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("case", EOS)
def test_end_ids(case: str) -> None:
    """Negative ids count from the end of the added tokens: </s>, <|im_end|>, <tool> and the spaces, from -4
    on.
    """
    files, wanted = EOS[case]
    made = published(byte_level("gpt-2"))
    size = n_tokens(made)
    files = json.loads(json.dumps(files).replace("-2", str(size - 2)).replace("-3", str(size - 3)))
    facts = read(made, **files)
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    assert [facts[key] for key in keys if key in facts] == [i if i > 0 else size + i for i in wanted]
    ours = tokenizer_from_gguf(as_gguf(facts))
    assert {i if i > 0 else size + i for i in wanted} <= ours.eos_ids


def test_more_end_ids_than_gguf_stores_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="lists 4 ids, but GGUF has room for 3"):
        read(published(byte_level("gpt-2")), config={"eos_token_id": [1, 2, 3, 4]})


def test_chat_templates_have_keys_by_name() -> None:
    facts = read(published(byte_level("gpt-2")), chat_templates={"default": "d", "tool_use": "t", "rag": "r"})
    found = {key: value for key, value in facts.items() if key.startswith("chat_template")}
    assert found == {
        "chat_template": "d", "chat_template.tool_use": "t", "chat_template.rag": "r",
        "chat_templates": ["tool_use", "rag"],
    }  # fmt: skip
    assert not any(key.startswith("chat_template") for key in read(published(byte_level("gpt-2"))))
