"""Golden models of Nemotron and Arcee."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config
from tests.golden.mutation import Mutation, common, key, without

NEMOTRON = config(
    "NemotronForCausalLM",
    "nemotron",
    attention_bias=False,
    head_dim=16,
    hidden_act="relu2",
    mlp_bias=False,
    norm_eps=1e-05,
    partial_rotary_factor=0.5,
)
NEMOTRON.pop("rms_norm_eps")
ARCEE = config(
    "ArceeForCausalLM",
    "arcee",
    attention_bias=False,
    hidden_act="relu2",
    mlp_bias=False,
    rope_scaling={
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 8.0,
        "mscale": 1.0,
        "original_max_position_embeddings": 24,
        "rope_type": "yarn",
    },
)

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="nemotron", seed=1050, config=NEMOTRON),
    CaseRow(name="nemotron_bias", seed=1051, config=NEMOTRON | {"attention_bias": True, "mlp_bias": True}),
    CaseRow(name="arcee", seed=1052, config=ARCEE),
    CaseRow(name="arcee_bias", seed=1053, config=ARCEE | {"attention_bias": True, "mlp_bias": True}),
)

WRONG: tuple[Mutation, ...] = (
    key("nemotron", "rope_theta", 300.0),
    key("nemotron", "norm_eps", 0.05),
    key("nemotron", "hidden_act", "relu"),
    key("nemotron", "partial_rotary_factor", 1.0),
    without("nemotron", "norms", "layernorm.weight"),
    without("nemotron", "norm biases", "layernorm.bias", "norm.bias"),
    without("nemotron_bias", "attention biases", "_proj.bias"),
    without("nemotron_bias", "ffn biases", "up_proj.bias", "down_proj.bias"),
    *common("arcee"),
    key("arcee", "rope_scaling", None),
    without("arcee_bias", "attention biases", "q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"),
    without("arcee_bias", "ffn biases", "up_proj.bias", "down_proj.bias"),
)
