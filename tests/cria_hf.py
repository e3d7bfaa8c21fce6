"""cria as its publisher would lay it out for Hugging Face: safetensors, config.json and tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from tests.hf_models import write_safetensors

CRIA = Path(__file__).parents[1] / "core" / "camelid" / "data" / "cria.gguf"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NAMES = {
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
CONTROL = 3


def write_cria_hf(folder: Path) -> Path:
    """The directory, in float32."""
    reader = gguf.GGUFReader(CRIA)
    facts: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    folder.mkdir(parents=True)
    write_safetensors(folder / "model.safetensors", dict(_published(t, facts) for t in reader.tensors))
    for name, content in _settings(facts).items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False))
    return folder


def _published(tensor: Any, facts: dict[str, Any]) -> tuple[str, NDArray[np.float32]]:
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
    name = tensor.name.removesuffix(".weight")
    outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    if name in outer:
        return f"{outer[name]}.weight", values
    _, layer, part = name.split(".")
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}
    if part in heads:
        values = _halves(values, facts[f"llama.attention.{heads[part]}"])
    return f"model.layers.{layer}.{NAMES[part]}.weight", values


def _halves(values: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Adjacent pairs become halves: what the conversion undoes."""
    pairs = values.reshape(n_heads, -1, 2, values.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def _settings(facts: dict[str, Any]) -> dict[str, Any]:
    eos = facts["tokenizer.ggml.tokens"][facts["tokenizer.ggml.eos_token_id"]]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.attention.key_length"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
    }
    words = {"chat_template": facts["tokenizer.chat_template"], "eos_token": eos, "add_bos_token": False}
    return {
        "config.json": config,
        "generation_config.json": {"do_sample": False, "eos_token_id": config["eos_token_id"]},
        "tokenizer_config.json": {**words, "tokenizer_class": "PreTrainedTokenizerFast"},
        "tokenizer.json": _tokenizer(facts),
    }


def _tokenizer(facts: dict[str, Any]) -> dict[str, Any]:
    tokens = list(enumerate(facts["tokenizer.ggml.tokens"]))
    types = facts["tokenizer.ggml.token_type"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, "special": True, **flags}
            for i, token in tokens
            if types[i] == CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in tokens if types[i] != CONTROL},
            "merges": facts["tokenizer.ggml.merges"],
        },
    }
