"""Tokenizers in files: a tokenizer.json, and GGUF's tokenizer metadata as a JSON object."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from camelid.errors import RequestError
from camelid.formats.json_text import parse_object
from camelid.text.to_gguf.tokenizer import tokenizer_metadata
from camelid.text.tokenizers.hf.files import TokenizerFiles
from camelid.text.tokenizers.hf.tokenizer import tokenizer_from_json
from camelid.text.tokenizers.tokenizer import Tokenizer, tokenizer_from_gguf
from camelid.text.tokenizers.vocab import ALPHABET

MERGES = ["l l", "a m", "ll am", "llam a", "Ġ llama"]
TOKENS = [*ALPHABET, *(merge.replace(" ", "") for merge in MERGES)]
NAMED = ["<s>", "<tool>"]
SIZE = len(TOKENS) + len(NAMED) + 2


def added(token_id: int, content: str) -> dict[str, Any]:
    return {"id": token_id, "content": content, "special": content == "<s>"}


PUBLISHED: dict[str, Any] = {
    "added_tokens": [added(len(TOKENS) + i, name) for i, name in enumerate(NAMED)],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    },
    "model": {
        "type": "BPE",
        "unk_token": None,
        "byte_fallback": False,
        "ignore_merges": False,
        "merges": [merge.split() for merge in MERGES],
        "vocab": {token: i for i, token in enumerate(TOKENS)},
    },
}
WORDS = tokenizer_metadata(TokenizerFiles(PUBLISHED), SIZE).metadata
SEED_PUBLISHED = json.dumps(PUBLISHED).encode()
SEED_WORDS = json.dumps(WORDS).encode()


def use(tokenizer: Tokenizer) -> None:
    """An accepted tokenizer decodes, and encodes unless it lacks a byte."""
    with suppress(RequestError):
        token_ids = tokenizer.frame.around(
            tokenizer.encode("a <s> llama, \n<tool> 12 \U0001f999", special=True)
        )
        assert all(0 <= token_id < tokenizer.vocab_size for token_id in token_ids)
        tokenizer.decode(token_ids, special=True)


def parse_words(data: bytes) -> None:
    use(tokenizer_from_gguf(parse_object(data, path="m.gguf", what="metadata")))


def parse_tokenizer(data: bytes) -> None:
    made = parse_object(data, path="tokenizer.json", what="settings")
    words = tokenizer_metadata(TokenizerFiles(made), SIZE)
    assert words.metadata.keys() == words.kinds.keys()
    use(tokenizer_from_gguf(words.metadata))


def parse_hf(data: bytes) -> None:
    made = parse_object(data, path="tokenizer.json", what="settings")
    use(tokenizer_from_json(TokenizerFiles(made), SIZE))
