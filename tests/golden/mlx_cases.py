"""The directories of mlx/: a golden model of archs/, quantized and saved by mlx-lm."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

BITS, GROUPS, DTYPES = (2, 3, 4, 5, 6, 8), (32, 64, 128), ("bf16", "f16", "f32")
MODES = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


# Widths of 128, for groups of 128.
WIDE: dict[str, Any] = {
    "config": {"hidden_size": 128, "intermediate_size": 128, "vocab_size": 128},
    "sizes": {64: 128, 96: 128, 32: 64},
}
# mlx-lm normalizes all groups of a state-space mixer together, and bounds its time steps.
ONE_GROUP: dict[str, Any] = {
    "config": {"mamba_n_groups": 1, "time_step_limit": [0.0, inf]},
    "sizes": {192: 160, 328: 296},
    "within": "mamba.",
}

# mlx-lm takes the width of a dense MLP from another key than transformers.
ONE_WIDTH: dict[str, Any] = {"intermediate_size": 64, "time_step_limit": [0.0, inf]}


@dataclass(frozen=True, slots=True, kw_only=True)
class MlxCase:
    """A model of archs/ as mlx-lm quantizes it.

    `others` are the settings of matrices by the end of their path; None leaves a matrix unquantized. `config`
    replaces keys of config.json, `sizes` dimensions of tensors whose names contain `within`. `most_tokens`
    cuts the sequences to the window, where mlx-lm has none for the family.
    """

    name: str
    arch: str
    dtype: str = "bf16"
    mode: str = "affine"
    bits: int = 4
    group: int = 32
    others: dict[str, dict[str, Any] | None] = field(default_factory=dict[str, "dict[str, Any] | None"])
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    within: str = ""
    most_tokens: int = 128


# Committed: every mode, settings of single matrices, every family that mlx-lm stores in a form of its own.
COMMITTED = (
    MlxCase(
        name="affine",
        arch="llama31",
        others={
            "v_proj": {"group_size": 64, "bits": 8},
            "o_proj": {"group_size": 32, "bits": 5},
            "up_proj": {"group_size": 64, "bits": 3},
            "gate_proj": {"group_size": 32, "bits": 2},
            "down_proj": {"group_size": 32, "bits": 6},
            "lm_head": None,
        },
    ),
    MlxCase(name="mxfp4", arch="qwen3", mode="mxfp4"),
    MlxCase(name="mxfp8", arch="qwen2", mode="mxfp8", bits=8),
    MlxCase(name="nvfp4", arch="gemma2", mode="nvfp4", group=16, most_tokens=8),
    MlxCase(name="f32", arch="mistral", dtype="f32", most_tokens=12),
    MlxCase(name="gpt2", arch="gpt2_bare_names", dtype="f16"),
    MlxCase(name="mixtral", arch="mixtral"),
    MlxCase(name="qwen3_moe", arch="qwen3_moe"),
    MlxCase(name="qwen3_next", arch="qwen3_next"),
    MlxCase(name="granitemoe", arch="granitemoe"),
    MlxCase(name="lfm2_moe", arch="lfm2_moe"),
    MlxCase(name="granitemoehybrid", arch="granitemoehybrid", **ONE_GROUP),
    MlxCase(name="granitemoehybrid_dense", arch="granitemoehybrid_dense", config=ONE_WIDTH),
)
# Of every other family: made and compared by `make goldens` alone.
FAMILIES = (
    MlxCase(name="gemma3", arch="gemma3"),
    MlxCase(name="granite", arch="granite"),
    MlxCase(name="llama", arch="llama_bias", bits=5),
    MlxCase(name="olmo2", arch="olmo2"),
    MlxCase(name="olmo3", arch="olmo3", bits=8, config={"rope_theta": 10000.0, "rope_parameters": None}),
    MlxCase(name="phi3", arch="phi3_partial"),
    MlxCase(name="qwen3", arch="qwen3", bits=6),
    MlxCase(name="smollm3", arch="smollm3"),
    MlxCase(name="stablelm", arch="stablelm"),
    MlxCase(name="starcoder2", arch="starcoder2", most_tokens=12, config={"hidden_act": "gelu"}),
)
COMBINATIONS = (
    *(
        MlxCase(
            name=f"b{bits}-g{group}-{dtype}",
            arch="llama_linear",
            dtype=dtype,
            bits=bits,
            group=group,
            **WIDE,
        )
        for bits in BITS
        for group in GROUPS
        for dtype in DTYPES
    ),
    *(
        MlxCase(name=mode, arch="llama_linear", mode=mode, bits=bits, group=group, **WIDE)
        for mode, (group, bits) in MODES.items()
    ),
)
