"""Gemma 4: heads by kind of layer, keys that are values, shared keys, the token's embedding for each layer,
experts beside a dense MLP.
"""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config, modern
from tests.golden.mutation import Mutation, key, refused, without

LOCAL, FULL = "sliding_attention", "full_attention"
FULL_ROPE = {"partial_rotary_factor": 0.25, "rope_theta": 1000.0, "rope_type": "proportional"}
ROPE = {FULL: FULL_ROPE, LOCAL: {"rope_theta": 100.0, "rope_type": "default"}}
GEMMA4 = modern(
    config("Gemma4ForCausalLM", "gemma4_text"),
    ROPE,
    attention_bias=False,
    attention_k_eq_v=False,
    enable_moe_block=False,
    final_logit_softcapping=6.0,
    global_head_dim=32,
    head_dim=16,
    hidden_activation="gelu_pytorch_tanh",
    hidden_size_per_layer_input=32,
    layer_types=[LOCAL, FULL, LOCAL, LOCAL, FULL],
    num_experts=None,
    num_global_key_value_heads=None,
    num_hidden_layers=5,
    num_kv_shared_layers=2,
    rms_norm_eps=1e-06,
    sliding_window=10,
    tie_word_embeddings=True,
    use_bidirectional_attention=None,
    use_double_wide_mlp=True,
    vocab_size_per_layer_input=96,
)
GEMMA4_MOE = GEMMA4 | {
    "attention_k_eq_v": True,
    "enable_moe_block": True,
    "final_logit_softcapping": None,
    "hidden_size_per_layer_input": 0,
    "layer_types": [LOCAL, FULL, LOCAL, FULL],
    "moe_intermediate_size": 32,
    "num_experts": 6,
    "num_global_key_value_heads": 1,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 0,
    "top_k_experts": 3,
    "use_double_wide_mlp": False,
}
CASES = (
    CaseRow(name="gemma4", seed=4000, config=GEMMA4, lengths=(26, 9)),
    CaseRow(name="gemma4_moe", seed=4013, config=GEMMA4_MOE, lengths=(26, 9)),
)


def rope(feature: str, **facts: object) -> Mutation:
    return Mutation("gemma4", feature, {"rope_parameters": ROPE | {FULL: FULL_ROPE | facts}})


WRONG: tuple[Mutation, ...] = (
    key("gemma4", "rms_norm_eps", 0.05),
    key("gemma4", "hidden_activation", "relu"),
    key("gemma4", "final_logit_softcapping", 3.0),
    rope("theta", rope_theta=100.0),
    rope("turned share", partial_rotary_factor=0.5),
    rope("factor", factor=4.0),
    Mutation("gemma4", "local theta", {"rope_parameters": ROPE | {LOCAL: ROPE[LOCAL] | {"rope_theta": 1e3}}}),
    Mutation("gemma4", "sliding_window one wider", {"sliding_window": 11}),
    refused("gemma4", "use_bidirectional_attention", "all"),
    without("gemma4", "q norm", "q_norm.weight"),
    without("gemma4", "k norm", "k_norm.weight"),
    without("gemma4", "norm after attention", "post_attention_layernorm.weight"),
    without("gemma4", "norm after ffn", "post_feedforward_layernorm.weight"),
    without("gemma4", "scales of layers", "layer_scalar"),
    without("gemma4", "embeddings for layers", "embed_tokens_per_layer.weight"),
    without("gemma4", "hidden state in layer inputs", "per_layer_model_projection.weight"),
    without("gemma4", "norm of layer inputs", "per_layer_projection_norm.weight"),
    without("gemma4", "layer inputs", "per_layer_projection.weight"),
    without("gemma4", "norm after layer inputs", "post_per_layer_input_norm.weight"),
    key("gemma4_moe", "top_k_experts", 2),
    without("gemma4_moe", "routers", "router.proj.weight"),
    without("gemma4_moe", "gains of routers", "router.scale"),
    without("gemma4_moe", "scales of experts", "per_expert_scale"),
    without("gemma4_moe", "experts", "experts.down_proj"),
    without("gemma4_moe", "dense mlp", "mlp.down_proj.weight"),
    without("gemma4_moe", "norm before experts", "pre_feedforward_layernorm_2.weight"),
    without("gemma4_moe", "norm after dense mlp", "post_feedforward_layernorm_1.weight"),
    without("gemma4_moe", "norm after experts", "post_feedforward_layernorm_2.weight"),
)
