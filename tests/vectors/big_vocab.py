"""A byte-level vocabulary of 150,000 tokens: a real one of 50,257, and pairs of its tokens."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from camelid.formats.gguf import open_gguf

N_TOKENS = 150_000
LONGEST = 12  # characters of a constructed token


def big_metadata(shared: Path) -> dict[str, Any]:
    """Metadata of GPT-2's vocabulary with additional merges; equal at every call."""
    found: dict[str, Any] = dict(open_gguf(shared / "data" / "vocab" / "gpt-2.gguf").metadata)
    tokens, merges = list(found["tokenizer.ggml.tokens"]), list(found["tokenizer.ggml.merges"])
    types = list(found["tokenizer.ggml.token_type"])
    rng, seen = Random(3), set(tokens)
    words = [
        t for t, kind in zip(tokens, types, strict=True) if kind == 1 and t.isascii() and len(t) < LONGEST
    ]
    ends = [word for word in words if word.isalpha()]
    while len(tokens) < N_TOKENS:
        left, right = rng.choice(words), rng.choice(ends)
        if len(left + right) <= LONGEST and left + right not in seen:
            seen.add(left + right)
            tokens.append(left + right)
            merges.append(f"{left} {right}")
    types += [1] * (len(tokens) - len(types))
    keys = ("tokenizer.ggml.model", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id")
    return {key: found[key] for key in keys if key in found} | {
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.add_bos_token": False,
    }
