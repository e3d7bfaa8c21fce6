"""Granite 3 and 4."""

from __future__ import annotations

from math import inf

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, GLU_NAMES, Arch

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
        arch="granite", folds=hf.PAIRS, numbers=hf.GRANITE_SCALES, defaults={"attention_multiplier": 1.0}
    ),
    "granitemoe": hf.HfRow(
        arch="granitemoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION},
        mlp_names=hf.GRANITE_MLPS,
        folds={**hf.PAIRS, **hf.HALVES},
        numbers=hf.GRANITE_SCALES,
        defaults=hf.GRANITE_MOE_DEFAULTS,
    ),
    "granitemoeshared": hf.HfRow(
        arch="granitemoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION},
        mlp_names=hf.GRANITE_MLPS,
        folds={**hf.PAIRS, **hf.HALVES},
        counts={"expert_shared_feed_forward_length": "shared_intermediate_size"},
        numbers=hf.GRANITE_SCALES,
        defaults={**hf.GRANITE_MOE_DEFAULTS, "shared_intermediate_size": 0},
    ),
    "granitemoehybrid": hf.HfRow(
        arch="granitehybrid",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.MAMBA2},
        mlp_names=hf.GRANITE_MLPS,
        folds={**hf.PAIRS, **hf.MAMBA2_FOLDS, **hf.HALVES},
        counts=hf.GRANITE_HYBRID_COUNTS,
        products={"ssm.inner_size": ("mamba_expand", "hidden_size")},
        numbers=hf.GRANITE_SCALES,
        defaults=hf.GRANITE_HYBRID_DEFAULTS,
        refused={"hidden_act": ("silu",), "mamba_proj_bias": (False,), "time_step_limit": ([0.0, inf],)},
    ),
}
