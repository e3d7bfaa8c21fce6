"""Granite 3 and 4."""

from __future__ import annotations

from collections.abc import Mapping

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, GLU_NAMES, Arch

SHARED_EXPERT: hf.Names = {
    "ffn_gate_shexp": "shared_mlp.input_linear",
    "ffn_up_shexp": "shared_mlp.input_linear",
    "ffn_down_shexp": "shared_mlp.output_linear",
}
# Granite publishes the dense MLP and the shared expert under the same names.
MLPS: Mapping[str, hf.Names] = {
    "glu": {name.removesuffix("_shexp"): inner for name, inner in SHARED_EXPERT.items()},
    "experts": {
        "ffn_gate_inp": "block_sparse_moe.router.layer",
        "ffn_gate_exps": "block_sparse_moe.input_linear",
        "ffn_up_exps": "block_sparse_moe.input_linear",
        "ffn_down_exps": "block_sparse_moe.output_linear",
        **SHARED_EXPERT,
    },
}
SCALES: hf.Names = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
HYBRID_COUNTS: hf.Names = {
    **hf.MAMBA2_COUNTS,
    "expert_shared_feed_forward_length": "shared_intermediate_size",
}
HYBRID_DEFAULTS = {
    "attention_multiplier": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024, "position_embedding_type": "nope", "mamba_n_heads": 128,
    "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip
MOE_DEFAULTS = {
    "attention_multiplier": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "granite": Arch(optional_biases=(*ATTENTION, *GLU_NAMES), has_rope_switch=True),
    "granitemoe": Arch(optional_biases=(*ATTENTION,), has_rope_switch=True),
    # Granite 4: dense, or experts with a shared expert; most have no rotation.
    "granitehybrid": Arch(
        mixers=("attention", "mamba2"),
        optional_biases=(*ATTENTION, *GLU_NAMES, "ssm_conv1d"),
        has_rope_switch=True,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "granite": hf.HfRow(
        arch="granite", folds=hf.PAIRS, numbers=SCALES, defaults={"attention_multiplier": 1.0}
    ),
    "granitemoe": hf.HfRow(
        arch="granitemoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION},
        mlp_names=MLPS,
        folds={**hf.PAIRS, **hf.HALVES},
        numbers=SCALES,
        defaults=MOE_DEFAULTS,
    ),
    "granitemoeshared": hf.HfRow(
        arch="granitemoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION},
        mlp_names=MLPS,
        folds={**hf.PAIRS, **hf.HALVES},
        counts={"expert_shared_feed_forward_length": "shared_intermediate_size"},
        numbers=SCALES,
        defaults={**MOE_DEFAULTS, "shared_intermediate_size": 0},
    ),
    "granitemoehybrid": hf.HfRow(
        arch="granitehybrid",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.MAMBA2},
        mlp_names=MLPS,
        folds={**hf.PAIRS, **hf.MAMBA2_FOLDS, **hf.HALVES},
        counts=HYBRID_COUNTS,
        products={"ssm.inner_size": ("mamba_expand", "hidden_size")},
        numbers=SCALES,
        defaults=HYBRID_DEFAULTS,
        refused={**hf.SILU, "mamba_proj_bias": (False,), **hf.unlimited("time_step_limit")},
    ),
}
