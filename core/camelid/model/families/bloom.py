"""BLOOM and MPT: a bias by distance (ALiBi) in place of positions."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, FUSED_QKV, OUTER, PRE_NORMS, Arch

ARCHS: dict[str, Arch] = {
    "bloom": Arch(
        rope_style="",
        norm_kind="layer",
        mlp="mlp",
        act="gelu",
        outer={**OUTER, "token_embd_norm": "C"},
        biases=("token_embd_norm", *PRE_NORMS, *ATTENTION, "ffn_up", "ffn_down", "output_norm"),
        splits=FUSED_QKV,
        max_alibi_bias=8.0,  # llama.cpp's converter writes no key
    ),
    "mpt": Arch(
        rope_style="",
        norm_kind="layer",
        mlp="mlp",
        act="gelu_erf",
        optional_biases=(*PRE_NORMS, *ATTENTION, "ffn_up", "ffn_down", "output_norm"),
        splits=FUSED_QKV,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "mpt": hf.HfRow(
        arch="mpt",
        names={
            "attn_norm": "norm_1",
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.out_proj",
            "ffn_norm": "norm_2",
            "ffn_up": "ffn.up_proj",
            "ffn_down": "ffn.down_proj",
        },
        outer={"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
        layer="transformer.blocks.{i}.",
        keys=hf.MPT_KEYS,
        numbers={
            "attention.max_alibi_bias": "attn_config.alibi_bias_max",
            "attention.scale": "attn_config.softmax_scale",
        },
        sections=("attn_config",),
        defaults={"max_seq_len": 2048, "attn_config.alibi_bias_max": 8},
        refused={
            "attn_config.alibi": (True,),
            "attn_config.attn_type": ("multihead_attention",),
            "attn_config.clip_qkv": (),
            "attn_config.prefix_lm": (False,),
            "attn_config.qk_ln": (False,),
            "expansion_ratio": (4,),
            "logit_scale": (),
            "no_bias": (True,),
        },
        is_tied=True,
    ),
    "bloom": hf.HfRow(
        arch="bloom",
        names={
            **hf.PRE_NORMS,
            "attn_qkv": "self_attention.query_key_value",
            "attn_output": "self_attention.dense",
            "ffn_up": "mlp.dense_h_to_4h",
            "ffn_down": "mlp.dense_4h_to_h",
        },
        outer={
            "token_embd": "transformer.word_embeddings",
            "token_embd_norm": "transformer.word_embeddings_layernorm",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layer="transformer.h.{i}.",
        folds=hf.QKV_OF_GROUPS,
        keys={
            **hf.GPT2_KEYS,
            "embedding_length": "hidden_size",
            "context_length": "seq_length",
        },
        aliases={"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
        defaults={"seq_length": 2048},
        refused={"apply_residual_connection_post_layernorm": (False,)},
        is_tied=True,
    ),
}
