"""gpt-oss."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, LATE_FFN_NORM, MLP_TENSORS, Arch

NAMES: hf.Names = {
    **hf.LATE_FFN_NORM,
    **hf.ATTENTION,
    "attn_sinks.weight": "self_attn.sinks",
    "ffn_gate_inp": "mlp.router",
    **hf.FUSED_EXPERTS,
    **{name.replace(".weight", ".bias"): f"{matrix}_bias" for name, matrix in hf.FUSED_EXPERTS.items()},
}
YARN = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "gpt-oss": Arch(
        rope_style="neox",
        act="swiglu_oai",
        tensors={"attn_norm": "C", "ffn_norm": "C"},
        added={"attention": {"attn_sinks": "A"}},
        biases=(*MLP_TENSORS["experts"],),
        optional_biases=(*ATTENTION,),
        splits=LATE_FFN_NORM,
        gate="topk_softmax",
        normalizes=False,
        window_pattern=2,
        rounds_ramp=False,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "gpt_oss": hf.HfRow(
        arch="gpt-oss",
        names=NAMES,
        keys={**hf.KEYS, "expert_feed_forward_length": "intermediate_size"},
        folds=hf.expert_folds("even", "odd", "transpose_each"),
        defaults={
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "rms_norm_eps": 1e-5,
            "rope_theta": 150000.0,
            "rope_scaling": YARN,
        },
        refused={**hf.SILU, "swiglu_alpha": (1.702,), "swiglu_limit": (7.0,)},
    ),
}
