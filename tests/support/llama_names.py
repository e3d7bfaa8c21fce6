"""Llama weights under transformers' names, from GGUF names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def as_published(weights: Mapping[str, Any], *, n_heads: int, n_kv_heads: int) -> dict[str, Any]:
    """All weights except the rotation factors, which a config states."""
    heads = {"attn_q": n_heads, "attn_k": n_kv_heads}
    found: dict[str, Any] = {}
    for full, value in weights.items():
        name = full.removesuffix(".weight")
        part = name.rpartition(".")[2]
        if name != "rope_freqs":
            found[f"{_published(name)}.weight"] = _halves(value, heads[part]) if part in heads else value
    return found


def _published(name: str) -> str:
    if name in MODEL:
        return MODEL[name]
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}"


def _halves(weight: Any, n_heads: int) -> Any:
    """Reorders rows from GGUF's rotation of adjacent pairs to transformers' rotation of halves."""
    pairs = weight.reshape(n_heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)
