"""Softmax routers: qwen2moe, olmoe, granitemoe."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config
from tests.golden.mutation import Mutation, common, key, refused, without

# Layer 0 is dense, as mlp_only_layers says; the layers with experts have a shared expert with a gate.
QWEN2_MOE = config(
    "Qwen2MoeForCausalLM",
    "qwen2_moe",
    decoder_sparse_step=1,
    max_window_layers=3,
    mlp_only_layers=[0],
    moe_intermediate_size=32,
    norm_topk_prob=False,
    num_experts=6,
    num_experts_per_tok=3,
    num_hidden_layers=3,
    output_router_logits=False,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000.0,
    router_aux_loss_coef=0.001,
    shared_expert_intermediate_size=64,
    sliding_window=12,
    use_sliding_window=False,
)
OLMOE = config(
    "OlmoeForCausalLM",
    "olmoe",
    attention_bias=False,
    clip_qkv=None,
    intermediate_size=32,
    norm_topk_prob=False,
    num_experts=8,
    num_experts_per_tok=3,
    output_router_logits=False,
    rope_scaling=None,
    rope_theta=1000.0,
    router_aux_loss_coef=0.01,
)
GRANITE_MOE = config(
    "GraniteMoeForCausalLM",
    "granitemoe",
    attention_bias=False,
    attention_multiplier=0.3,
    embedding_multiplier=3.0,
    intermediate_size=32,
    logits_scaling=0.5,
    num_experts_per_tok=3,
    num_local_experts=8,
    output_router_logits=False,
    pad_token_id=0,
    residual_multiplier=0.7,
    rope_scaling=None,
    rope_theta=1000.0,
    router_aux_loss_coef=0.001,
    tie_word_embeddings=True,
)
GRANITE_MOE_SHARED = GRANITE_MOE | {
    "architectures": ["GraniteMoeSharedForCausalLM"],
    "attention_bias": True,
    "model_type": "granitemoeshared",
    "shared_intermediate_size": 64,
}
CASES = (
    CaseRow(name="qwen2_moe", seed=2003, config=QWEN2_MOE),
    CaseRow(name="olmoe", seed=2012, config=OLMOE),
    CaseRow(name="granitemoe", seed=2020, config=GRANITE_MOE),
    CaseRow(name="granitemoeshared", seed=2030, config=GRANITE_MOE_SHARED),
)


def granite(case: str) -> tuple[Mutation, ...]:
    return (
        *common(case),
        key(case, "attention_multiplier", 0.6),
        key(case, "embedding_multiplier", 1.0),
        key(case, "logits_scaling", 1.0),
        key(case, "residual_multiplier", 1.0),
        key(case, "num_experts_per_tok", 2),
    )


WRONG: tuple[Mutation, ...] = (
    *common("qwen2_moe"),
    key("qwen2_moe", "norm_topk_prob", True),
    key("qwen2_moe", "num_experts_per_tok", 2),
    refused("qwen2_moe", "use_sliding_window", True),
    without("qwen2_moe", "q bias", "q_proj.bias"),
    without("qwen2_moe", "k bias", "k_proj.bias"),
    without("qwen2_moe", "v bias", "v_proj.bias"),
    without("qwen2_moe", "dense layer", "mlp.down_proj.weight"),
    without("qwen2_moe", "shared expert", "shared_expert.down_proj.weight"),
    without("qwen2_moe", "gate of the shared expert", "shared_expert_gate.weight"),
    *common("olmoe"),
    key("olmoe", "norm_topk_prob", True),
    key("olmoe", "num_experts_per_tok", 2),
    without("olmoe", "q norm", "q_norm.weight"),
    without("olmoe", "k norm", "k_norm.weight"),
    *granite("granitemoe"),
    *granite("granitemoeshared"),
    without("granitemoeshared", "q bias", "q_proj.bias"),
    without("granitemoeshared", "o bias", "o_proj.bias"),
    without("granitemoeshared", "shared expert", "shared_mlp.output_linear.weight"),
)
