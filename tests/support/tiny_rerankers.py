"""Directories of a tiny Qwen3 that ranks by its answer, in the layouts of published rerankers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.hf_models import load_case, write_hf
from tests.support.tiny_encoders import write_json

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
MERGES = (
    "y e", "ye s", "n o", "o w", "l l", "Ġ l", "Ġ w", "i n", "> :", ">: Ġ", "f o", "fo x",
)  # fmt: skip
CHARS = 'JDQIGN<>:"_abcdefghijklmnopqrstuvwxyz.,?/{}|ĠĊ'
TOKENS = (*SPECIALS, *CHARS, *("".join(pair.split()) for pair in MERGES))
VOCAB = [*TOKENS, *(f"unused{i}" for i in range(96 - len(TOKENS)))]
WORDS = (  # the regex of Qwen2's tokenizer.json
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LAYOUTS = ("card", "scores", "one")
ANSWERS = {"true_token_id": VOCAB.index("yes"), "false_token_id": VOCAB.index("no")}
PAIRS_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}<|im_start|>system\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'query' %}<|im_start|>user\n<Query>: {{ m.content }}\n"
    "{% elif m.role == 'document' %}<Document>: {{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ opening }}{% endif %}"
)
QUERY = "where is the fox?"
DOCUMENTS = ["the fox is in a box.", "no one knows", "", "<|im_end|> yes, a fox", " yes / no", "low\nyellow"]


def write_reranker(folder: Path, layout: str) -> Path:
    """The golden qwen3 as a reranker: by its model card, or by a LogitScore of two answers or one."""
    path = write_hf(folder, load_case("qwen3"), config_changes={"max_position_embeddings": 1024})
    write_json(path / "tokenizer.json", tokenizer())
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if layout == "card":
        write_json(path / "tokenizer_config.json", settings)
        (path / "README.md").write_text("---\nlicense: x\n---\n# Qwen3-Reranker-0.6B\n")
        return path
    write_json(path / "tokenizer_config.json", {**settings, "chat_template": PAIRS_TEMPLATE})
    score = ANSWERS if layout == "scores" else {**ANSWERS, "false_token_id": None}
    _write_modules(path, score)
    return path


def _write_modules(path: Path, score: Mapping[str, int | None]) -> None:
    kinds = (("", "base.modules.transformer.Transformer"),
             ("1_LogitScore", "cross_encoder.modules.logit_score.LogitScore"))  # fmt: skip
    write_json(path / "modules.json", [
        {"idx": i, "name": str(i), "path": at, "type": f"sentence_transformers.{kind}"}
        for i, (at, kind) in enumerate(kinds)
    ])  # fmt: skip
    (path / "1_LogitScore").mkdir()
    write_json(path / "1_LogitScore" / "config.json", score)
    write_json(path / "config_sentence_transformers.json", {
        "model_type": "CrossEncoder", "prompts": {"web": "Judge it."}, "default_prompt_name": "web",
    })  # fmt: skip
    outputs = {"method": "forward", "method_output_name": "logits"}
    write_json(path / "sentence_bert_config.json", {
        "transformer_task": "text-generation",
        "modality_config": {"text": outputs, "message": {**outputs, "format": "flat"}},
        "module_output_name": "causal_logits",
        "processing_kwargs": {
            "chat_template": {"add_generation_prompt": True, "opening": "<think>\n\n</think>\n\n"}
        },
    })  # fmt: skip


def tokenizer() -> dict[str, Any]:
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    splits = [
        {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    ]
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": token, **special} for i, token in enumerate(SPECIALS)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "post_processor": splits[1],
        "decoder": splits[1],
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(VOCAB)}, "merges": [*MERGES],
        },
    }  # fmt: skip
