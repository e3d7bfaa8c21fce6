"""Kind "gpt2" with tokens spelled in characters, as in Gemma 4, against `tokenizers` on a vocabulary trained
here.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from tests.support.text.texts import random_texts
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from camelid.text.tokenizers.pipeline import Frame, Pipeline
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf

FIRST = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
LINES = ["\n\n", "\n\n\n"]  # tokens whose merges converters drop
TEXTS = [*random_texts(1200, seed=71), "a\n\nb\n\n\n\nc \n d", "\n", "  x  ", ""]


@cache
def model() -> dict[str, Any]:
    """A model trained on pieces of lines, without pieces that resemble named tokens."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    texts = [text for text in random_texts(800, seed=3) if "<" not in text]
    trained.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=3000, show_progress=False))
    return json.loads(trained.to_str())["model"]


@cache
def oracle() -> Tokenizer:
    tokens = [*FIRST, *sorted(model()["vocab"], key=model()["vocab"].get), *LINES]
    ids = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(pair) for pair in model()["merges"]] + [("\n", "\n"), ("\n\n", "\n")]
    made = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    return made


@cache
def ours() -> Pipeline:
    ids = oracle().get_vocab()
    facts = {
        "model": "gpt2",
        "pre": "gemma4",
        "tokens": sorted(ids, key=lambda token: ids[token]),
        "token_type": [3, 3, 3, 2, *[6] * 256, *[1] * (len(ids) - len(FIRST))],
        "merges": [" ".join(pair) for pair in model()["merges"]],
        "bos_token_id": 2,
        "eos_token_id": 1,
    }
    return tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in facts.items()})


@pytest.mark.conformance
def test_ids_and_texts_equal_those_of_tokenizers() -> None:
    runs = 0
    for text in TEXTS:
        if "\n\n\n\n" in text:  # a longer run of line ends has no token; merges split it here
            runs += 1
            continue
        assert ours().encode(text) == oracle().encode(text).ids, ascii(text)
        assert ours().decode(ours().encode(text)) == text.replace("▁", " ")
    assert runs < 50


def test_line_end_tokens_need_no_merge() -> None:
    assert ours().encode("\n\n\n") == [oracle().token_to_id("\n\n\n")]


def test_a_text_begins_with_bos_unless_the_file_disables_it() -> None:
    assert ours().frame == Frame(before=(2,))
