"""Mixtures of experts whose layers differ from Llama's: DBRX."""

from __future__ import annotations

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

ARCHS: dict[str, Arch] = {
    "dbrx": Arch(
        rope_style="neox",
        norm_kind="layer",
        splits={**FUSED_QKV, "attn_output_norm": (("ffn_norm", "C"),)},
    ),
}

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
        folds={"ffn_gate_exps": "stack", "ffn_up_exps": "stack", "ffn_down_exps": "stack transpose_each"},
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
}
