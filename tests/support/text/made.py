"""Small tokenizers for tests, made from GGUF metadata."""

from __future__ import annotations

from collections.abc import Sequence

from camelid.text.tokenizers.pipeline import Pipeline
from camelid.text.tokenizers.tokenizer import tokenizer_from_gguf


def byte_level(
    tokens: Sequence[str],
    merges: Sequence[str] = (),
    *,
    types: Sequence[int] | None = None,
    pre: str = "gpt-2",
) -> Pipeline:
    """A byte-level BPE tokenizer."""
    facts = {"model": "gpt2", "pre": pre, "tokens": [*tokens], "merges": [*merges]}
    if types is not None:
        facts["token_type"] = [*types]
    return tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in facts.items()})


def sentencepiece_bpe(
    tokens: Sequence[str],
    scores: Sequence[float],
    *,
    types: Sequence[int] | None = None,
    **facts: object,
) -> Pipeline:
    """A SentencePiece BPE tokenizer; `facts` are further keys."""
    facts |= {"model": "llama", "tokens": [*tokens], "scores": [*scores]}
    if types is not None:
        facts["token_type"] = [*types]
    return tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in facts.items()})


def rwkv(tokens: Sequence[str], types: Sequence[int] | None = None, **facts: object) -> Pipeline:
    """An RWKV tokenizer; tokens are spelled with backslashes, `facts` are further keys."""
    facts |= {"model": "rwkv", "tokens": [*tokens]}
    if types is not None:
        facts["token_type"] = [*types]
    return tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in facts.items()})
