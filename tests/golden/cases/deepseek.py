"""DeepSeek 2 and 3: latent attention, YaRN with two magnitudes, experts in groups; and DeepSeek-OCR."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, common, key, refused, within, without

YARN: Json = {
    "beta_fast": 2,
    "beta_slow": 0.1,
    "factor": 4,
    "mscale": 1.0,
    "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 16,
    "type": "yarn",
}
LATENT: Json = {
    "first_k_dense_replace": 1,
    "hidden_size": 64,
    "kv_lora_rank": 32,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "rms_norm_eps": 1e-06,
    "rope_scaling": YARN,
    "rope_theta": 200.0,
    "v_head_dim": 32,
}
DEEPSEEK3 = (
    config("DeepseekV3ForCausalLM", "deepseek_v3")
    | LATENT
    | {
        "attention_bias": False,
        "n_group": 4,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 1,
        "rope_interleave": True,
        "routed_scaling_factor": 1.5,
        "scoring_func": "sigmoid",
        "topk_group": 2,
        "topk_method": "noaux_tc",
    }
)
# As DeepSeek-V2-Lite: queries directly from the hidden state, the best experts of all.
DEEPSEEK2 = (
    config("DeepseekV2ForCausalLM", "deepseek_v2")
    | LATENT
    | {
        "attention_bias": False,
        "mlp_bias": False,
        "n_group": 1,
        "norm_topk_prob": False,
        "q_lora_rank": None,
        "rope_scaling": YARN | {"mscale": 0.707},
        "routed_scaling_factor": 1.5,
        "scoring_func": "softmax",
        "topk_group": 1,
        "topk_method": "greedy",
    }
)
# As DeepSeek-OCR: sizes of latents are null or 0; the tower's settings and tensors are left out.
OCR = config(
    "DeepseekOCRForCausalLM",
    "deepseek_vl_v2",
    first_k_dense_replace=1,
    kv_lora_rank=None,
    moe_intermediate_size=32,
    n_group=1,
    n_routed_experts=8,
    n_shared_experts=2,
    num_experts_per_tok=3,
    num_hidden_layers=3,
    num_key_value_heads=4,
    q_lora_rank=None,
    qk_nope_head_dim=0,
    qk_rope_head_dim=0,
    rms_norm_eps=1e-6,
    routed_scaling_factor=1.5,
    topk_group=1,
    topk_method="greedy",
    use_mla=False,
    v_head_dim=0,
)
CASES = (
    CaseRow(name="deepseek_v3", seed=2656, config=DEEPSEEK3, lengths=(30, 13)),
    CaseRow(
        name="deepseek_v3_plain",
        seed=2440,
        config=DEEPSEEK3
        | {
            "attention_bias": True,
            "n_group": 1,
            "norm_topk_prob": False,
            "rope_scaling": None,
            "topk_group": 1,
        },
        lengths=(24, 9),
    ),
    CaseRow(name="deepseek_v2", seed=2441, config=DEEPSEEK2, lengths=(30, 13)),
    CaseRow(name="deepseek_ocr", seed=6261, config=OCR, lengths=(24, 13)),
)


def latent(case: str, scaling: Json) -> tuple[Mutation, ...]:
    return (
        key(case, "rope_theta", 50.0),
        refused(case, "rms_norm_eps", 0.05),
        key(case, "hidden_act", "relu"),
        key(case, "num_experts_per_tok", 2),
        key(case, "routed_scaling_factor", 1.0),
        within(case, "rope_scaling", scaling, factor=2),
        within(case, "rope_scaling", scaling, mscale=0.2),
        within(case, "rope_scaling", scaling, mscale_all_dim=0.2),
        within(case, "rope_scaling", scaling, original_max_position_embeddings=32),
        without(case, "latent norm", "kv_a_layernorm.weight"),
        without(case, "shared experts", "shared_experts.down_proj.weight"),
        without(case, "dense layer", "mlp.down_proj.weight"),
    )


WRONG: tuple[Mutation, ...] = (
    *latent("deepseek_v3", YARN),
    Mutation("deepseek_v3", "one group", {"n_group": 1, "topk_group": 1}),
    key("deepseek_v3", "topk_group", 3),
    key("deepseek_v3", "norm_topk_prob", False),
    refused("deepseek_v3", "rope_interleave", False),
    without("deepseek_v3", "query norm", "q_a_layernorm.weight"),
    without("deepseek_v3", "router bias", "e_score_correction_bias"),
    key("deepseek_v3_plain", "norm_topk_prob", True),
    without("deepseek_v3_plain", "q_a bias", "q_a_proj.bias"),
    without("deepseek_v3_plain", "kv_a bias", "kv_a_proj_with_mqa.bias"),
    without("deepseek_v3_plain", "o bias", "o_proj.bias"),
    *latent("deepseek_v2", YARN | {"mscale": 0.707}),
    *common("deepseek_ocr"),
    key("deepseek_ocr", "num_experts_per_tok", 2),
    key("deepseek_ocr", "routed_scaling_factor", 1.0),
    refused("deepseek_ocr", "norm_topk_prob", True),
    without("deepseek_ocr", "shared experts", "shared_experts.down_proj.weight"),
    without("deepseek_ocr", "dense layer", "layers.0.mlp.down_proj.weight"),
)
