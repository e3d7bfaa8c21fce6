"""Tokenizers with a template's control tokens, and answers in a model's own tokenization."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.support.text.conversations import CHATML, CONVERSATIONS, PLAIN

from camelid.formats.gguf import open_gguf
from camelid.requests.chat import ChatTemplate
from camelid.text.tokenizers.tokenizer import Tokenizer, tokenizer_from_gguf

CONTROL = re.compile(
    r"<[|｜][^<>|｜\n]{1,40}[|｜]>|</?[a-z_]{1,20}_(?:turn|call|response)>|\[/?[A-Z_]{3,20}\]|</?s>"
)
CONTROL_TYPE, BOS, EOS = 3, "<s>", "</s>"
VOCABULARIES = ("gpt-2", "llama-spm")
TEMPLATES = (
    "HuggingFaceTB-SmolLM3-3B",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "openai-gpt-oss-120b",
    "chatml",
)
WRITES = {"openai-gpt-oss-120b": "<|channel|>final<|message|>"}  # written before the answer's text
Talk = list[dict[str, object]]


def template_text(shared: Path, name: str) -> str:
    """The text of a published template, or of ChatML."""
    if name == "chatml":
        return CHATML
    path = shared / "data" / "templates" / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"shared material absent: no {path}")
    return path.read_text("utf-8")


@cache
def made_tokenizer(path: Path, controls: tuple[str, ...]) -> Tokenizer:
    """A file's vocabulary followed by control tokens."""
    metadata = dict(open_gguf(path).metadata)
    metadata.pop("llama.vocab_size", None)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list) and isinstance(types, list)
    new = [text for text in controls if text not in set(tokens)]
    metadata["tokenizer.ggml.tokens"] = [*map(str, tokens), *new]
    metadata["tokenizer.ggml.token_type"] = [*map(int, types), *[CONTROL_TYPE] * len(new)]
    if "tokenizer.ggml.scores" in metadata:
        scores = metadata["tokenizer.ggml.scores"]
        assert isinstance(scores, list)
        metadata["tokenizer.ggml.scores"] = [*map(float, scores), *[0.0] * len(new)]
    return tokenizer_from_gguf(metadata)


def tools_of(name: str) -> list[dict[str, object]] | None:
    """Tools, if the template renders nothing without tools."""
    return [PLAIN] if "tool_use" in name else None


def chat_of(shared: Path, name: str, vocabulary: str) -> ChatTemplate:
    """A chat template with a tokenizer that has its control tokens."""
    source = template_text(shared, name)
    path = shared / "data" / "vocab" / f"{vocabulary}.gguf"
    if not path.exists():
        pytest.skip(f"shared material absent: no {path}")
    controls = tuple(sorted({*CONTROL.findall(source), BOS, EOS}))
    return ChatTemplate({"default": source}, made_tokenizer(path, controls), BOS, EOS)


def own_ids(tokenizer: Tokenizer, text: str, rng: random.Random, *, name: str = "") -> list[int]:
    """Token ids of a text as a model may choose them: words are cut at places where `encode` does not cut."""
    ids = tokenizer.encode(WRITES.get(name, ""), special=True)
    at = 0
    while at < len(text):
        end = at + rng.randint(1, 3)
        ids += tokenizer.encode_spans([(text[at:end], False)], opens=False)
        at = end
    return ids


def talks() -> Iterator[tuple[str, Talk]]:
    """Conversations with an assistant message of plain text."""
    for name, messages in CONVERSATIONS.items():
        said = [m for m in messages if m["role"] == "assistant"]
        if said and all(isinstance(m.get("content"), str) and not m.get("tool_calls") for m in said):
            yield name, messages
