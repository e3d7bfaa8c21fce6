"""Golden mixtures of experts that transformers has no class for: DeepSeek 1, Ling 1 and 2, Arctic."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config
from tests.golden.mutation import Mutation, common, key, without

DEEPSEEK = config(
    "DeepseekForCausalLM",
    "deepseek",
    attention_bias=False,
    first_k_dense_replace=1,
    moe_intermediate_size=32,
    moe_layer_freq=1,
    n_routed_experts=6,
    n_shared_experts=2,
    norm_topk_prob=False,
    num_experts_per_tok=3,
    num_hidden_layers=3,
    rms_norm_eps=1e-6,
    rope_scaling=None,
    scoring_func="softmax",
)
BAILING = config(
    "BailingMoeForCausalLM",
    "bailing_moe",
    first_k_dense_replace=0,
    head_dim=32,
    moe_intermediate_size=32,
    multi_gate=False,
    norm_head=False,
    norm_softmax=False,
    norm_topk_prob=True,
    num_experts=6,
    num_experts_per_tok=3,
    num_shared_experts=2,
    use_bias=False,
    use_qkv_bias=False,
)
BAILING_2 = config(
    "BailingMoeV2ForCausalLM",
    "bailing_moe_v2",
    first_k_dense_replace=1,
    head_dim=16,
    moe_intermediate_size=32,
    moe_router_enable_expert_bias=True,
    n_group=4,
    norm_topk_prob=True,
    num_experts=16,
    num_experts_per_tok=4,
    num_hidden_layers=3,
    num_nextn_predict_layers=0,
    num_shared_experts=1,
    partial_rotary_factor=0.5,
    rms_norm_eps=1e-6,
    rope_scaling=None,
    routed_scaling_factor=2.5,
    score_function="sigmoid",
    topk_group=2,
    use_bias=False,
    use_qk_norm=True,
    use_qkv_bias=False,
)
ARCTIC = config(
    "ArcticForCausalLM",
    "arctic",
    moe_layer_frequency=1,
    num_experts_per_tok=2,
    num_local_experts=6,
    parallel_attn_mlp_res=True,
    use_residual=True,
)
# As SmallThinker 21B: the first of each four layers has neither window nor rotation.
SMALLTHINKER = config(
    "SmallThinkerForCausalLM",
    "smallthinker",
    head_dim=32,
    moe_ffn_hidden_size=32,
    moe_num_active_primary_experts=3,
    moe_num_primary_experts=8,
    moe_primary_router_apply_softmax=False,
    num_hidden_layers=5,
    rms_norm_eps=1e-6,
    rope_layout=[0, 1, 1, 1, 0],
    rope_scaling=None,
    sliding_window_layout=[0, 1, 1, 1, 0],
    sliding_window_size=12,
)
for name in ("hidden_act", "intermediate_size"):
    SMALLTHINKER.pop(name)
# As SmallThinker 4B: no window, rotation in every layer.
SMALLTHINKER_4B = SMALLTHINKER | {
    "moe_primary_router_apply_softmax": True,
    "num_hidden_layers": 3,
    "rope_layout": [1, 1, 1],
    "sliding_window_layout": [0, 0, 0],
    "tie_word_embeddings": True,
}

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="deepseek", seed=6201, config=DEEPSEEK, lengths=(24, 13)),
    CaseRow(name="bailing_moe", seed=6211, config=BAILING, lengths=(24, 13)),
    CaseRow(name="bailing_moe_v2", seed=6221, config=BAILING_2, lengths=(16, 9)),
    CaseRow(name="smallthinker", seed=6241, config=SMALLTHINKER, lengths=(24, 13)),
    CaseRow(name="smallthinker_4b", seed=6252, config=SMALLTHINKER_4B, lengths=(18, 9)),
    CaseRow(name="arctic", seed=6231, config=ARCTIC, lengths=(24, 13)),
)

WRONG: tuple[Mutation, ...] = (
    *common("deepseek"),
    key("deepseek", "norm_topk_prob", True),
    key("deepseek", "num_experts_per_tok", 2),
    without("deepseek", "shared experts", "shared_experts.down_proj.weight"),
    without("deepseek", "dense layer", "layers.0.mlp.down_proj.weight"),
    *common("bailing_moe"),
    key("bailing_moe", "norm_topk_prob", False),
    key("bailing_moe", "num_experts_per_tok", 2),
    without("bailing_moe", "shared experts", "shared_experts.down_proj.weight"),
    *common("bailing_moe_v2"),
    key("bailing_moe_v2", "num_experts_per_tok", 2),
    Mutation("bailing_moe_v2", "fewer groups", {"n_group": 2, "topk_group": 1}),
    key("bailing_moe_v2", "topk_group", 1),
    key("bailing_moe_v2", "routed_scaling_factor", 1.0),
    key("bailing_moe_v2", "partial_rotary_factor", 1.0),
    without("bailing_moe_v2", "q norm", "query_layernorm.weight"),
    without("bailing_moe_v2", "k norm", "key_layernorm.weight"),
    without("bailing_moe_v2", "bias of the router", "expert_bias"),
    without("bailing_moe_v2", "shared expert", "shared_experts.down_proj.weight"),
    key("smallthinker", "rope_theta", 300.0),
    key("smallthinker", "rms_norm_eps", 0.05),
    key("smallthinker", "sliding_window_size", 13),
    key("smallthinker", "sliding_window_layout", [0, 0, 1, 1, 0]),
    key("smallthinker", "rope_layout", [1, 1, 1, 1, 0]),
    key("smallthinker", "moe_num_active_primary_experts", 2),
    key("smallthinker", "moe_primary_router_apply_softmax", True),
    key("smallthinker_4b", "moe_primary_router_apply_softmax", False),
    *common("arctic"),
    key("arctic", "num_experts_per_tok", 1),
    without("arctic", "norm of the experts", "post_attention_layernorm.weight"),
    without("arctic", "dense MLP", "residual_mlp.w2.weight"),
)
