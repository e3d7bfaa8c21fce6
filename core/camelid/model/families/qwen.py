"""Qwen 2 and 3, dense, with experts, and the hybrid of Qwen3-Next."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import BETA_ALPHA, GATED_Q, HEAD_NORMS, QKV, Arch

ARCHS: dict[str, Arch] = {
    "qwen2": Arch(rope_style="neox", biases=QKV),
    "qwen3": Arch(rope_style="neox", added={"attention": HEAD_NORMS}),
    "qwen3moe": Arch(rope_style="neox", added={"attention": HEAD_NORMS}),
    "qwen2moe": Arch(
        rope_style="neox",
        biases=QKV,
        normalizes=False,
        added={"experts": {"ffn_gate_inp_shexp": "1C"}},
    ),
    # Qwen3-Next: three layers of gated DeltaNet, then one of gated attention; experts in every layer.
    "qwen3next": Arch(
        rope_style="neox",
        mixers=("attention", "delta"),
        added={
            "attention": {**HEAD_NORMS, "attn_gate": "QC"},
            "experts": {"ffn_gate_inp_shexp": "1C"},
        },
        splits={"post_attention_norm": (("ffn_norm", "C"),), **GATED_Q, **BETA_ALPHA},
        interleaved={"attn_q": "A", "ssm_ba": "B"},
        full_attention_interval=4,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "qwen2": hf.HfRow(arch="qwen2", defaults=hf.QWEN_DEFAULTS, has_window_switch=True),
    "qwen3": hf.HfRow(
        arch="qwen3",
        names={**hf.LLAMA, **hf.HEAD_NORMS},
        defaults={**hf.QWEN_DEFAULTS, "head_dim": 128},
        has_window_switch=True,
    ),
    "qwen3_moe": hf.HfRow(
        arch="qwen3moe",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.HEAD_NORMS, **hf.QWEN_EXPERTS},
        defaults={"num_key_value_heads": 4, "norm_topk_prob": False, "sliding_window": 4096},
        refused={"decoder_sparse_step": (1,), "mlp_only_layers": ([],), "use_sliding_window": (False,)},
        has_window_switch=True,
    ),
    "qwen2_moe": hf.HfRow(
        arch="qwen2moe",
        names={**hf.LLAMA, **hf.QWEN_EXPERTS, **hf.QWEN_SHARED},
        counts={"expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
        defaults={
            "num_key_value_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
        },
        refused={"use_sliding_window": (False,), "qkv_bias": (True,)},
        has_window_switch=True,
    ),
    "qwen3_next": hf.HfRow(
        arch="qwen3next",
        names=hf.QWEN_NEXT,
        folds=hf.QWEN_NEXT_FOLDS,
        counts=hf.QWEN_NEXT_COUNTS,
        products={"ssm.inner_size": ("linear_num_value_heads", "linear_value_head_dim")},
        defaults=hf.QWEN_NEXT_DEFAULTS,
        refused={"decoder_sparse_step": (1,), "mlp_only_layers": ([],), "hidden_act": ("silu",)},
        ignored=(".rotary_emb.inv_freq", "mtp."),
    ),
}
