"""Phi 2 to 4, Phi 3.5 MoE."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, FUSED_GATE_UP, FUSED_QKV, PLAIN_MLP, PRE_NORMS, Arch

PHIMOE_DEFAULTS = {
    "num_local_experts": 16, "num_experts_per_tok": 2, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "phi2": Arch(
        rope_style="neox",
        norm_kind="layer",
        mlp="mlp",
        act="gelu",
        tensors={"attn_norm": "C"},
        biases=("attn_norm", *ATTENTION, *PLAIN_MLP, "output_norm"),
        optional_biases=("output",),
        splits=FUSED_QKV,
        residual="parallel",
    ),
    # Sparse mixer (arXiv 2409.12136): an expert's prob is a softmax over the experts of near scores.
    "phimoe": Arch(
        rope_style="neox",
        norm_kind="layer",
        gate="sparsemixer",
        normalizes=False,
        biases=(*PRE_NORMS, "output_norm"),
        optional_biases=(*ATTENTION, "output"),
    ),
    "phi3": Arch(rope_style="neox", splits={**FUSED_QKV, **FUSED_GATE_UP}),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "phi": hf.HfRow(
        arch="phi2",
        names={
            "attn_norm": "input_layernorm",
            **hf.ATTENTION,
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        },
        outer=hf.FINAL_OUTER,
        keys=hf.LAYER_KEYS,
        defaults={"max_position_embeddings": 2048, "partial_rotary_factor": 0.5},
        refused={"qk_layernorm": (False,)},
    ),
    "phi3": hf.HfRow(
        arch="phi3",
        names={
            **hf.PRE_NORMS,
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
        },
        defaults={"rms_norm_eps": 1e-5},
    ),
    "phimoe": hf.HfRow(
        arch="phimoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.MIXTRAL_EXPERTS},
        defaults=PHIMOE_DEFAULTS,
        refused={"router_jitter_noise": (0.01,), "num_experts_per_tok": (2,)},
    ),
}
