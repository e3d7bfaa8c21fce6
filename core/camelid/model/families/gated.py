"""Experts beside attention with windows, whose other layers have no rotation: EXAONE MoE, AFMoE (Trinity);
Hunyuan with experts.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, BALANCED, HEAD_NORMS, POST_NORMS, PRE_NORMS, Arch

EXPERTS: hf.Names = {**hf.GLU, **hf.QWEN_EXPERTS, **hf.SHARED_EXPERTS}
EXAONE_DEFAULTS = {
    "num_key_value_heads": 32, "num_experts": 64, "num_experts_per_tok": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 1024, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1,
    "topk_group": 1, "sliding_window": 4096, "rms_norm_eps": 1e-5,
}  # fmt: skip
EXAONE_COUNTS: hf.Names = {
    "expert_shared_count": "num_shared_experts",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
}
AFMOE_DEFAULTS = {
    "head_dim": 128, "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2,
    "moe_intermediate_size": 1408, "num_dense_layers": 1, "route_scale": 1.0, "sliding_window": 1024,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
HUNYUAN_EXPERTS: hf.Names = {
    **hf.QWEN_EXPERTS,
    "ffn_gate_inp": "mlp.gate.wg",
    "ffn_gate_shexp": "mlp.shared_mlp.gate_proj",
    "ffn_up_shexp": "mlp.shared_mlp.up_proj",
    "ffn_down_shexp": "mlp.shared_mlp.down_proj",
}
HUNYUAN_KEYS: hf.Names = {
    **hf.KEYS,
    "expert_used_count": "moe_topk",
    "expert_feed_forward_length": "intermediate_size",
    "rope.scaling.alpha": "alpha",
}


def _n_dense(config: Config) -> int:
    """The number of layers before the first with experts."""
    kinds = config.texts("mlp_layer_types")
    stated = config.count("first_k_dense_replace", 1, least=0)
    return kinds.index("sparse") if "sparse" in kinds else stated


def _embedding_scale(config: Config) -> float:
    return config.count("hidden_size") ** 0.5 if config.flag("mup_enabled", False) else 1.0


ARCHS: dict[str, Arch] = {
    "exaone-moe": replace(BALANCED, window_pattern=4, has_global_nope=True),
    "afmoe": replace(
        BALANCED,
        tensors={**PRE_NORMS, **POST_NORMS},
        added={"attention": {**HEAD_NORMS, "attn_gate": "QC"}},
        window_pattern=4,
        has_global_nope=True,
        scales_embeddings=True,
    ),
    "hunyuan-moe": Arch(
        rope_style="neox",
        added={"attention": HEAD_NORMS},
        optional_biases=(*ATTENTION,),
        norms_rotated=True,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "exaone_moe": hf.HfRow(
        arch="exaone-moe",
        names={
            **hf.PRE_NORMS,
            **hf.ATTENTION,
            **hf.HEAD_NORMS,
            **EXPERTS,
            "exp_probs_b.bias": "mlp.e_score_correction_bias",
        },
        numbers={"expert_weights_scale": "routed_scaling_factor"},
        counts=EXAONE_COUNTS,
        derived={**hf.SIGMOID_GATE, "leading_dense_block_count": _n_dense},
        defaults=EXAONE_DEFAULTS,
        rotates_windowless=True,
        ignored=(".rotary_emb.inv_freq", "mtp."),
    ),
    "afmoe": hf.HfRow(
        arch="afmoe",
        names={
            **hf.renamed(hf.SANDWICH, "feedforward", "mlp"),
            **hf.ATTENTION,
            **hf.HEAD_NORMS,
            "attn_gate": "self_attn.gate_proj",
            **EXPERTS,
            **hf.ROUTER,
        },
        numbers={"expert_weights_scale": "route_scale"},
        counts={"leading_dense_block_count": "num_dense_layers", "expert_shared_count": "num_shared_experts"},
        derived={"embedding_scale": _embedding_scale, **hf.SIGMOID_GATE, **hf.NORMED_PROBS},
        defaults=AFMOE_DEFAULTS,
        refused={
            "attention_bias": (False,),
            "global_attn_every_n_layers": (4,),
            "n_group": (1,),
            "route_norm": (True,),
            "score_func": ("sigmoid",),
        },
    ),
    "hunyuan_v1_moe": hf.HfRow(
        arch="hunyuan-moe",
        names={
            **hf.PRE_NORMS,
            **hf.ATTENTION,
            "attn_q_norm": "self_attn.query_layernorm",
            "attn_k_norm": "self_attn.key_layernorm",
            **HUNYUAN_EXPERTS,
        },
        keys=HUNYUAN_KEYS,
        counts={"expert_shared_feed_forward_length": "intermediate_size"},
        defaults={"num_experts": 1, "moe_topk": 1, "rms_norm_eps": 1e-5},
    ),
}
