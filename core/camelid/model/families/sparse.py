"""Mixtures of experts whose layers differ from Llama's: DBRX, Llama 4."""

from __future__ import annotations

from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import FUSED_QKV, Arch
from camelid.model.families.bloom import MPT_KEYS

DBRX_KEYS: hf.Names = {
    **MPT_KEYS,
    "feed_forward_length": "ffn_config.ffn_hidden_size",
    "attention.head_count_kv": "attn_config.kv_n_heads",
    "rope.freq_base": "attn_config.rope_theta",
    "expert_used_count": "ffn_config.moe_top_k",
    "expert_feed_forward_length": "ffn_config.ffn_hidden_size",
}
LLAMA4_MLPS: hf.Names = hf.renamed(
    {**hf.GLU, **hf.QWEN_SHARED, "ffn_gate_inp": "mlp.router", **hf.FUSED_EXPERTS}, "mlp.", "feed_forward."
)
LLAMA4_KEYS: hf.Names = {
    **hf.KEYS,
    "feed_forward_length": "intermediate_size_mlp",
    "expert_feed_forward_length": "intermediate_size",
    "attention.sliding_window": "attention_chunk_size",
}
LLAMA4_DEFAULTS = {
    "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
    "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1,
    "attention_chunk_size": 8192, "floor_scale": 8192, "interleave_moe_layer_step": 1,
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "dbrx": Arch(
        rope_style="neox",
        norm_kind="layer",
        splits={**FUSED_QKV, "attn_output_norm": (("ffn_norm", "C"),)},
    ),
    # Three of four layers attend within chunks, the fourth has no rotation; a row uses one expert.
    "llama4": Arch(
        gate="sigmoid",
        normalizes=False,
        weighs_input=True,
        n_shared=1,
        window=8192,
        window_pattern=4,
        is_chunked=True,
        nope_every=4,
        nope_temperature=(0.1, 8192),
        unit_heads=True,
        plain_experts=128,
    ),
}


def _temperature(config: Config) -> float:
    is_tuned = config.values.get("attn_temperature_tuning", True)
    return config.number("attn_scale", 0.1) if is_tuned else 0.0


HF_ROWS: dict[str, hf.HfRow] = {
    "dbrx": hf.HfRow(
        arch="dbrx",
        names={
            "attn_norm": "norm_attn_norm.norm_1",
            "attn_qkv": "norm_attn_norm.attn.Wqkv",
            "attn_output": "norm_attn_norm.attn.out_proj",
            "attn_output_norm": "norm_attn_norm.norm_2",
            "ffn_gate_inp": "ffn.router.layer",
            "ffn_gate_exps.weight": "ffn.experts.mlp.w1",
            "ffn_up_exps.weight": "ffn.experts.mlp.v1",
            "ffn_down_exps.weight": "ffn.experts.mlp.w2",
        },
        outer=hf.outer("transformer.wte", "transformer.norm_f"),
        layer="transformer.blocks.{i}.",
        folds=hf.expert_folds("stack", "stack", "stack transpose_each"),
        keys=DBRX_KEYS,
        numbers={"attention.clamp_kqv": "attn_config.clip_qkv"},
        sections=("attn_config", "ffn_config"),
        derived={"expert_weights_norm": lambda c: c.has("ffn_config.moe_normalize_expert_weights")},
        defaults={"ffn_config.moe_normalize_expert_weights": 1.0},
        refused={
            "ffn_config.ffn_act_fn": ({"name": "silu"},),
            "ffn_config.moe_normalize_expert_weights": (1.0,),
        },
    ),
    "llama4_text": hf.HfRow(
        arch="llama4",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **LLAMA4_MLPS},
        folds=hf.expert_folds("left_half transpose_each", "right_half transpose_each", "transpose_each"),
        keys=LLAMA4_KEYS,
        counts={
            "interleave_moe_layer_step": "interleave_moe_layer_step",
            "attention.temperature_length": "floor_scale",
        },
        derived={
            "attention.temperature_scale": _temperature,
            "use_qk_norm": lambda c: c.flag("use_qk_norm", True),
        },
        defaults=LLAMA4_DEFAULTS,
        refused={"attention_bias": (False,), "moe_layers": ()},
    ),
}
