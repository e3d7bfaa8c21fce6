"""Golden models of Mamba 1 and 2 and their hybrids with attention: Jamba, Falcon-H1, Nemotron-H, PLaMo 2."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, key, refused, without

SCAN = {"conv_kernel": 4, "n_groups": 2, "chunk_size": 16, "hidden_dropout": 0.0}
MAMBA2 = config(
    "Mamba2ForCausalLM",
    "mamba2",
    **SCAN,
    expand=2,
    head_dim=16,
    layer_norm_epsilon=1e-05,
    num_heads=8,
    pad_token_id=0,
    rescale_prenorm_residual=False,
    residual_in_fp32=True,
    state_size=16,
    tie_word_embeddings=True,
    time_step_rank=4,
    use_bias=False,
    use_conv_bias=True,
)
ATTENTION_KEYS = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "rope_theta")
for name in (*ATTENTION_KEYS, "rms_norm_eps", "max_position_embeddings", "attention_dropout"):
    MAMBA2.pop(name)
MAMBA2_BIAS = MAMBA2 | {"n_groups": 1, "tie_word_embeddings": False, "use_bias": True, "use_conv_bias": False}

KEPT = {name: value for name, value in MAMBA2.items() if name not in ("head_dim", "num_heads", "n_groups")}
MAMBA = KEPT | {
    "architectures": ["MambaForCausalLM"],
    "intermediate_size": 128,
    "model_type": "mamba",
    "state_size": 32,
    "time_step_rank": 32,
}
FALCON_MAMBA = MAMBA | {
    "architectures": ["FalconMambaForCausalLM"],
    "mixer_rms_eps": 0.01,
    "model_type": "falcon_mamba",
}
MAMBA_BIAS = MAMBA | {"tie_word_embeddings": False, "time_step_rank": 64, "use_bias": True}
JAMBA = config(
    "JambaForCausalLM",
    "jamba",
    attn_layer_offset=1,
    attn_layer_period=3,
    expert_layer_offset=1,
    expert_layer_period=2,
    mamba_conv_bias=True,
    mamba_d_conv=4,
    mamba_d_state=32,
    mamba_dt_rank=32,
    mamba_expand=2,
    mamba_proj_bias=False,
    num_experts=4,
    num_experts_per_tok=2,
    num_hidden_layers=3,
    output_router_logits=False,
    pad_token_id=0,
    rms_norm_eps=1e-06,
    router_aux_loss_coef=0.001,
    use_mamba_kernels=False,
)
JAMBA.pop("rope_theta")

FALCON_H1 = config(
    "FalconH1ForCausalLM",
    "falcon_h1",
    attention_bias=False,
    attention_in_multiplier=0.7,
    attention_out_multiplier=1.3,
    embedding_multiplier=5.0,
    head_dim=32,
    key_multiplier=0.6,
    lm_head_multiplier=0.8,
    mamba_chunk_size=16,
    mamba_conv_bias=True,
    mamba_d_conv=4,
    mamba_d_head=16,
    mamba_d_ssm=96,
    mamba_d_state=16,
    mamba_expand=2,
    mamba_n_groups=2,
    mamba_n_heads=6,
    mamba_norm_before_gate=False,
    mamba_proj_bias=False,
    mamba_rms_norm=False,
    mlp_bias=False,
    mlp_multipliers=[0.8, 1.4],
    pad_token_id=0,
    projectors_bias=False,
    ssm_in_multiplier=1.2,
    ssm_multipliers=[0.7, 1.3, 0.8, 1.25, 1.7],
    ssm_out_multiplier=0.9,
)
FALCON_H1_NORM = FALCON_H1 | {"mamba_n_groups": 1, "mamba_rms_norm": True}

# time_step_min near 0: transformers clamps by it, unlike the published code and llama.cpp.
NEMOTRON_H = config(
    "NemotronHForCausalLM",
    "nemotron_h",
    **SCAN,
    attention_bias=False,
    expand=2,
    head_dim=32,
    hybrid_override_pattern="M-*M",
    layer_norm_epsilon=1e-05,
    mamba_head_dim=16,
    mamba_hidden_act="silu",
    mamba_num_heads=6,
    mamba_proj_bias=False,
    mlp_bias=False,
    mlp_hidden_act="relu2",
    num_hidden_layers=4,
    pad_token_id=0,
    ssm_state_size=16,
    time_step_min=1e-30,
    use_bias=False,
    use_conv_bias=True,
)
NEMOTRON_H.pop("rms_norm_eps")
NEMOTRON_H.pop("hidden_act")
NEMOTRON_H_BIAS = NEMOTRON_H | {
    "hybrid_override_pattern": "*M-", "mlp_bias": True, "num_hidden_layers": 3,
    "use_bias": True,
}  # fmt: skip
# Experts of two groups with a latent, biases beside them; Nemotron 3 Nano has neither.
NEMOTRON_H_MOE = NEMOTRON_H | {
    "hybrid_override_pattern": "ME*E", "mlp_bias": True, "moe_intermediate_size": 64, "moe_latent_size": 32,
    "moe_shared_expert_intermediate_size": 96, "n_group": 2, "n_routed_experts": 6, "n_shared_experts": 1,
    "norm_topk_prob": True, "num_experts_per_tok": 2, "routed_scaling_factor": 2.5, "topk_group": 1,
}  # fmt: skip
NEMOTRON_H_NANO = NEMOTRON_H_MOE | {
    "mlp_bias": False, "moe_latent_size": None, "n_group": 1, "norm_topk_prob": False,
    "hybrid_override_pattern": "ME*", "num_hidden_layers": 3,
}  # fmt: skip
# The third of four layers has attention, in a window.
PLAMO2: Json = {
    "architectures": ["Plamo2ForCausalLM"], "attention_window_size": 10, "bos_token_id": 1, "eos_token_id": 2,
    "full_attention_idx": [], "hidden_size": 64, "hidden_size_per_head": 32, "intermediate_size": 96,
    "mamba_chunk_size": 256, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_enabled": True,
    "mamba_num_heads": 6, "mamba_step": 4, "max_position_embeddings": 128, "model_type": "plamo2",
    "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True, "torch_dtype": "float32", "vocab_size": 96,
}  # fmt: skip

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="mamba", seed=3005, config=MAMBA),
    CaseRow(name="mamba_bias", seed=3006, config=MAMBA_BIAS),
    CaseRow(name="falcon_mamba", seed=3007, config=FALCON_MAMBA),
    CaseRow(name="jamba", seed=3080, config=JAMBA),
    CaseRow(name="mamba2", seed=3010, config=MAMBA2),
    CaseRow(name="mamba2_bias", seed=3011, config=MAMBA2_BIAS),
    CaseRow(name="falcon_h1", seed=3020, config=FALCON_H1),
    CaseRow(name="falcon_h1_norm", seed=3021, config=FALCON_H1_NORM),
    CaseRow(name="nemotron_h", seed=3030, config=NEMOTRON_H),
    CaseRow(name="nemotron_h_bias", seed=3031, config=NEMOTRON_H_BIAS),
    CaseRow(name="nemotron_h_moe", seed=3046, config=NEMOTRON_H_MOE),
    CaseRow(name="nemotron_h_moe_nano", seed=3042, config=NEMOTRON_H_NANO),
    CaseRow(name="plamo2", seed=3050, config=PLAMO2),
)


def scan(case: str) -> list[Mutation]:
    """Wrong facts of mamba2 layers."""
    parts = {"decays": "A_log", "skip": ".D", "dt bias": "dt_bias", "conv": "conv1d.weight"}
    return [without(case, feature, ending) for feature, ending in parts.items()]


def scan1(case: str) -> list[Mutation]:
    """Wrong facts of mamba layers of the first version."""
    parts = {
        "decays": "A_log", "skip": ".D", "dt bias": "dt_proj.bias", "dt": "dt_proj.weight",
        "conv": "conv1d.weight", "conv bias": "conv1d.bias", "B and C": "x_proj.weight",
    }  # fmt: skip
    return [without(case, feature, ending) for feature, ending in parts.items()]


WRONG: tuple[Mutation, ...] = (
    *scan1("mamba"),
    key("mamba", "layer_norm_epsilon", 0.05),
    key("mamba", "hidden_act", "relu"),
    without("mamba_bias", "in bias", "in_proj.bias"),
    without("mamba_bias", "out bias", "out_proj.bias"),
    *scan1("falcon_mamba"),
    key("falcon_mamba", "mixer_rms_eps", 1e-6),
    key("falcon_mamba", "model_type", "mamba"),
    *scan1("jamba"),
    key("jamba", "rms_norm_eps", 0.05),
    key("jamba", "num_experts_per_tok", 1),
    without("jamba", "norm of dt", "dt_layernorm.weight"),
    without("jamba", "norm of B", "b_layernorm.weight"),
    without("jamba", "norm of C", "c_layernorm.weight"),
    without("jamba", "mamba layers", "out_proj.weight"),
    without("jamba", "attention layers", "o_proj.weight"),
    without("jamba", "experts", "down_proj.weight"),
    *scan("mamba2"),
    key("mamba2", "layer_norm_epsilon", 0.05),
    key("mamba2", "hidden_act", "relu"),
    key("mamba2", "time_step_limit", [0.0, 0.5]),
    Mutation("mamba2", "one group", {"n_groups": 1, "state_size": 32}),
    without("mamba2", "conv bias", "conv1d.bias"),
    without("mamba2", "norm of the scan", "mixer.norm.weight"),
    without("mamba2_bias", "in bias", "in_proj.bias"),
    without("mamba2_bias", "out bias", "out_proj.bias"),
    *scan("falcon_h1"),
    key("falcon_h1", "rope_theta", 300.0),
    key("falcon_h1", "rms_norm_eps", 0.05),
    key("falcon_h1", "hidden_act", "relu"),
    key("falcon_h1", "time_step_limit", [0.0, 0.5]),
    key("falcon_h1", "attention_in_multiplier", 1.0),
    key("falcon_h1", "attention_out_multiplier", 1.0),
    key("falcon_h1", "embedding_multiplier", 1.0),
    key("falcon_h1", "key_multiplier", 1.0),
    key("falcon_h1", "lm_head_multiplier", 1.0),
    key("falcon_h1", "ssm_in_multiplier", 1.0),
    key("falcon_h1", "ssm_out_multiplier", 1.0),
    key("falcon_h1", "mlp_multipliers", [1.0, 1.4]),
    Mutation("falcon_h1", "no factor of down", {"mlp_multipliers": [0.8, 1.0]}),
    key("falcon_h1", "ssm_multipliers", [1.0, 1.3, 0.8, 1.25, 1.7]),
    Mutation("falcon_h1", "no factor of x", {"ssm_multipliers": [0.7, 1.0, 0.8, 1.25, 1.7]}),
    Mutation("falcon_h1", "no factor of B", {"ssm_multipliers": [0.7, 1.3, 1.0, 1.25, 1.7]}),
    Mutation("falcon_h1", "no factor of C", {"ssm_multipliers": [0.7, 1.3, 0.8, 1.0, 1.7]}),
    Mutation("falcon_h1", "no factor of dt", {"ssm_multipliers": [0.7, 1.3, 0.8, 1.25, 1.0]}),
    without("falcon_h1", "mamba2", "mamba.out_proj.weight"),
    without("falcon_h1", "attention", "o_proj.weight"),
    key("falcon_h1_norm", "mamba_norm_before_gate", True),
    without("falcon_h1_norm", "norm of the scan", "mamba.norm.weight"),
    *scan("nemotron_h"),
    key("nemotron_h", "layer_norm_epsilon", 0.05),
    key("nemotron_h", "mlp_hidden_act", "relu"),
    without("nemotron_h", "conv bias", "conv1d.bias"),
    without("nemotron_h", "norm of the scan", "mixer.norm.weight"),
    without("nemotron_h", "mamba layers", "out_proj.weight"),
    without("nemotron_h", "attention layers", "o_proj.weight"),
    without("nemotron_h", "MLP", "down_proj.weight"),
    without("nemotron_h_bias", "in bias", "in_proj.bias"),
    without("nemotron_h_bias", "out bias", "out_proj.bias"),
    without("nemotron_h_bias", "up bias", "up_proj.bias"),
    without("nemotron_h_bias", "down bias", "down_proj.bias"),
    *(
        key("nemotron_h_moe", *change)
        for change in (
            ("mlp_hidden_act", "relu"),
            ("num_experts_per_tok", 1),
            ("norm_topk_prob", False),
            ("routed_scaling_factor", 1.0),
            ("topk_group", 2),
        )
    ),
    without("nemotron_h_moe", "bias of the router", "e_score_correction_bias"),
    without("nemotron_h_moe", "experts", "experts.0.down_proj.weight"),
    without("nemotron_h_moe", "shared expert", "shared_experts.down_proj.weight"),
    without("nemotron_h_moe", "bias of the shared expert", "shared_experts.up_proj.bias"),
    without("nemotron_h_moe", "bias of the latent", "fc1_latent_proj.bias"),
    without("nemotron_h_moe", "bias behind the latent", "fc2_latent_proj.bias"),
    key("nemotron_h_moe_nano", "norm_topk_prob", True),
    key("nemotron_h_moe_nano", "routed_scaling_factor", 1.0),
    without("nemotron_h_moe_nano", "shared expert", "shared_experts.down_proj.weight"),
    *scan("plamo2"),
    key("plamo2", "attention_window_size", 6),
    refused("plamo2", "rms_norm_eps", 0.05),
    *(
        without("plamo2", name, name)
        for name in (
            "pre_mixer_norm.weight",
            "post_mixer_norm.weight",
            "pre_mlp_norm.weight",
            "post_mlp_norm.weight",
            "q_weight",
            "k_weight",
            "dt_norm_weight",
            "B_norm_weight",
            "C_norm_weight",
            "bcdt_proj.weight",
            "dt_proj.weight",
            "o_proj.weight",
            "mlp.down_proj.weight",
        )
    ),
)
