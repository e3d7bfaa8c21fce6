"""RWKV-6 and RWKV-7."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json
from tests.golden.mutation import Mutation, key, refused, without

# Heads of 32 columns have the epsilon of published heads of 64: 32 * 2e-5 = 64e-5, which llama.cpp fixes.
RWKV7: Json = {
    "a_low_rank_dim": 64,
    "architectures": ["RWKV7ForCausalLM"],
    "attn": None,
    "bos_token_id": 1,
    "decay_low_rank_dim": 32,
    "eos_token_id": 2,
    "fuse_norm": False,
    "gate_low_rank_dim": 128,
    "head_dim": 32,
    "hidden_act": "sqrelu",
    "hidden_ratio": 4.0,
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "model_type": "rwkv7",
    "norm_bias": True,
    "norm_eps": 2e-05,
    "norm_first": True,
    "num_hidden_layers": 3,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.48.0",
    "use_cache": True,
    "v_low_rank_dim": 96,
    "vocab_size": 96,
}

# The stream is halved after the second of three layers.
RWKV6: Json = {
    "architectures": ["Rwkv6ForCausalLM"],
    "attention_hidden_size": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "head_size": 32,
    "head_size_divisor": 8,
    "hidden_size": 64,
    "intermediate_size": 96,
    "layer_norm_epsilon": 1e-05,
    "model_type": "rwkv6",
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "rescale_every": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.34.0",
    "use_cache": True,
    "vocab_size": 96,
}

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="rwkv7", seed=7700, config=RWKV7),
    CaseRow(name="rwkv6", seed=6600, config=RWKV6),
)
WRONG: tuple[Mutation, ...] = (
    key("rwkv6", "layer_norm_epsilon", 0.05),
    refused("rwkv6", "head_size_divisor", 80),
    *(without("rwkv6", f"mix of {letter}", f"attention.time_maa_{letter}") for letter in "xwkvrg"),
    *(without("rwkv6", f"matrix {i} of mixes", f"time_maa_w{i}") for i in (1, 2)),
    without("rwkv6", "decay", "time_decay"),
    *(without("rwkv6", f"matrix {i} of decays", f"time_decay_w{i}") for i in (1, 2)),
    without("rwkv6", "bonus", "time_faaaa"),
    without("rwkv6", "gate", "attention.gate.weight"),
    without("rwkv6", "norm of heads", "ln_x.weight"),
    without("rwkv6", "bias of heads", "ln_x.bias"),
    without("rwkv6", "norm of embeddings", "pre_ln.weight"),
    *(without("rwkv6", f"mix of the channels' {letter}", f"forward.time_maa_{letter}") for letter in "kr"),
    without("rwkv6", "receptance of channels", "feed_forward.receptance.weight"),
    without("rwkv6", "channel mix", "feed_forward.value.weight"),
    key("rwkv7", "norm_eps", 0.05),
    key("rwkv7", "head_dim", 16),
    key("rwkv7", "hidden_act", "relu"),
    refused("rwkv7", "norm_bias", False),
    refused("rwkv7", "norm_first", False),
    *(without("rwkv7", f"mix of {letter}", f"attn.x_{letter}") for letter in "rwkvag"),
    without("rwkv7", "mix of channels", "ffn.x_k"),
    *(without("rwkv7", f"pair of {letter}", f"{letter}_lora.lora.0.weight") for letter in "wavg"),
    *(without("rwkv7", f"bias of {letter}", f"{letter}_lora.lora.2.bias") for letter in "wav"),
    without("rwkv7", "removal keys", "attn.k_k"),
    without("rwkv7", "share of rates", "attn.k_a"),
    without("rwkv7", "bonus", "attn.r_k"),
    without("rwkv7", "norm of heads", "g_norm.weight"),
    without("rwkv7", "bias of heads", "g_norm.bias"),
    without("rwkv7", "norm of embeddings", "pre_norm.weight"),
    without("rwkv7", "channel mix", "ffn.value.weight"),
)
