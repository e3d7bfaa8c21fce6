"""BLOOM and MPT: a bias by distance (ALiBi) in place of positions."""

from __future__ import annotations

from dataclasses import replace

from camelid.model import hf_rows as hf
from camelid.model.arch import GPT, OUTER, Arch

MPT_KEYS: hf.Names = {
    "embedding_length": "d_model",
    "block_count": "n_layers",
    "feed_forward_length": "ffn_size",
    "attention.head_count": "n_heads",
    "attention.head_count_kv": "n_heads",
    "context_length": "max_seq_len",
    "norm_eps": "layer_norm_epsilon",
    "hidden_activation": "activation",
}
MPT_REFUSED: hf.Refused = {
    "attn_config.alibi": (True,), "attn_config.attn_type": ("multihead_attention",),
    "attn_config.prefix_lm": (False,), "attn_config.qk_ln": (False,),
    "expansion_ratio": (4,), "logit_scale": (), "no_bias": (True,),
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "bloom": replace(
        GPT,
        outer={**OUTER, "token_embd_norm": "C"},
        biases=("token_embd_norm", *GPT.biases),
        max_alibi_bias=8.0,  # llama.cpp's converter writes no key
    ),
    "mpt": replace(GPT, act="gelu_erf", biases=(), optional_biases=GPT.biases),
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
        outer=hf.outer("transformer.wte", "transformer.norm_f"),
        layer="transformer.blocks.{i}.",
        keys=MPT_KEYS,
        numbers={
            "attention.max_alibi_bias": "attn_config.alibi_bias_max",
            "attention.scale": "attn_config.softmax_scale",
            "attention.clamp_kqv": "attn_config.clip_qkv",
        },
        sections=("attn_config",),
        defaults={"max_seq_len": 2048, "attn_config.alibi_bias_max": 8},
        refused=MPT_REFUSED,
        is_tied=True,
    ),
    "bloom": hf.HfRow(
        arch="bloom",
        names={**hf.PRE_NORMS, **hf.neox_names("self_attention")},
        outer={
            **hf.outer("transformer.word_embeddings", "transformer.ln_f"),
            "token_embd_norm": "transformer.word_embeddings_layernorm",
        },
        layer="transformer.h.{i}.",
        folds=hf.QKV_OF_GROUPS,
        keys={**hf.GPT2_KEYS, "embedding_length": "hidden_size", "context_length": "seq_length"},
        aliases={"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
        defaults={"seq_length": 2048},
        refused={"apply_residual_connection_post_layernorm": (False,)},
        is_tied=True,
    ),
}
