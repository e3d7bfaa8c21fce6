"""Command R and R7B: a parallel residual of one norm without bias, and scaled logits."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import QKV, Arch

ARCHS: dict[str, Arch] = {
    "command-r": Arch(
        norm_kind="layer",
        tensors={"attn_norm": "C"},
        optional={"attn_q_norm": "AD", "attn_k_norm": "kD"},
        optional_biases=(*QKV, "attn_output"),
        multiplies_logits=True,
        residual="parallel",
    ),
    "cohere2": Arch(
        norm_kind="layer",
        tensors={"attn_norm": "C"},
        optional_biases=(*QKV, "attn_output"),
        window_pattern=4,
        has_global_nope=True,
        multiplies_logits=True,
        residual="parallel",
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "cohere": hf.HfRow(
        arch="command-r",
        names={**hf.LLAMA, **hf.HEAD_NORMS},
        keys=hf.LAYER_KEYS,
        numbers={"logit_scale": "logit_scale"},
        defaults={"logit_scale": 0.0625, "max_position_embeddings": 8192, "rope_theta": 500000.0},
        is_tied=True,
    ),
    "cohere2": hf.HfRow(
        arch="cohere2",
        keys=hf.LAYER_KEYS,
        numbers={"logit_scale": "logit_scale"},
        defaults={"logit_scale": 0.0625, "max_position_embeddings": 8192, "sliding_window": 4096},
        is_tied=True,
    ),
}
