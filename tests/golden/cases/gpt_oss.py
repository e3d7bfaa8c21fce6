"""gpt-oss: attention sinks, windows in every other layer, clamped gates, YaRN with an unrounded ramp."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, key, refused, within, without

YARN: Json = {
    "beta_fast": 2.0,
    "beta_slow": 0.1,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "rope_type": "yarn",
    "truncate": False,
}
GPT_OSS = config(
    "GptOssForCausalLM",
    "gpt_oss",
    attention_bias=True,
    experts_per_token=3,
    head_dim=32,
    initial_context_length=16,
    intermediate_size=32,
    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    num_experts_per_tok=3,
    num_hidden_layers=3,
    num_local_experts=6,
    output_router_logits=False,
    rope_scaling=YARN,
    rope_theta=1000.0,
    router_aux_loss_coef=0.9,
    sliding_window=12,
    swiglu_limit=7.0,
)
CASES = (CaseRow(name="gpt_oss", seed=2306, config=GPT_OSS, lengths=(30, 13)),)
FULL = ["full_attention"] * 3
WRONG: tuple[Mutation, ...] = (
    key("gpt_oss", "rope_theta", 300.0),
    key("gpt_oss", "rms_norm_eps", 0.05),
    refused("gpt_oss", "swiglu_limit", 3.0),
    key("gpt_oss", "num_experts_per_tok", 2),
    key("gpt_oss", "layer_types", FULL),
    Mutation("gpt_oss", "sliding_window one wider", {"sliding_window": 13}),
    within("gpt_oss", "rope_scaling", YARN, factor=2.0),
    refused("gpt_oss", "rope_scaling", YARN | {"truncate": True}),
    within("gpt_oss", "rope_scaling", YARN, attention_factor=1.0),
    without("gpt_oss", "q bias", "q_proj.bias"),
    without("gpt_oss", "k bias", "k_proj.bias"),
    without("gpt_oss", "v bias", "v_proj.bias"),
    without("gpt_oss", "o bias", "o_proj.bias"),
    without("gpt_oss", "router bias", "router.bias"),
    without("gpt_oss", "gate and up biases", "gate_up_proj_bias"),
    without("gpt_oss", "down biases", "down_proj_bias"),
    without("gpt_oss", "sinks", "self_attn.sinks"),
)
