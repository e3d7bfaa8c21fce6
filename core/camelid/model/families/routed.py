"""Experts chosen with a bias that training balances: dots.llm1, GLM 4.5, ERNIE 4.5, MiniMax M2, Hy3."""

from __future__ import annotations

from dataclasses import replace

from camelid.model import hf_rows as hf
from camelid.model.arch import (
    ATTENTION,
    BALANCED,
    HEAD_NORMS,
    LATE_FFN_NORM,
    QKV,
    ROUTER_BIAS,
    WIDE_NORMS,
    Arch,
)

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
    **hf.only(False, "attention_bias", "mlp_bias"),
    **hf.only(True, "moe_router_use_sigmoid", "qk_norm", "route_norm"),
}

ARCHS: dict[str, Arch] = {
    "dots1": replace(BALANCED, optional_biases=(*ATTENTION,)),
    "glm4moe": replace(
        BALANCED,
        added={},
        optional={**ROUTER_BIAS, **HEAD_NORMS},
        optional_biases=QKV,
        splits=LATE_FFN_NORM,
    ),
    "ernie4_5-moe": Arch(optional=ROUTER_BIAS),
    "minimax-m2": replace(BALANCED, added={"attention": WIDE_NORMS}, normalizes=True),
    "hy_v3": replace(BALANCED, optional={"exp_probs_b": "E"}, no_ending=("exp_probs_b",)),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "dots1": hf.HfRow(
        arch="dots1",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.HEAD_NORMS, **SHARED},
        numbers=SCALE,
        counts=COUNTS,
        derived=hf.SIGMOID_GATE,
        defaults=DOTS_DEFAULTS,
        refused={"scoring_func": ("noaux_tc", "sigmoid")},
    ),
    "glm4_moe": hf.HfRow(
        arch="glm4moe",
        names={
            **hf.ATTENTION,
            **hf.HEAD_NORMS,
            **hf.LATE_FFN_NORM,
            **SHARED,
        },
        numbers=SCALE,
        counts=COUNTS,
        derived=hf.SIGMOID_GATE,
        defaults=GLM_DEFAULTS,
    ),
    "ernie4_5_moe": hf.HfRow(
        arch="ernie4_5-moe",
        names={**hf.LLAMA, **SHARED, "exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias"},
        folds={"exp_probs_b": "row"},
        keys=ERNIE_KEYS,
        counts=ERNIE_COUNTS,
        derived=hf.SOFTMAX_GATE,
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
        derived=hf.SIGMOID_GATE,
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
        derived={**hf.SIGMOID_GATE, **hf.NORMED_PROBS},
        defaults=HY_DEFAULTS,
        refused=HY_REFUSED,
    ),
}
