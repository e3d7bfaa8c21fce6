"""Golden models of Falcon: 7B (one key/value head), 40B (two norms), 11B (one norm), RW (ALiBi)."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json
from tests.golden.mutation import Mutation, key, without

FALCON: Json = {
    "alibi": False,
    "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0,
    "bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "hidden_size": 64,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 128,
    "model_type": "falcon",
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "parallel_attn": True,
    "torch_dtype": "float32",
    "transformers_version": "4.46.0",
    "use_cache": True,
    "vocab_size": 96,
}
FALCON_40B = FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}
FALCON_11B = FALCON_40B | {"num_ln_in_parallel_attn": 1, "rope_theta": 500042.0, "tie_word_embeddings": False}
FALCON_RW = FALCON | {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False}

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="falcon", seed=1000, config=FALCON),
    CaseRow(name="falcon_40b", seed=1001, config=FALCON_40B),
    CaseRow(name="falcon_11b", seed=1002, config=FALCON_11B),
    # Eager attention of transformers 5 adds the bias twice, in the mask and to the scores.
    CaseRow(name="falcon_rw", seed=1003, config=FALCON_RW, attention="sdpa"),
)

WRONG: tuple[Mutation, ...] = (
    key("falcon", "rope_theta", 300.0),
    key("falcon", "layer_norm_epsilon", 0.05),
    key("falcon", "activation", "relu"),
    key("falcon", "parallel_attn", False),
    without("falcon", "norm biases", "layernorm.bias", "ln_f.bias"),
    without("falcon_40b", "norm of attention", "ln_attn.weight"),
    without("falcon_40b", "norm of mlp", "ln_mlp.weight"),
    without("falcon_40b", "bias of attention's norm", "ln_attn.bias"),
    key("falcon_40b", "rope_theta", 300.0),
    key("falcon_11b", "rope_theta", 300.0),
    key("falcon_rw", "alibi", False),
    Mutation("falcon_rw", "parallel_attn", {"parallel_attn": True}),
    without("falcon_rw", "attention biases", "query_key_value.bias", "dense.bias"),
    without("falcon_rw", "ffn biases", "h_to_4h.bias", "4h_to_h.bias"),
    without("falcon_rw", "second norm", "post_attention_layernorm.weight"),
)
