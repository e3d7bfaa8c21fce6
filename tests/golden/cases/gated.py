"""EXAONE MoE, AFMoE (Trinity), Hunyuan with experts."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, common, key, without

LOCAL, FULL = "sliding_attention", "full_attention"
WINDOWS: Json = {
    "head_dim": 32,
    "layer_types": [LOCAL, FULL, LOCAL],
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_shared_experts": 2,
    "rope_scaling": None,
    "rope_theta": 1000.0,
    "sliding_window": 12,
}
EXAONE_MOE = (
    config("ExaoneMoeForCausalLM", "exaone_moe")
    | WINDOWS
    | {
        "first_k_dense_replace": 1,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "n_group": 4,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "sliding_window_pattern": "LGLG",
        "topk_group": 2,
    }
)
AFMOE = (
    config("AfmoeForCausalLM", "afmoe")
    | WINDOWS
    | {
        "attention_bias": False,
        "global_attn_every_n_layers": 4,
        "mup_enabled": True,
        "n_group": 1,
        "num_dense_layers": 1,
        "route_norm": True,
        "route_scale": 1.5,
        "score_func": "sigmoid",
    }
)
GLOBAL: Json = {"layer_types": [FULL] * 2, "mlp_layer_types": ["dense", "sparse"], "num_hidden_layers": 2}
EXAONE_MOE_GLOBAL = EXAONE_MOE | GLOBAL
AFMOE_GLOBAL = AFMOE | GLOBAL
HUNYUAN_MOE = config(
    "HunYuanMoEV1ForCausalLM",
    "hunyuan_v1_moe",
    attention_bias=True,
    head_dim=32,
    intermediate_size=32,
    moe_topk=[3, 3],
    num_experts=8,
    rope_scaling={"alpha": 4.0, "factor": 1.0, "type": "dynamic"},
    rope_theta=1000.0,
)
CASES = (
    CaseRow(name="exaone_moe", seed=2922, config=EXAONE_MOE, lengths=(30, 13)),
    CaseRow(name="afmoe", seed=2846, config=AFMOE, lengths=(24, 9)),
    CaseRow(name="exaone_moe_global", seed=2923, config=EXAONE_MOE_GLOBAL, lengths=(12, 5)),
    CaseRow(name="afmoe_global", seed=2849, config=AFMOE_GLOBAL, lengths=(12, 5)),
    CaseRow(name="hunyuan_v1_moe", seed=2863, config=HUNYUAN_MOE, lengths=(30, 13)),
)


def windows(case: str, scale: str) -> tuple[Mutation, ...]:
    return (
        *common(case),
        key(case, "num_experts_per_tok", 2),
        key(case, scale, 1.0),
        key(case, "layer_types", [FULL] * 3),
        key(case, "sliding_window", 13),
        without(case, "q norm", "q_norm.weight"),
        without(case, "k norm", "k_norm.weight"),
        without(case, "shared experts", "shared_experts.down_proj.weight"),
        without(case, "dense layer", "mlp.down_proj.weight"),
    )


WRONG: tuple[Mutation, ...] = (
    *windows("exaone_moe", "routed_scaling_factor"),
    key("exaone_moe", "norm_topk_prob", False),
    key("exaone_moe", "topk_group", 3),
    without("exaone_moe", "router bias", "e_score_correction_bias"),
    *windows("afmoe", "route_scale"),
    key("afmoe", "mup_enabled", False),
    without("afmoe", "router bias", "expert_bias"),
    without("afmoe", "gate of attention", "self_attn.gate_proj.weight"),
    without("afmoe", "norm after attention", "post_attention_layernorm.weight"),
    without("afmoe", "norm after ffn", "post_mlp_layernorm.weight"),
    *(
        Mutation(case, "rotation", {"layer_types": [LOCAL] * 2, "sliding_window": 64})
        for case in ("exaone_moe_global", "afmoe_global")
    ),
    *common("hunyuan_v1_moe"),
    key("hunyuan_v1_moe", "moe_topk", [2, 2]),
    key("hunyuan_v1_moe", "rope_scaling", None),
    without("hunyuan_v1_moe", "q norm", "query_layernorm.weight"),
    without("hunyuan_v1_moe", "k norm", "key_layernorm.weight"),
    without("hunyuan_v1_moe", "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("hunyuan_v1_moe", "o bias", "o_proj.bias"),
    without("hunyuan_v1_moe", "shared expert", "shared_mlp.down_proj.weight"),
)
