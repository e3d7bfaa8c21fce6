"""cria as a Hugging Face folder: safetensors, config.json and tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
from tests.support.hf_models import write_safetensors
from tests.support.llama_names import as_published

CRIA = Path(__file__).parents[2] / "core" / "camelid" / "data" / "cria.gguf"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL, USER_DEFINED = 3, 4


def write_cria_hf(folder: Path) -> Path:
    """Writes the folder in float32."""
    reader = gguf.GGUFReader(CRIA)
    facts: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    folder.mkdir(parents=True)
    write_safetensors(folder / "model.safetensors", _weights(reader, facts))
    for name, content in _settings(facts).items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False))
    return folder


def _weights(reader: Any, facts: dict[str, Any]) -> dict[str, Any]:
    values = {
        t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in reader.tensors
    }
    heads = "llama.attention.head_count"
    return as_published(values, n_heads=facts[heads], n_kv_heads=facts[f"{heads}_kv"])


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
            {"id": i, "content": token, "special": types[i] == CONTROL, **flags}
            for i, token in tokens
            if types[i] in (CONTROL, USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in tokens if types[i] not in (CONTROL, USER_DEFINED)},
            "merges": facts["tokenizer.ggml.merges"],
        },
    }
