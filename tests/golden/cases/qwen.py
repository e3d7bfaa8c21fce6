"""Golden models of Qwen 2, Qwen 3 and Qwen3-Next."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, common, key, within, without

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
# A window is present, as in the published files, but disabled.
QWEN2 = config(
    "Qwen2ForCausalLM",
    "qwen2",
    max_window_layers=1,
    rms_norm_eps=1e-06,
    rope_theta=1000000.0,
    sliding_window=8,
    tie_word_embeddings=True,
    use_sliding_window=False,
)
YARN: Json = {"factor": 4.0, "original_max_position_embeddings": 24, "type": "yarn"}
QWEN3 = config(
    "Qwen3ForCausalLM",
    "qwen3",
    attention_bias=False,
    head_dim=32,
    max_window_layers=2,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000000.0,
    sliding_window=None,
    tie_word_embeddings=True,
    use_sliding_window=False,
)
QWEN3_MOE = config(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    attention_bias=False,
    decoder_sparse_step=1,
    head_dim=32,
    max_window_layers=2,
    mlp_only_layers=[],
    moe_intermediate_size=32,
    norm_topk_prob=True,
    num_experts=8,
    num_experts_per_tok=3,
    output_router_logits=False,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000000.0,
    router_aux_loss_coef=0.001,
    sliding_window=None,
    use_sliding_window=False,
)

# Three value heads a key head: their order in a GGUF is not that of the directory.
QWEN35 = {name: value for name, value in QWEN3_NEXT.items() if "expert" not in name and "moe" not in name} | {
    "architectures": ["Qwen3_5ForCausalLM"],
    "linear_num_value_heads": 6,
    "linear_value_head_dim": 32,
    "model_type": "qwen3_5_text",
}
for name in ("decoder_sparse_step", "norm_topk_prob", "mlp_only_layers", "output_router_logits"):
    QWEN35.pop(name)
QWEN35.pop("router_aux_loss_coef")
QWEN35 = modern(
    QWEN35,
    {
        "mrope_interleaved": True,
        "mrope_section": [2, 1, 1],
        "partial_rotary_factor": 0.25,
        "rope_theta": 1000.0,
        "rope_type": "default",
    },
)
QWEN35_MOE = QWEN35 | {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "linear_num_value_heads": 4,
    "model_type": "qwen3_5_moe_text",
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "shared_expert_intermediate_size": 64,
}


def delta(case: str) -> list[Mutation]:
    """Wrong facts of a hybrid's layers."""
    parts = {
        "attention layers": "o_proj.weight", "delta layers": "linear_attn.out_proj.weight",
        "conv": "linear_attn.conv1d.weight", "corrections": "in_proj_b.weight", "dt": "in_proj_a.weight",
        "decays": "linear_attn.A_log", "dt bias": "linear_attn.dt_bias",
        "norm of the scan": "linear_attn.norm.weight",
    }  # fmt: skip
    return [without(case, feature, ending) for feature, ending in parts.items()]


CASES: tuple[CaseRow, ...] = (
    CaseRow(name="qwen2", seed=131, config=QWEN2),
    CaseRow(name="qwen2_yarn", seed=132, config=QWEN2 | {"rope_scaling": YARN, "rope_theta": 200.0}),
    CaseRow(name="qwen3", seed=141, config=QWEN3),
    CaseRow(
        name="qwen3_rope_parameters",
        seed=142,
        config=modern(QWEN3, {"rope_theta": 1000000.0, "rope_type": "default"}, tie_word_embeddings=False),
    ),
    CaseRow(name="qwen3_moe", seed=152, config=QWEN3_MOE),
    CaseRow(name="qwen3_moe_raw_probs", seed=155, config=QWEN3_MOE | {"norm_topk_prob": False}),
    CaseRow(name="qwen3_next", seed=266, config=QWEN3_NEXT),
    CaseRow(name="qwen3_5", seed=3040, config=QWEN35),
    CaseRow(name="qwen3_5_moe", seed=3070, config=QWEN35_MOE),
)

WRONG: tuple[Mutation, ...] = (
    *delta("qwen3_5"),
    key("qwen3_5", "hidden_act", "relu"),
    within("qwen3_5", "rope_parameters", QWEN35["rope_parameters"], partial_rotary_factor=0.5),
    within("qwen3_5", "rope_parameters", QWEN35["rope_parameters"], rope_theta=10.0),
    Mutation("qwen3_5", "one key head", {"linear_num_key_heads": 1, "linear_key_head_dim": 64}),
    without("qwen3_5", "q norm", "q_norm.weight"),
    without("qwen3_5", "k norm", "k_norm.weight"),
    *delta("qwen3_5_moe"),
    key("qwen3_5_moe", "num_experts_per_tok", 2),
    without("qwen3_5_moe", "shared expert", "shared_expert.down_proj.weight"),
    without("qwen3_5_moe", "gate of the shared expert", "shared_expert_gate.weight"),
    *common("qwen2"),
    without("qwen2", "qkv bias", "_proj.bias"),
    key("qwen2", "use_sliding_window", True),
    key("qwen2_yarn", "rope_scaling", None),
    within("qwen2_yarn", "rope_scaling", YARN, factor=2.0),
    within("qwen2_yarn", "rope_scaling", YARN, attention_factor=1.0),
    within("qwen2_yarn", "rope_scaling", YARN, original_max_position_embeddings=96),
    within("qwen2_yarn", "rope_scaling", YARN, beta_fast=1.5),
    within("qwen2_yarn", "rope_scaling", YARN, beta_slow=0.25),
    *common("qwen3"),
    without("qwen3", "q norm", "q_norm.weight"),
    without("qwen3", "k norm", "k_norm.weight"),
    key("qwen3_rope_parameters", "rope_parameters", {"rope_theta": 300.0, "rope_type": "default"}),
    key("qwen3_rope_parameters", "rms_norm_eps", 0.05),
    *common("qwen3_moe"),
    key("qwen3_moe", "norm_topk_prob", False),
    key("qwen3_moe", "num_experts_per_tok", 2),
    without("qwen3_moe", "q norm", "q_norm.weight"),
    without("qwen3_moe", "k norm", "k_norm.weight"),
    key("qwen3_moe_raw_probs", "norm_topk_prob", True),
    key("qwen3_moe_raw_probs", "num_experts_per_tok", 4),
    *common("qwen3_next"),
    key("qwen3_next", "norm_topk_prob", False),
    key("qwen3_next", "num_experts_per_tok", 2),
    key("qwen3_next", "partial_rotary_factor", 0.5),
    Mutation("qwen3_next", "one key head", {"linear_num_key_heads": 1, "linear_key_head_dim": 64}),
    without("qwen3_next", "q norm", "q_norm.weight"),
    without("qwen3_next", "k norm", "k_norm.weight"),
    without("qwen3_next", "attention layers", "o_proj.weight"),
    without("qwen3_next", "delta layers", "linear_attn.out_proj.weight"),
    without("qwen3_next", "conv", "linear_attn.conv1d.weight"),
    without("qwen3_next", "corrections and decays", "linear_attn.in_proj_ba.weight"),
    without("qwen3_next", "decays", "linear_attn.A_log"),
    without("qwen3_next", "dt bias", "linear_attn.dt_bias"),
    without("qwen3_next", "norm of the scan", "linear_attn.norm.weight"),
    without("qwen3_next", "shared expert", "shared_expert.down_proj.weight"),
    without("qwen3_next", "gate of the shared expert", "shared_expert_gate.weight"),
)
