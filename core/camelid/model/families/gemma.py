"""Gemma 1 to 3."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import HEAD_NORMS, POST_NORMS, PRE_NORMS, Arch

ARCHS: dict[str, Arch] = {
    "gemma": Arch(rope_style="neox", act="gelu", scales_embeddings=True),
    "gemma2": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        window_pattern=2,
        window=4096,  # files of June 2024 state neither the window nor the two softcaps
        softcaps=(50.0, 30.0),
        scales_embeddings=True,
        wide_layers=46,
    ),
    "gemma3": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        added={"attention": HEAD_NORMS},
        window_pattern=6,
        local_theta=10000.0,
        scales_embeddings=True,
        sees_images=True,
        wide_layers=62,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "gemma": hf.HfRow(
        arch="gemma",
        folds=hf.GEMMA_FOLDS,
        acts={"gelu": "gelu"},  # early files name the tanh approximation so
        defaults={"num_key_value_heads": 16, "head_dim": 256},
        refused={"use_bidirectional_attention": (False,)},
        is_tied=True,
    ),
    "gemma2": hf.HfRow(
        arch="gemma2",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU},
        folds=hf.GEMMA_FOLDS,
        keys={**hf.KEYS, "hidden_activation": "hidden_activation"},
        numbers=hf.SOFTCAPS,
        defaults={**hf.GEMMA_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        is_tied=True,
    ),
    "gemma3_text": hf.HfRow(
        arch="gemma3",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU, **hf.HEAD_NORMS},
        folds=hf.GEMMA_FOLDS,
        keys={**hf.KEYS, "hidden_activation": "hidden_activation"},
        numbers={"final_logit_softcapping": "final_logit_softcapping"},  # transformers' only softcap
        defaults={**hf.GEMMA_DEFAULTS, **hf.GEMMA3_DEFAULTS},
        refused={"use_bidirectional_attention": (False,)},
        is_tied=True,
    ),
}
