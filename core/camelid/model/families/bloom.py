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
}

HF_ROWS: dict[str, hf.HfRow] = {
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
