"""LFM2."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config
from tests.golden.mutation import key, without

LFM2 = config(
    "Lfm2ForCausalLM",
    "lfm2",
    block_auto_adjust_ff_dim=False,
    conv_L_cache=3,
    conv_bias=False,
    layer_types=["conv", "full_attention", "conv"],
    norm_eps=1e-05,
    num_hidden_layers=3,
    pad_token_id=0,
    rope_theta=1000.0,
    tie_word_embeddings=True,
)
LFM2.pop("rms_norm_eps")
# As the files of 2025 state layers and the width of the MLP; with biases.
LFM2_OLD = LFM2 | {
    "block_auto_adjust_ff_dim": True,
    "block_ff_dim": 150,
    "block_ffn_dim_multiplier": 1.2,
    "block_multiple_of": 32,
    "conv_L_cache": 4,
    "conv_bias": True,
    "full_attn_idxs": [0, 2],
    "rope_theta": 200.0,
}
LFM2_OLD.pop("layer_types")
LFM2_MOE = config(
    "Lfm2MoeForCausalLM",
    "lfm2_moe",
    conv_L_cache=3,
    conv_bias=False,
    layer_types=["conv", "full_attention", "conv"],
    moe_intermediate_size=32,
    norm_eps=1e-05,
    norm_topk_prob=True,
    num_dense_layers=1,
    num_experts=8,
    num_experts_per_tok=3,
    num_hidden_layers=3,
    pad_token_id=0,
    rope_theta=1000.0,
    routed_scaling_factor=1.5,
    tie_word_embeddings=True,
    use_expert_bias=True,
)
LFM2_MOE.pop("rms_norm_eps")

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="lfm2", seed=3000, config=LFM2),
    CaseRow(name="lfm2_old", seed=3001, config=LFM2_OLD),
    CaseRow(name="lfm2_moe", seed=3069, config=LFM2_MOE),
)
WRONG = (
    key("lfm2", "rope_theta", 10.0),
    key("lfm2", "norm_eps", 0.05),
    without("lfm2", "q norm", "q_layernorm.weight"),
    without("lfm2", "k norm", "k_layernorm.weight"),
    without("lfm2", "conv", "conv.conv.weight"),
    without("lfm2", "conv layers", "conv.out_proj.weight"),
    without("lfm2", "attention layers", "self_attn.out_proj.weight"),
    without("lfm2", "MLP", "feed_forward.w2.weight"),
    without("lfm2", "last norm", "embedding_norm.weight"),
    without("lfm2_old", "in bias", "in_proj.bias"),
    without("lfm2_old", "conv bias", "conv.conv.bias"),
    without("lfm2_old", "out bias", "out_proj.bias"),
    key("lfm2_moe", "norm_topk_prob", False),
    key("lfm2_moe", "num_experts_per_tok", 2),
    key("lfm2_moe", "routed_scaling_factor", 1.0),
    without("lfm2_moe", "bias of experts", "expert_bias"),
    without("lfm2_moe", "experts", ".w2.weight"),
    without("lfm2_moe", "router", "feed_forward.gate.weight"),
    without("lfm2_moe", "conv layers", "conv.out_proj.weight"),
)
