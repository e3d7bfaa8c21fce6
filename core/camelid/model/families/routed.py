"""Experts chosen with a bias that training balances: dots.llm1, GLM 4.5, ERNIE 4.5, MiniMax M2, Hy3."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, HEAD_NORMS, QKV, WIDE_NORMS, Arch

BIAS = {"exp_probs_b.bias": "E"}
SHARED: hf.Names = {**hf.GLU, **hf.QWEN_EXPERTS, **hf.SHARED_EXPERTS, **hf.ROUTER_BIAS}
SCALE: hf.Names = {"expert_weights_scale": "routed_scaling_factor"}
COUNTS: hf.Names = {
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_shared_count": "n_shared_experts",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
}
DOTS_DEFAULTS = {
    "num_key_value_heads": 32, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0,
    "norm_topk_prob": False, "sliding_window": 4096, "max_window_layers": 62,
}  # fmt: skip
GLM_DEFAULTS = {
    "num_key_value_heads": 8, "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": True, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
}  # fmt: skip
ERNIE_KEYS: hf.Names = {**hf.KEYS, "expert_used_count": "moe_k"}
ERNIE_COUNTS: hf.Names = {
    "leading_dense_block_count": "moe_layer_start_index",
    "interleave_moe_layer_step": "moe_layer_interval",
    "expert_shared_count": "moe_num_shared_experts",
}
ERNIE_DEFAULTS = {
    "num_key_value_heads": 4, "moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2,
    "moe_intermediate_size": 1536, "moe_layer_start_index": 1, "moe_layer_interval": 1,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
}  # fmt: skip
MINIMAX_DEFAULTS = {
    "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8,
    "rope_theta": 5e6,
}  # fmt: skip
HY_NAMES: hf.Names = {
    **hf.LLAMA,
    **hf.HEAD_NORMS,
    **hf.QWEN_EXPERTS,
    **hf.renamed(hf.SHARED_EXPERTS, "shared_experts", "shared_mlp"),
    "ffn_gate_inp": "mlp.router.gate",
    "exp_probs_b": "mlp.expert_bias",
}
HY_DEFAULTS = {
    "num_key_value_heads": 8, "head_dim": 128, "num_experts": 192, "num_experts_per_tok": 8,
    "num_shared_experts": 1, "moe_intermediate_size": 1536, "router_scaling_factor": 2.826,
    "rms_norm_eps": 1e-5, "rope_theta": 11158840.0,
}  # fmt: skip
HY_REFUSED: hf.Refused = {
    "attention_bias": (False,), "mlp_bias": (False,), "moe_router_use_sigmoid": (True,), "qk_norm": (True,),
    "route_norm": (True,),
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "dots1": Arch(
        rope_style="neox",
        added={"attention": HEAD_NORMS},
        optional=BIAS,
        optional_biases=(*ATTENTION,),
        gate="sigmoid",
        normalizes=False,
    ),
    "glm4moe": Arch(
        rope_style="neox",
        optional={**BIAS, **HEAD_NORMS},
        optional_biases=QKV,
        splits={"post_attention_norm": (("ffn_norm", "C"),)},
        gate="sigmoid",
        normalizes=False,
    ),
    "ernie4_5-moe": Arch(optional=BIAS),
    "minimax-m2": Arch(rope_style="neox", added={"attention": WIDE_NORMS}, optional=BIAS, gate="sigmoid"),
    "hy_v3": Arch(
        rope_style="neox",
        added={"attention": HEAD_NORMS},
        optional={"exp_probs_b": "E"},
        no_ending=("exp_probs_b",),
        gate="sigmoid",
        normalizes=False,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "dots1": hf.HfRow(
        arch="dots1",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.HEAD_NORMS, **SHARED},
        numbers=SCALE,
        counts=COUNTS,
        derived={"expert_gating_func": lambda config: 2},
        defaults=DOTS_DEFAULTS,
        refused={"scoring_func": ("noaux_tc", "sigmoid")},
    ),
    "glm4_moe": hf.HfRow(
        arch="glm4moe",
        names={
            **hf.ATTENTION,
            **hf.HEAD_NORMS,
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            **SHARED,
        },
        numbers=SCALE,
        counts=COUNTS,
        derived={"expert_gating_func": lambda config: 2},
        defaults=GLM_DEFAULTS,
    ),
    "ernie4_5_moe": hf.HfRow(
        arch="ernie4_5-moe",
        names={**hf.LLAMA, **SHARED, "exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias"},
        folds={"exp_probs_b": "row"},
        keys=ERNIE_KEYS,
        counts=ERNIE_COUNTS,
        derived={"expert_gating_func": lambda config: 1},
        defaults=ERNIE_DEFAULTS,
        refused={"use_bias": (False,)},
        is_tied=True,
    ),
    "minimax_m2": hf.HfRow(
        arch="minimax-m2",
        names={
            **hf.PRE_NORMS,
            **hf.ATTENTION,
            **hf.HEAD_NORMS,
            **hf.MIXTRAL_EXPERTS,
            "exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias",
        },
        keys={**hf.KEYS, "expert_feed_forward_length": "intermediate_size"},
        derived={"expert_gating_func": lambda config: 2},
        defaults=MINIMAX_DEFAULTS,
        refused={"scoring_func": ("sigmoid",)},
    ),
    "hy_v3": hf.HfRow(
        arch="hy_v3",
        names=HY_NAMES,
        aliases={"expert_hidden_dim": "moe_intermediate_size"},
        numbers={"expert_weights_scale": "router_scaling_factor"},
        products={
            "expert_shared_feed_forward_length": ("moe_intermediate_size", "num_shared_experts"),
        },
        derived={"expert_gating_func": lambda config: 2, "expert_weights_norm": lambda config: True},
        defaults=HY_DEFAULTS,
        refused=HY_REFUSED,
    ),
}
