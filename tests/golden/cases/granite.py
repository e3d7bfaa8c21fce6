"""Golden models of Granite 3 and 4."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config
from tests.golden.mutation import Mutation, common, key, without

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
GRANITE = config(
    "GraniteForCausalLM",
    "granite",
    attention_bias=False,
    attention_multiplier=0.15,
    embedding_multiplier=3.0,
    logits_scaling=4.0,
    mlp_bias=False,
    pad_token_id=0,
    residual_multiplier=0.4,
    rope_scaling=None,
    tie_word_embeddings=True,
)

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="granite", seed=211, config=GRANITE),
    CaseRow(name="granitemoehybrid", seed=255, config=GRANITE_HYBRID),
    CaseRow(name="granitemoehybrid_dense", seed=252, config=GRANITE_HYBRID_DENSE),
)

WRONG: tuple[Mutation, ...] = (
    *common("granite"),
    key("granite", "attention_multiplier", 0.25),
    key("granite", "embedding_multiplier", 1.0),
    key("granite", "logits_scaling", 1.0),
    key("granite", "residual_multiplier", 1.0),
    key("granitemoehybrid", "rms_norm_eps", 0.05),
    key("granitemoehybrid", "hidden_act", "relu"),
    key("granitemoehybrid", "attention_multiplier", 0.6),
    key("granitemoehybrid", "embedding_multiplier", 1.0),
    key("granitemoehybrid", "logits_scaling", 1.0),
    key("granitemoehybrid", "residual_multiplier", 1.0),
    key("granitemoehybrid", "num_experts_per_tok", 1),
    Mutation("granitemoehybrid", "num_experts_per_tok all", {"num_experts_per_tok": 6}),
    key("granitemoehybrid", "position_embedding_type", "rope"),
    key("granitemoehybrid", "time_step_limit", [0.0, 0.5]),
    Mutation("granitemoehybrid", "one group", {"mamba_n_groups": 1, "mamba_d_state": 32}),
    without("granitemoehybrid", "shared expert", "shared_mlp.output_linear.weight"),
    without("granitemoehybrid", "experts", "block_sparse_moe.output_linear.weight"),
    without("granitemoehybrid", "decays", "mamba.A_log"),
    without("granitemoehybrid", "skip", "mamba.D"),
    without("granitemoehybrid", "dt bias", "mamba.dt_bias"),
    without("granitemoehybrid", "conv bias", "mamba.conv1d.bias"),
    without("granitemoehybrid", "conv", "mamba.conv1d.weight"),
    without("granitemoehybrid", "norm of the scan", "mamba.norm.weight"),
    without("granitemoehybrid", "mamba layers", "mamba.out_proj.weight"),
    without("granitemoehybrid", "attention layers", "o_proj.weight"),
    key("granitemoehybrid_dense", "rope_theta", 300.0),
    key("granitemoehybrid_dense", "position_embedding_type", "nope"),
    without("granitemoehybrid_dense", "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("granitemoehybrid_dense", "o bias", "o_proj.bias"),
    without("granitemoehybrid_dense", "skip", "mamba.D"),
)
