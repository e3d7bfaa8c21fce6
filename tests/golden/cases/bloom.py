"""Golden models of BLOOM."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json
from tests.golden.mutation import Mutation, key, without

# Six heads: two have slopes of the sequence for eight. The keys' names are those of bloom-560m.
BLOOM: Json = {
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["BloomForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "masked_softmax_fusion": True,
    "model_type": "bloom",
    "n_embed": 96,
    "n_inner": None,
    "n_layer": 2,
    "num_attention_heads": 6,
    "offset_alibi": 100,
    "pretraining_tp": 1,
    "seq_length": 128,
    "torch_dtype": "float32",
    "transformers_version": "4.46.0",
    "unk_token_id": 0,
    "use_cache": True,
    "vocab_size": 96,
}

CASES: tuple[CaseRow, ...] = (CaseRow(name="bloom", seed=1030, config=BLOOM, prefix="transformer."),)

WRONG: tuple[Mutation, ...] = (
    key("bloom", "layer_norm_epsilon", 0.05),
    key("bloom", "apply_residual_connection_post_layernorm", True),
    Mutation("bloom", "slopes of other heads", {"num_attention_heads": 3}),
    without("bloom", "norm of embeddings", "word_embeddings_layernorm.weight"),
    without("bloom", "norm biases", "layernorm.bias", "ln_f.bias"),
    without("bloom", "attention biases", "query_key_value.bias", "dense.bias"),
    without("bloom", "ffn biases", "h_to_4h.bias", "4h_to_h.bias"),
)
