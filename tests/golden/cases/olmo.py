"""Golden models of OLMo 2 and 3."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, common, key, within, without

OLMO2 = config(
    "Olmo2ForCausalLM",
    "olmo2",
    attention_bias=False,
    pad_token_id=0,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=500000.0,
)
OLMO3_ROPE: Json = {
    "attention_factor": 1.2079441541679836,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 8.0,
    "original_max_position_embeddings": 24,
    "rope_theta": 200.0,
    "rope_type": "yarn",
}
# With rope_parameters: transformers 5 applies the published rope_theta to the full layers only.
OLMO3 = modern(
    config("Olmo3ForCausalLM", "olmo3", attention_bias=False, pad_token_id=0, rms_norm_eps=1e-06),
    {"full_attention": OLMO3_ROPE, "sliding_attention": {"rope_theta": 200.0, "rope_type": "default"}},
    layer_types=["sliding_attention"] * 3 + ["full_attention"],
    num_hidden_layers=4,
    sliding_window=12,
)
PLAIN_ROPE = {"rope_theta": 200.0, "rope_type": "default"}

OLMO = config("OlmoForCausalLM", "olmo", attention_bias=False, clip_qkv=None, pad_token_id=0)
OLMO.pop("rms_norm_eps")

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="olmo", seed=1120, config=OLMO),
    CaseRow(name="olmo_bias", seed=1121, config=OLMO | {"attention_bias": True, "clip_qkv": 0.75}),
    CaseRow(name="olmo2", seed=201, config=OLMO2),
    CaseRow(name="olmo3", seed=202, config=OLMO3),
)

WRONG: tuple[Mutation, ...] = (
    key("olmo", "rope_theta", 300.0),
    key("olmo", "hidden_act", "relu"),
    key("olmo_bias", "clip_qkv", None),
    without("olmo_bias", "attention biases", "_proj.bias"),
    *common("olmo2"),
    without("olmo2", "q norm", "q_norm.weight"),
    without("olmo2", "k norm", "k_norm.weight"),
    without("olmo2", "norm after attention", "post_attention_layernorm.weight"),
    without("olmo2", "norm after ffn", "post_feedforward_layernorm.weight"),
    key("olmo3", "rms_norm_eps", 0.05),
    key("olmo3", "hidden_act", "relu"),
    within("olmo3", "rope_parameters", OLMO3["rope_parameters"], full_attention=PLAIN_ROPE),
    within("olmo3", "rope_parameters", OLMO3["rope_parameters"], sliding_attention=OLMO3_ROPE),
    key("olmo3", "sliding_window", 13),
    key("olmo3", "layer_types", ["full_attention"] * 4),
)
