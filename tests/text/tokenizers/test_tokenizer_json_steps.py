"""Single steps of a tokenizer.json in unusual combinations, against the `tokenizers` package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.text.hf_families import published
from tests.support.text.texts import random_texts
from tokenizers import AddedToken, Tokenizer

from camelid.errors import UnsupportedModelError
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json

Json = dict[str, Any]
TEXTS = [*random_texts(60, seed=31), "the llama  and 12", "", "X x\u0130"]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def template(single: str, ids: dict[str, int]) -> Json:
    def piece(name: str) -> Json:
        kind, key = ("Sequence", "A") if name == "$A" else ("SpecialToken", name)
        return {kind: {"id": key, "type_id": 0}}

    known = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()}
    pieces = list(map(piece, single.split()))
    pair = [*pieces, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": pieces, "pair": pair, "special_tokens": known}


def framing(*processors: Json | str) -> Json:
    """Several post-processors in sequence; templates as text."""
    ids = {item["content"]: item["id"] for item in published("llama3")["added_tokens"]}
    made = [template(one, ids) if isinstance(one, str) else one for one in processors]
    return {"post_processor": {"type": "Sequence", "processors": made}}


def bert(opens: str, ends: str) -> Json:
    ids = {item["content"]: item["id"] for item in published("llama3")["added_tokens"]}
    return {"type": "BertProcessing", "cls": [opens, ids[opens]], "sep": [ends, ids[ends]]}


CHAT = bert("<|im_start|>", "<|im_end|>")
CASES: dict[str, tuple[str, Json]] = {
    "ByteLevel twice": ("gpt2", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES, BYTES]}}),
    "a frame in a frame": ("llama3", framing(CHAT, bert("<s>", "<|im_start|>"))),
    "a frame in a template": ("llama3", framing(CHAT, BYTES, "<s> $A <|im_start|>", BYTES)),
    "a template of the text alone": ("llama3", framing("$A", CHAT)),
}


@pytest.mark.parametrize("step", [CHAT, "$A <|im_end|>"])
def test_a_frame_around_a_template_is_refused(step: Json | str) -> None:
    """`tokenizers` takes the template's pieces for a pair of texts, and panics or leaves tokens out."""
    with pytest.raises(UnsupportedModelError, match="follows a template"):
        tokenizer_from_json(TokenizerFiles({**published("llama3"), **framing("<s> $A", step)}))


@pytest.mark.parametrize("case", CASES)
def test_ids_equal_those_of_tokenizers(case: str) -> None:
    name, changes = CASES[case]
    made = {**published(name), **changes}
    ours, judge = tokenizer_from_json(TokenizerFiles(made)), Tokenizer.from_str(json.dumps(made))
    for text in TEXTS:
        assert ours.frame.around(ours.encode(text, special=True)) == judge.encode(text).ids, repr(text)


@pytest.mark.parametrize("special", [True, False])
def test_special_tokens_are_not_normalized_by_default(special: bool) -> None:
    """AddedToken's default if the file omits the field. The normalizer changes the token's text."""
    made = {**published("gpt2"), "normalizer": {"type": "Lowercase"}}
    token_id = len(made["model"]["vocab"]) + len(made["added_tokens"])
    config = {"added_tokens_decoder": {str(token_id): {"content": "Xq", "special": special}}}
    ours, judge = tokenizer_from_json(TokenizerFiles(made, config)), Tokenizer.from_str(json.dumps(made))
    judge.add_tokens([AddedToken("Xq", special=special)])
    for text in ("a Xq b", "a xq b", "a XQ b", "aXqXq"):
        assert ours.encode(text, special=True) == judge.encode(text).ids, text
