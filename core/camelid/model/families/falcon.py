"""Falcon: a parallel residual, and few key/value heads; its RW models use ALiBi."""

from __future__ import annotations

from dataclasses import replace

from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, GPT, PLAIN_MLP, Arch

ARCHS: dict[str, Arch] = {
    # Two norms per layer in Falcon 40B (attn_norm_2 before attention) and in RW models (ffn_norm).
    "falcon": replace(
        GPT,
        rope_style="neox",
        act="gelu_erf",
        tensors={"attn_norm": "C"},
        optional={"attn_norm_2": "C", "ffn_norm": "C"},
        biases=("attn_norm", "output_norm"),
        optional_biases=("attn_norm_2", "ffn_norm", *ATTENTION, *PLAIN_MLP),
        scales_alibi=True,
        residual="parallel",
    ),
}


def _norms(config: Config) -> hf.Names:
    if not config.flag("parallel_attn", True):
        return hf.PRE_NORMS
    has_two = config.flag("new_decoder_architecture", False)
    if has_two and config.count("num_ln_in_parallel_attn", 2) == 2:
        return {"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}
    return {"attn_norm": "input_layernorm"}


KEYS: hf.Names = {
    **hf.KEYS, "feed_forward_length": "ffn_hidden_size", "attention.head_count_kv": "num_kv_heads",
    "norm_eps": "layer_norm_epsilon", "hidden_activation": "activation",
}  # fmt: skip
HF_ROWS: dict[str, hf.HfRow] = {
    "falcon": hf.HfRow(
        arch="falcon",
        names=hf.neox_names("self_attention"),
        named_by=_norms,
        outer=hf.outer("transformer.word_embeddings", "transformer.ln_f"),
        layer="transformer.h.{i}.",
        folds=hf.QKV_OF_GROUPS,
        keys=KEYS,
        derived={
            "use_parallel_residual": lambda config: config.flag("parallel_attn", True),
            "attention.max_alibi_bias": lambda config: 8.0 if config.flag("alibi", False) else 0.0,
        },
        aliases={"n_embed": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"},
        defaults={"max_position_embeddings": 2048, "multi_query": True},
        is_tied=True,
    ),
}
