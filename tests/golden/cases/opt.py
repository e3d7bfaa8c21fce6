"""Golden models of OPT."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json
from tests.golden.mutation import Mutation, key, without

OPT: Json = {
    "_remove_final_layer_norm": False,
    "activation_function": "relu",
    "architectures": ["OPTForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 2,
    "do_layer_norm_before": True,
    "dropout": 0.1,
    "eos_token_id": 2,
    "ffn_dim": 96,
    "hidden_size": 64,
    "init_std": 0.02,
    "layerdrop": 0.0,
    "max_position_embeddings": 64,
    "model_type": "opt",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": 1,
    "torch_dtype": "float32",
    "transformers_version": "4.46.0",
    "use_cache": True,
    "vocab_size": 96,
    "word_embed_proj_dim": 64,
}

CASES: tuple[CaseRow, ...] = (CaseRow(name="opt", seed=1040, config=OPT),)

WRONG: tuple[Mutation, ...] = (
    key("opt", "activation_function", "gelu"),
    key("opt", "do_layer_norm_before", False),
    without("opt", "positions", "embed_positions.weight"),
    without("opt", "norm biases", "layer_norm.bias"),
    without("opt", "attention biases", "_proj.bias"),
    without("opt", "ffn biases", "fc1.bias", "fc2.bias"),
)
