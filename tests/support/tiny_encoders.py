"""Directories of tiny encoders with a WordPiece tokenizer and the settings of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from tests.support.hf_models import load_case, write_hf

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENS = (*SPECIALS, *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase))
VOCAB = [*TOKENS, *(f"word{i}" for i in range(96 - len(TOKENS)))]
PROMPTS = {"query": "ask: ", "document": ""}
FLAGS = {
    "mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken",
}  # fmt: skip


def write_encoder(folder: Path, name: str = "bert", *, pooling: str = "mean", length: int = 0) -> Path:
    """A golden encoder with a tokenizer, prompts, and a pooling unless "" is given."""
    path = write_hf(folder, load_case(name))
    write_json(path / "tokenizer.json", tokenizer())
    write_json(path / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    write_json(path / "config_sentence_transformers.json", {"prompts": PROMPTS})
    if length:
        write_json(path / "sentence_bert_config.json", {"max_seq_length": length})
    if pooling:
        write_modules(path, {FLAGS[pooling]: True})
    return path


def write_modules(path: Path, pooling: dict[str, Any], *kinds: str) -> None:
    """modules.json with a Transformer, a Pooling of these settings, and further kinds."""
    named = [("Transformer", ""), ("Pooling", "1_Pooling"), *((kind, f"x_{kind}") for kind in kinds)]
    write_json(path / "modules.json", [
        {"idx": i, "name": str(i), "path": at, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, at) in enumerate(named)
    ])  # fmt: skip
    (path / "1_Pooling").mkdir(exist_ok=True)
    write_json(path / "1_Pooling" / "config.json", {"word_embedding_dimension": 64, **pooling})


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def tokenizer() -> dict[str, Any]:
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": token, **special} for i, token in enumerate(SPECIALS)],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {token: i for i, token in enumerate(VOCAB)},
        },
    }  # fmt: skip
