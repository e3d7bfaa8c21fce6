"""Phi 3 and 4."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import FUSED_GATE_UP, FUSED_QKV, Arch

ARCHS: dict[str, Arch] = {
    "phi3": Arch(rope_style="neox", splits={**FUSED_QKV, **FUSED_GATE_UP}),
}

HF_ROWS: dict[str, hf.HfRow] = {
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
}
