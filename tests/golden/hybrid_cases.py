"""Configs of hybrid architectures, whose layers are recurrent or attention."""

from __future__ import annotations

from tests.golden.case_row import config

# Keys as wide as values, which llama.cpp takes for granted.
QWEN3_NEXT = config(
    "Qwen3NextForCausalLM",
    "qwen3_next",
    attention_bias=False,
    decoder_sparse_step=1,
    full_attention_interval=3,
    head_dim=32,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=32,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_value_head_dim=32,
    mlp_only_layers=[],
    moe_intermediate_size=32,
    norm_topk_prob=True,
    num_experts=8,
    num_experts_per_tok=3,
    num_hidden_layers=3,
    output_router_logits=False,
    partial_rotary_factor=0.25,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000.0,
    router_aux_loss_coef=0.001,
    shared_expert_intermediate_size=64,
)
# As Granite 4 Tiny: experts beside a shared one, mamba2 and attention without rotation; but several groups.
GRANITE_HYBRID = config(
    "GraniteMoeHybridForCausalLM",
    "granitemoehybrid",
    attention_bias=False,
    attention_multiplier=0.3,
    embedding_multiplier=3.0,
    layer_types=["mamba", "attention", "mamba"],
    logits_scaling=0.5,
    mamba_chunk_size=16,
    mamba_conv_bias=True,
    mamba_d_conv=4,
    mamba_d_head=16,
    mamba_d_state=16,
    mamba_expand=2,
    mamba_n_groups=2,
    mamba_n_heads=8,
    mamba_proj_bias=False,
    normalization_function="rmsnorm",
    num_experts_per_tok=2,
    num_hidden_layers=3,
    num_local_experts=6,
    output_router_logits=False,
    pad_token_id=0,
    position_embedding_type="nope",
    residual_multiplier=0.7,
    rope_scaling=None,
    router_aux_loss_coef=0.01,
    shared_intermediate_size=64,
    tie_word_embeddings=True,
)
GRANITE_HYBRID_DENSE = GRANITE_HYBRID | {
    "attention_bias": True,
    "layer_types": ["mamba", "mamba", "attention"],
    "mamba_n_groups": 1,
    "num_experts_per_tok": 0,
    "num_local_experts": 0,
    "position_embedding_type": "rope",
    "tie_word_embeddings": False,
}
