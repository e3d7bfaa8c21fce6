"""GPT-J and GPT-NeoX (Pythia): parallel residuals and partial rotations."""

from __future__ import annotations

from dataclasses import replace

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, GPT, PLAIN_MLP, PRE_NORMS, Arch

ARCHS: dict[str, Arch] = {
    "gptj": Arch(
        norm_kind="layer",
        mlp="mlp",
        act="gelu",
        tensors={"attn_norm": "C"},
        biases=("attn_norm", *PLAIN_MLP, "output_norm"),
        optional_biases=("output",),
        residual="parallel",
    ),
    "gptneox": replace(
        GPT,
        rope_style="neox",
        act="gelu_erf",
        biases=(*PRE_NORMS, *PLAIN_MLP, "output_norm"),
        optional_biases=tuple(ATTENTION),
        residual="parallel",
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "gptj": hf.HfRow(
        arch="gptj",
        names={
            "attn_norm": "ln_1",
            "attn_q": "attn.q_proj",
            "attn_k": "attn.k_proj",
            "attn_v": "attn.v_proj",
            "attn_output": "attn.out_proj",
            "ffn_up": "mlp.fc_in",
            "ffn_down": "mlp.fc_out",
        },
        outer=hf.GPT_OUTER,
        layer="transformer.h.{i}.",
        keys=hf.GPT2_KEYS,
        defaults={"n_positions": 2048, "rotary_dim": 64},
        ignored=("attn.bias", "attn.masked_bias"),
    ),
    "gpt_neox": hf.HfRow(
        arch="gptneox",
        names={**hf.PRE_NORMS, **hf.neox_names("attention")},
        outer=hf.outer("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"),
        layer="gpt_neox.layers.{i}.",
        folds=hf.QKV_OF_GROUPS,
        keys={**hf.LAYER_KEYS, "rope.freq_base": "rotary_emb_base"},
        derived=hf.PARALLEL,
        aliases={"rotary_pct": "partial_rotary_factor"},
        defaults={
            "max_position_embeddings": 2048,
            "partial_rotary_factor": 0.25,
            "use_parallel_residual": True,
        },
        ignored=("attention.bias", "attention.masked_bias", ".rotary_emb.inv_freq"),
    ),
}
