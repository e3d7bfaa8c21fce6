"""Golden models of Phi 2 to 4, and Phi 3.5 MoE."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, common, key, within, without

PHI3 = config(
    "Phi3ForCausalLM",
    "phi3",
    attention_bias=False,
    embd_pdrop=0.0,
    original_max_position_embeddings=24,
    pad_token_id=0,
    resid_pdrop=0.0,
    rope_scaling={
        "long_factor": [1.1, 1.4, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
        "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0],
        "type": "longrope",
    },
    sliding_window=200,
)
PHI4_MINI = PHI3 | {
    "partial_rotary_factor": 0.75,
    "rope_scaling": {
        "long_factor": [1.2, 1.6, 2.4, 4.0, 8.0, 15.0],
        "short_factor": [1.0, 1.0, 1.2, 1.5, 2.0, 3.0],
        "type": "longrope",
    },
    "sliding_window": None,
    "tie_word_embeddings": True,
}
# One key/value head for two queries; the published models have as many of both.
PHI2 = config("PhiForCausalLM", "phi") | {
    "embd_pdrop": 0.0,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-05,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": False,
    "resid_pdrop": 0.1,
}
PHI2.pop("rms_norm_eps")


def longrope(case: str, old: Json, used: str) -> list[Mutation]:
    scaling = old["rope_scaling"]
    return [
        within(case, "rope_scaling", scaling, **{used: [1.0] * len(scaling[used])}),
        key(case, "rope_scaling", None),
        key(case, "max_position_embeddings", 24),  # ratio to the original: attention factor
    ]


# transformers takes the short factors for every length.
PHIMOE_ROPE: Json = {
    "long_factor": [1.0, 1.1, 1.4, 2.0, 3.0, 5.0, 9.0, 14.0],
    "long_mscale": 1.25,
    "original_max_position_embeddings": 64,
    "rope_theta": 1000.0,
    "rope_type": "longrope",
    "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0],
    "short_mscale": 1.25,
}
PHIMOE = modern(
    config(
        "PhimoeForCausalLM",
        "phimoe",
        attention_bias=True,
        input_jitter_noise=0.01,
        intermediate_size=32,
        lm_head_bias=True,
        num_experts_per_tok=2,
        num_local_experts=12,
        router_jitter_noise=0.01,
        sliding_window=None,
    ),
    PHIMOE_ROPE,
)

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="phi2", seed=1070, config=PHI2),
    CaseRow(name="phimoe", seed=7138, config=PHIMOE, lengths=(12, 7)),
    CaseRow(name="phi3_short", seed=181, config=PHI3, lengths=(24, 17)),  # 24: the longest short sequence,
    CaseRow(name="phi3_long", seed=182, config=PHI3, lengths=(40, 25)),
    CaseRow(name="phi3_partial", seed=183, config=PHI4_MINI),
)

WRONG: tuple[Mutation, ...] = (
    key("phi2", "rope_theta", 300.0),
    key("phi2", "layer_norm_eps", 0.05),
    key("phi2", "hidden_act", "relu"),
    key("phi2", "partial_rotary_factor", 1.0),
    without("phi2", "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("phi2", "o bias", "dense.bias"),
    without("phi2", "ffn biases", "fc1.bias", "fc2.bias"),
    without("phi2", "norm biases", "layernorm.bias"),
    without("phi2", "head bias", "lm_head.bias"),
    key("phimoe", "rms_norm_eps", 0.05),
    key("phimoe", "hidden_act", "relu"),
    key("phimoe", "router_jitter_noise", 0.0),
    within("phimoe", "rope_parameters", PHIMOE_ROPE, short_factor=[1.0] * 8),
    within("phimoe", "rope_parameters", PHIMOE_ROPE, long_mscale=1.0, short_mscale=1.0),
    without("phimoe", "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("phimoe", "o bias", "o_proj.bias"),
    without("phimoe", "norm biases", "layernorm.bias", "model.norm.bias"),
    without("phimoe", "head bias", "lm_head.bias"),
    *common("phi3_short"),
    *longrope("phi3_short", PHI3, "short_factor"),
    key("phi3_short", "original_max_position_embeddings", 23),
    key("phi3_short", "sliding_window", 12),
    *common("phi3_long"),
    *longrope("phi3_long", PHI3, "long_factor"),
    key("phi3_long", "original_max_position_embeddings", 100),
    Mutation(
        "phi3_partial",
        "partial_rotary_factor",
        {"partial_rotary_factor": 1.0, "rope_scaling": PHI3["rope_scaling"]},
    ),
    within("phi3_partial", "rope_scaling", PHI4_MINI["rope_scaling"], long_factor=[1.0] * 6),
    within("phi3_partial", "rope_scaling", PHI4_MINI["rope_scaling"], short_factor=[1.0] * 6),
    key("phi3_partial", "original_max_position_embeddings", 100),
)
