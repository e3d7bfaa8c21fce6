"""Gemma 3n: streams, a learned residual, the token's embedding for each layer, shared keys, sparse gates."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config, modern
from tests.golden.mutation import Mutation, key, refused, without

LOCAL, FULL = "sliding_attention", "full_attention"
ROPE = {
    FULL: {"rope_theta": 1000.0, "rope_type": "default"},
    LOCAL: {"rope_theta": 100.0, "rope_type": "default"},
}
GEMMA3N = modern(
    config("Gemma3nForCausalLM", "gemma3n_text"),
    ROPE,
    activation_sparsity_pattern=[0.8, 0.8, 0.0, 0.0, 0.0],
    altup_active_idx=0,
    altup_coef_clip=120.0,
    altup_correct_scale=True,
    altup_num_inputs=3,
    attention_bias=False,
    final_logit_softcapping=6.0,
    head_dim=16,
    hidden_activation="gelu_pytorch_tanh",
    hidden_size_per_layer_input=32,
    intermediate_size=[96] * 5,
    laurel_rank=32,
    layer_types=[LOCAL, FULL, LOCAL, LOCAL, FULL],
    num_hidden_layers=5,
    num_kv_shared_layers=2,
    rms_norm_eps=1e-06,
    sliding_window=10,
    tie_word_embeddings=True,
    vocab_size_per_layer_input=88,
)
CASES = (CaseRow(name="gemma3n", seed=2700, config=GEMMA3N, lengths=(26, 9)),)
WRONG: tuple[Mutation, ...] = (
    key("gemma3n", "rms_norm_eps", 0.05),
    key("gemma3n", "hidden_activation", "relu"),
    key("gemma3n", "final_logit_softcapping", 3.0),
    key("gemma3n", "activation_sparsity_pattern", [0.6, 0.6, 0.0, 0.0, 0.0]),
    Mutation("gemma3n", "gates not sparse", {"activation_sparsity_pattern": [0.0] * 5}),
    Mutation("gemma3n", "theta", {"rope_parameters": ROPE | {FULL: ROPE[LOCAL]}}),
    Mutation("gemma3n", "local theta", {"rope_parameters": ROPE | {LOCAL: ROPE[FULL]}}),
    Mutation("gemma3n", "sliding_window one wider", {"sliding_window": 11}),
    Mutation(
        "gemma3n", "window of the layers that share", {"layer_types": [LOCAL, FULL, LOCAL, FULL, LOCAL]}
    ),
    refused("gemma3n", "altup_active_idx", 1),
    refused("gemma3n", "altup_correct_scale", False),
    without("gemma3n", "q norm", "q_norm.weight"),
    without("gemma3n", "k norm", "k_norm.weight"),
    without("gemma3n", "norm after attention", "post_attention_layernorm.weight"),
    without("gemma3n", "norm after ffn", "post_feedforward_layernorm.weight"),
    without("gemma3n", "predictions", "prediction_coefs.weight"),
    without("gemma3n", "corrections", "correction_coefs.weight"),
    without("gemma3n", "scale of the correction", "correct_output_scale"),
    without("gemma3n", "routers", "modality_router.weight"),
    without("gemma3n", "norm of routers", "router_norm.weight"),
    without("gemma3n", "opening of streams", "altup_projections.0.weight"),
    without("gemma3n", "closing of streams", "altup_unembed_projections.1.weight"),
    without("gemma3n", "learned residual", "linear_right.weight"),
    without("gemma3n", "norm of the learned residual", "post_laurel_norm.weight"),
    without("gemma3n", "embeddings for layers", "embed_tokens_per_layer.weight"),
    without("gemma3n", "hidden state in layer inputs", "per_layer_model_projection.weight"),
    without("gemma3n", "norm of layer inputs", "per_layer_projection_norm.weight"),
    without("gemma3n", "layer inputs", "per_layer_projection.weight"),
)
