"""Mixtures of experts that transformers has no class for: DeepSeek 1, Ling 1 and 2, Arctic, Grove MoE,
Grok-1."""

from __future__ import annotations

from collections.abc import Callable

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import FUSED_QKV, HEAD_NORMS, POST_NORMS, PRE_NORMS, QKV, ROUTER_BIAS, Arch

CHUNKS = {"ffn_gate_chexps": "hxC", "ffn_up_chexps": "hxC", "ffn_down_chexps": "hCx"}
GROVE: hf.Names = {
    **hf.QWEN_EXPERTS,
    "ffn_gate_chexps": "mlp.chunk_experts.{h}.gate_proj",
    "ffn_up_chexps": "mlp.chunk_experts.{h}.up_proj",
    "ffn_down_chexps": "mlp.chunk_experts.{h}.down_proj",
}

GROK_NORMS = {
    "attn_output_norm": (("post_attention_norm", "C"),),
    "layer_output_norm": (("post_ffw_norm", "C"),),
}
GROK: hf.Names = {
    "attn_norm.weight": "pre_attn_norm.scale",
    "attn_output_norm.weight": "post_attn_norm.scale",
    "ffn_norm.weight": "pre_moe_norm.scale",
    "layer_output_norm.weight": "post_moe_norm.scale",
    **hf.renamed(hf.ATTENTION, "self_attn", "attn"),
    "ffn_gate_inp": "moe_block.gate",
    "ffn_gate_exps": "moe_block.experts.{e}.linear",
    "ffn_up_exps": "moe_block.experts.{e}.linear_v",
    "ffn_down_exps": "moe_block.experts.{e}.linear_1",
}
GROK_OUTER: hf.Names = {
    "token_embd": "model.embed_tokens", "output_norm.weight": "model.norm.scale", "output": "lm_head",
}  # fmt: skip
GROK_NUMBERS: hf.Names = {
    "attention.output_scale": "attn_output_multiplier",
    "attn_logit_softcapping": "max_attn_value",
    "embedding_scale": "embedding_multiplier_scale",
    "logit_scale": "output_multiplier_scale",
    **{f"{name}_logit_softcapping": f"{name}_logit_softcapping" for name in ("router", "final")},
}
BAILING: hf.Names = {
    **hf.PRE_NORMS,
    "attn_output": "attention.dense",
    **hf.GLU,
    **hf.QWEN_EXPERTS,
    **hf.SHARED_EXPERTS,
}
BAILING_2: hf.Names = {
    "attn_qkv": "attention.query_key_value",
    "attn_q_norm": "attention.query_layernorm",
    "attn_k_norm": "attention.key_layernorm",
    "exp_probs_b.bias": "mlp.gate.expert_bias",
}
BAILING_OUTER: hf.Names = {**hf.OUTER, "token_embd": "model.word_embeddings"}
BAILING_COUNTS: hf.Names = {
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_shared_count": "num_shared_experts",
}
BAILING_REFUSED: hf.Refused = hf.only(False, "use_bias", "use_qkv_bias", "use_sliding_window")
SMALLTHINKER_KEYS: hf.Names = {
    **hf.KEYS,
    "feed_forward_length": "moe_ffn_hidden_size",
    "expert_used_count": "moe_num_active_primary_experts",
    "expert_feed_forward_length": "moe_ffn_hidden_size",
}

ARCHS: dict[str, Arch] = {
    "deepseek": Arch(normalizes=False),
    "bailingmoe": Arch(),
    "bailingmoe2": Arch(
        rope_style="neox",
        added={"attention": HEAD_NORMS},
        optional=ROUTER_BIAS,
        splits=FUSED_QKV,
        gate="sigmoid",
    ),
    # A dense MLP as wide as the stream, beside experts that read the layer's input.
    "arctic": Arch(
        tensors={**PRE_NORMS, "ffn_norm_exps": "C"},
        added={"experts": {"ffn_gate": "CC", "ffn_up": "CC", "ffn_down": "CC"}},
        residual="early_experts",
    ),
    # Experts chosen by the layer's input; layers with a window rotate, the first of each four has neither.
    "smallthinker": Arch(
        rope_style="neox",
        act="relu",
        gate="sigmoid",
        window_pattern=4,
        is_full_first=True,
        has_global_nope=True,
        residual="early_router",
    ),
    # Grok-1. Grok-2 scales scores by the position from its `temperature_length` on.
    "grok": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        splits=GROK_NORMS,
        normalizes=False,
        softcaps=(30.0, 0.0),
        scales_embeddings=True,
        multiplies_logits=True,
        logit_scale=3**-0.5,
        reads=("attention.output_scale", "router_logit_softcapping"),
        refused={"attention.temperature_length": (0,)},
    ),
    # Pairs of experts share a smaller one (arXiv 2508.07785).
    "grovemoe": Arch(rope_style="neox", added={"attention": HEAD_NORMS, "experts": CHUNKS}),
}


def _layout(name: str) -> Callable[[Config], MetadataValue]:
    return lambda config: [flag == 1 for flag in config.counts(name, most=1)]


def _window(config: Config) -> int:
    return config.count("sliding_window_size") if any(config.counts("sliding_window_layout")) else 0


HF_ROWS: dict[str, hf.HfRow] = {
    "deepseek": hf.HfRow(
        arch="deepseek",
        names={**hf.LLAMA, **hf.QWEN_EXPERTS, **hf.SHARED_EXPERTS},
        folds=hf.PAIRS,
        counts={
            "leading_dense_block_count": "first_k_dense_replace",
            "expert_shared_count": "n_shared_experts",
        },
        defaults={"first_k_dense_replace": 0, "norm_topk_prob": False},
        refused={"scoring_func": ("softmax",), "moe_layer_freq": (1,), "attention_bias": (False,)},
    ),
    "bailing_moe": hf.HfRow(
        arch="bailingmoe",
        names={**BAILING, **dict.fromkeys(QKV, "attention.query_key_value")},
        outer=BAILING_OUTER,
        folds={"attn_q": "q_of_stack pairs_of_q", "attn_k": "k_of_stack pairs_of_k", "attn_v": "v_of_stack"},
        counts=BAILING_COUNTS,
        derived={"expert_weights_norm": lambda config: config.flag("norm_topk_prob", True)},
        defaults={"first_k_dense_replace": 0},
        refused={**BAILING_REFUSED, **hf.only(False, "norm_head", "norm_softmax", "multi_gate")},
    ),
    "bailing_moe_v2": hf.HfRow(
        arch="bailingmoe2",
        names={**BAILING, **BAILING_2},
        outer=BAILING_OUTER,
        counts={
            **BAILING_COUNTS,
            "expert_group_count": "n_group",
            "expert_group_used_count": "topk_group",
        },
        numbers={"expert_weights_scale": "routed_scaling_factor"},
        derived={**hf.SIGMOID_GATE, **hf.NORMED_PROBS},
        defaults={"first_k_dense_replace": 0, "rms_norm_eps": 1e-6, "partial_rotary_factor": 0.5},
        refused={
            **BAILING_REFUSED,
            "use_qk_norm": (True,),
            "num_nextn_predict_layers": (0,),
            "score_function": ("sigmoid",),
        },
    ),
    "arctic": hf.HfRow(
        arch="arctic",
        names={
            "attn_norm": "input_layernorm",
            "ffn_norm": "residual_layernorm",
            "ffn_norm_exps": "post_attention_layernorm",
            **hf.ATTENTION,
            "ffn_gate": "residual_mlp.w1",
            "ffn_up": "residual_mlp.w3",
            "ffn_down": "residual_mlp.w2",
            **hf.MIXTRAL_EXPERTS,
        },
        folds=hf.PAIRS,
        defaults={"parallel_attn_mlp_res": False, "moe_layer_frequency": 2, "use_residual": False},
        refused={"parallel_attn_mlp_res": (True,), "moe_layer_frequency": (1,), "use_residual": (True,)},
    ),
    "grok-1": hf.HfRow(
        arch="grok",
        names=GROK,
        outer=GROK_OUTER,
        numbers=GROK_NUMBERS,
        defaults={"attn_output_multiplier": 1.0, "max_attn_value": 30.0, "rms_norm_eps": 1e-5},
        is_tied=True,
    ),
    "smallthinker": hf.HfRow(
        arch="smallthinker",
        names={
            **hf.PRE_NORMS,
            **hf.ATTENTION,
            "ffn_gate_inp": "block_sparse_moe.primary_router",
            "ffn_gate_exps": "block_sparse_moe.experts.{e}.gate",
            "ffn_up_exps": "block_sparse_moe.experts.{e}.up",
            "ffn_down_exps": "block_sparse_moe.experts.{e}.down",
        },
        keys=SMALLTHINKER_KEYS,
        derived={
            "expert_gating_func": lambda c: 1 if c.flag("moe_primary_router_apply_softmax") else 2,
            "attention.sliding_window": _window,
            "attention.sliding_window_pattern": _layout("sliding_window_layout"),
            "rope.layers": _layout("rope_layout"),
        },
    ),
    "grove_moe": hf.HfRow(
        arch="grovemoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.HEAD_NORMS, **GROVE},
        derived={  # constants of the published class
            **hf.NORMED_PROBS,
            "expert_chunk_feed_forward_length": lambda _: 128,
            "experts_per_group": lambda _: 2,
            "expert_group_scale": lambda _: 0.05,
        },
        refused={"decoder_sparse_step": (1,), "mlp_only_layers": ([],), "use_sliding_window": (False,)},
        ignored=(".rotary_emb.inv_freq", ".mlp.expert_bias"),  # the published class does not use the bias
    ),
}
