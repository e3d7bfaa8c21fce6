"""Routers with a bias: dots.llm1, GLM 4.5, ERNIE 4.5, MiniMax M2, Hy3."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, common, key, within, without

GROUPED: Json = {
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_group": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "norm_topk_prob": True,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "rope_scaling": None,
    "rope_theta": 1000.0,
    "routed_scaling_factor": 1.5,
    "topk_group": 2,
}
DOTS1 = (
    config("Dots1ForCausalLM", "dots1")
    | GROUPED
    | {
        "attention_bias": True,
        "head_dim": 32,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "max_window_layers": 3,
        "sliding_window": 12,
    }
)
GLM4_MOE = (
    config("Glm4MoeForCausalLM", "glm4_moe")
    | GROUPED
    | {
        "attention_bias": True,
        "head_dim": 32,
        "num_nextn_predict_layers": 1,
        "partial_rotary_factor": 0.5,
        "use_qk_norm": True,
    }
)
ERNIE = config(
    "Ernie4_5_MoeForCausalLM",
    "ernie4_5_moe",
    moe_capacity=[64, 64, 64],
    moe_intermediate_size=32,
    moe_k=3,
    moe_layer_interval=2,
    moe_layer_start_index=2,
    moe_num_experts=8,
    moe_num_shared_experts=2,
    num_hidden_layers=4,
    rope_scaling=None,
    rope_theta=1000.0,
    tie_word_embeddings=True,
    use_bias=False,
)
MINIMAX_M2 = config(
    "MiniMaxM2ForCausalLM",
    "minimax_m2",
    head_dim=32,
    intermediate_size=32,
    num_experts_per_tok=3,
    num_local_experts=8,
    rope_theta=1000.0,
    rotary_dim=16,
    scoring_func="sigmoid",
    use_qk_norm=True,
    use_routing_bias=True,
)
# As Hy3: the first layer is dense; the layer of multi-token prediction is not stored.
HY_V3 = modern(
    config(
        "HYV3ForCausalLM",
        "hy_v3",
        first_k_dense_replace=1,
        head_dim=32,
        moe_intermediate_size=32,
        moe_router_enable_expert_bias=True,
        moe_router_use_sigmoid=True,
        num_experts=8,
        num_experts_per_tok=3,
        num_hidden_layers=3,
        num_nextn_predict_layers=1,
        num_shared_experts=2,
        qk_norm=True,
        route_norm=True,
        router_scaling_factor=1.5,
    ),
    {"rope_theta": 1000.0, "rope_type": "default"},
)
CASES = (
    CaseRow(name="dots1", seed=2524, config=DOTS1, lengths=(30, 13)),
    CaseRow(name="glm4_moe", seed=2636, config=GLM4_MOE, lengths=(30, 13)),
    CaseRow(
        name="glm4_moe_bare",
        seed=2684,
        config=GLM4_MOE
        | {
            "attention_bias": False,
            "norm_topk_prob": False,
            "use_qk_norm": False,
        },
        lengths=(24, 9),
    ),
    CaseRow(name="ernie4_5_moe", seed=2560, config=ERNIE, lengths=(30, 13)),
    CaseRow(name="minimax_m2", seed=2594, config=MINIMAX_M2, lengths=(30, 13)),
    CaseRow(name="hy_v3", seed=2705, config=HY_V3, lengths=(30, 13)),
)


def grouped(case: str) -> tuple[Mutation, ...]:
    return (
        *common(case),
        key(case, "num_experts_per_tok", 2),
        key(case, "norm_topk_prob", False),
        key(case, "routed_scaling_factor", 1.0),
        key(case, "topk_group", 3),
        Mutation(case, "one group", {"n_group": 1, "topk_group": 1}),
        without(case, "q norm", "q_norm.weight"),
        without(case, "k norm", "k_norm.weight"),
        without(case, "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
        without(case, "router bias", "e_score_correction_bias"),
        without(case, "shared experts", "shared_experts.down_proj.weight"),
        without(case, "dense layer", "mlp.down_proj.weight"),
    )


WRONG: tuple[Mutation, ...] = (
    *grouped("dots1"),
    without("dots1", "o bias", "o_proj.bias"),
    Mutation("dots1", "sliding_window one wider", {"sliding_window": 13}),
    key("dots1", "layer_types", ["full_attention"] * 3),
    *grouped("glm4_moe"),
    key("glm4_moe", "partial_rotary_factor", 1.0),
    *common("glm4_moe_bare"),
    key("glm4_moe_bare", "norm_topk_prob", True),
    *common("ernie4_5_moe"),
    key("ernie4_5_moe", "moe_k", 2),
    without("ernie4_5_moe", "router bias", "e_score_correction_bias"),
    without("ernie4_5_moe", "shared experts", "shared_experts.down_proj.weight"),
    without("ernie4_5_moe", "dense layers", "mlp.down_proj.weight"),
    *common("minimax_m2"),
    key("minimax_m2", "num_experts_per_tok", 2),
    key("minimax_m2", "rotary_dim", 32),
    without("minimax_m2", "q norm", "q_norm.weight"),
    without("minimax_m2", "k norm", "k_norm.weight"),
    without("minimax_m2", "router bias", "e_score_correction_bias"),
    within("hy_v3", "rope_parameters", HY_V3["rope_parameters"], rope_theta=300.0),
    key("hy_v3", "rms_norm_eps", 0.05),
    key("hy_v3", "hidden_act", "relu"),
    key("hy_v3", "num_experts_per_tok", 2),
    key("hy_v3", "router_scaling_factor", 1.0),
    without("hy_v3", "q norm", "q_norm.weight"),
    without("hy_v3", "k norm", "k_norm.weight"),
    without("hy_v3", "router bias", "mlp.expert_bias"),
    without("hy_v3", "shared experts", "shared_mlp.down_proj.weight"),
    without("hy_v3", "dense layer", "layers.0.mlp.down_proj.weight"),
)
