"""Directories of tiny models with an encoder and a decoder, with a Unigram tokenizer as T5's."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from tests.support.hf_models import load_case, write_hf

SPACE = "\u2581"
PIECES = ("<pad>", "</s>", "<unk>", SPACE, *ascii_lowercase, *(SPACE + letter for letter in ascii_lowercase))
VOCAB = [*PIECES, *(f"{SPACE}word{chr(97 + i)}" for i in range(26))]
VOCAB += [a + b for a in "aeiou" for b in "nrst"][: 96 - len(VOCAB)]


def write_transducer(folder: Path, name: str = "flan_t5", *, dtype: str = "f32") -> Path:
    """A golden model with a tokenizer."""
    path = write_hf(folder, load_case(name), dtype=dtype)
    (path / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "pad_token": "<pad>"})
    )
    return path


def tokenizer() -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": token, **flags} for i, token in enumerate(VOCAB[:3])],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [text, end],
            "pair": [text, end, {"Sequence": {"id": "B", "type_id": 0}}, end],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": 2,
            "vocab": [[token, -float(i % 7) - 1.0 if i > 2 else 0.0] for i, token in enumerate(VOCAB)],
        },
    }
