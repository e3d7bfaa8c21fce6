"""LFM2: gated short convolutions beside attention."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import HEAD_NORMS, MIXER_TENSORS, ROUTER_BIAS, Arch

LFM2 = Arch(
    rope_style="neox",
    mixers=("attention", "shortconv"),
    added={"attention": HEAD_NORMS},
    optional_biases=tuple(MIXER_TENSORS["shortconv"]),
    splits={"token_embd_norm": (("output_norm", "C"),)},  # llama.cpp's name of the last norm
)
ARCHS: dict[str, Arch] = {
    "lfm2": LFM2,
    "lfm2moe": replace(LFM2, gate="sigmoid", optional=ROUTER_BIAS),
}

NAMES: hf.Names = {
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    **hf.ATTENTION,
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": "conv.conv",
    "shortconv.out_proj": "conv.out_proj",
}
DENSE: hf.Names = {
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
}
OUTER: hf.Names = {
    "token_embd": "model.embed_tokens",
    "token_embd_norm": "model.embedding_norm",
    "output": "lm_head",
}


def _layer_types(config: Config, n_layers: int) -> list[str]:
    """By layer_types, else by the indices of the attention layers; all layers are if neither is stated."""
    if config.has("layer_types") or not config.has("full_attn_idxs"):
        return config.texts("layer_types") or ["full_attention"] * n_layers
    full = {*config.counts("full_attn_idxs")}
    return ["full_attention" if i in full else "conv" for i in range(n_layers)]


def _ffn_size(config: Config) -> int:
    """The width of the MLP: of the stated one, two thirds times a factor, rounded up."""
    size = config.count("block_ff_dim", config.count("intermediate_size"))
    if not config.flag("block_auto_adjust_ff_dim", True):
        return size
    multiple = config.count("block_multiple_of", 256)
    return multiple * ceil(int(config.number("block_ffn_dim_multiplier", 1.0) * int(2 * size / 3)) / multiple)


HF_ROWS: dict[str, hf.HfRow] = {
    "lfm2": hf.HfRow(
        arch="lfm2",
        names={**NAMES, **DENSE},
        outer=OUTER,
        folds={"conv": "squeeze"},
        keys={**hf.KEYS, "norm_eps": "norm_eps"},
        counts={"shortconv.l_cache": "conv_L_cache"},
        derived={"feed_forward_length": _ffn_size},
        layer_types=_layer_types,
        defaults={
            "num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1e6, "conv_L_cache": 3,
            "intermediate_size": 12288,
        },
        refused={"tie_embedding": (True,)},
        is_tied=True,
    ),
    "lfm2_moe": hf.HfRow(
        arch="lfm2moe",
        names={
            **NAMES,
            **DENSE,
            "ffn_gate_inp": "feed_forward.gate",
            "exp_probs_b.bias": "feed_forward.expert_bias",
            "ffn_gate_exps": "feed_forward.experts.{e}.w1",
            "ffn_up_exps": "feed_forward.experts.{e}.w3",
            "ffn_down_exps": "feed_forward.experts.{e}.w2",
        },
        outer=OUTER,
        folds={"conv": "squeeze"},
        keys={**hf.KEYS, "norm_eps": "norm_eps"},
        numbers={"expert_weights_scale": "routed_scaling_factor"},
        counts={"shortconv.l_cache": "conv_L_cache", "leading_dense_block_count": "num_dense_layers"},
        derived=hf.SIGMOID_GATE,
        defaults={
            "num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1e6, "conv_L_cache": 3,
            "intermediate_size": 7168, "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2,
            "moe_intermediate_size": 1792,
        },
        is_tied=True,
    ),
}  # fmt: skip
