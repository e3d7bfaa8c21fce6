"""Qwen 2 and 3, dense, with experts, and the hybrid of Qwen3-Next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import BETA_ALPHA, GATED_Q, HEAD_NORMS, LATE_FFN_NORM, QKV, Arch

# Qwen3-Next: three layers of gated DeltaNet, then one of gated attention; experts in every layer.
QWEN3_NEXT = Arch(
    rope_style="neox",
    mixers=("attention", "delta"),
    added={
        "attention": {**HEAD_NORMS, "attn_gate": "QC"},
        "experts": {"ffn_gate_inp_shexp": "1C"},
    },
    splits={**LATE_FFN_NORM, **GATED_Q, **BETA_ALPHA},
    interleaved={"attn_q": "A", "ssm_ba": "B"},
    full_attention_interval=4,
)
# Qwen3.5: as Qwen3-Next, dense or with experts; other names, and an order of heads that llama.cpp chose.
QWEN35 = replace(
    QWEN3_NEXT,
    splits={**LATE_FFN_NORM, **GATED_Q},
    tiles_key_heads=True,
)
QWEN_NEXT: hf.Names = {
    **hf.LATE_FFN_NORM,
    **hf.ATTENTION,
    **hf.HEAD_NORMS,
    "attn_qkv": "linear_attn.in_proj_qkvz",
    "attn_gate": "linear_attn.in_proj_qkvz",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    **hf.QWEN_EXPERTS,
    **hf.QWEN_SHARED,
}
QWEN_NEXT_FOLDS: hf.Names = {
    **dict.fromkeys(("attn_norm", "post_attention_norm", *hf.HEAD_NORMS, "output_norm"), "add_one"),
    "attn_qkv": "qkv_of_qkvz", "attn_gate": "z_of_qkvz", "ssm_conv1d": "squeeze", "ssm_a": "decay",
}  # fmt: skip
QWEN_NEXT_COUNTS: hf.Names = {
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
QWEN_NEXT_DEFAULTS = {
    "num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32,
}  # fmt: skip
QWEN3_VL = Arch(rope_style="neox", added={"attention": HEAD_NORMS}, axes="interleaved")
MAX_SECTION = 1 << 12


def mrope_sections(config: Config) -> list[int]:
    """Pairs of a head that turn by time, height and width, and by a fourth axis that no model has."""
    name = "rope_parameters" if config.has("rope_parameters") else "rope_scaling"
    return [*config.section(name).counts("mrope_section", most=MAX_SECTION), 0]


def n_deepstack(config: Config) -> int:
    """Layers that add embeddings of images, which `vision/hf.py` counts."""
    return config.count("n_deepstack_layers", 0, least=0)


MROPE: Mapping[str, Callable[[Config], MetadataValue]] = {"rope.dimension_sections": mrope_sections}

ARCHS: dict[str, Arch] = {
    "qwen2": Arch(rope_style="neox", biases=QKV),
    "qwen3": Arch(
        rope_style="neox",
        added={"attention": HEAD_NORMS},
        optional_outer={"cls.output": "LC"},
        rank_pooling="last",
    ),
    "qwen3moe": Arch(rope_style="neox", added={"attention": HEAD_NORMS}),
    "qwen2moe": Arch(
        rope_style="neox",
        biases=QKV,
        normalizes=False,
        added={"experts": {"ffn_gate_inp_shexp": "1C"}},
    ),
    # Qwen2.5-VL and Qwen3-VL: rows of images turn by time, height and width.
    "qwen2vl": Arch(rope_style="neox", biases=QKV, axes="sections"),
    "qwen3vl": QWEN3_VL,
    "qwen3vlmoe": QWEN3_VL,
    "qwen3next": QWEN3_NEXT,
    "qwen35": QWEN35,
    "qwen35moe": QWEN35,
}


def _sections(config: Config) -> list[int]:
    """Pairs that rotate by time, height and width; 0 more."""
    parameters = config.section("rope_parameters")
    rope = parameters if parameters.values else config.section("rope_scaling")
    return [*(rope.counts("mrope_section") or [11, 11, 10]), 0]


QWEN35_ROW = hf.HfRow(
    arch="qwen35",
    names={
        **{name: inner for name, inner in QWEN_NEXT.items() if name not in hf.QWEN_EXPERTS},
        "attn_qkv": "linear_attn.in_proj_qkv",
        "attn_gate": "linear_attn.in_proj_z",
        "ssm_beta": "linear_attn.in_proj_b",
        "ssm_alpha": "linear_attn.in_proj_a",
        **hf.GLU,
    },
    folds={
        **QWEN_NEXT_FOLDS,
        **dict.fromkeys(("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha", "ssm_dt"), "tiled_heads"),
        "ssm_conv1d": "published_conv tiled_heads",
        "ssm_a": "tiled_heads decay",
        "ssm_out": "tiled_columns",
    },
    counts={k: name for k, name in QWEN_NEXT_COUNTS.items() if k.startswith("ssm.")},
    products={"ssm.inner_size": ("linear_num_value_heads", "linear_value_head_dim")},
    derived={"rope.dimension_sections": _sections},
    defaults={k: value for k, value in QWEN_NEXT_DEFAULTS.items() if "expert" not in k and "moe" not in k}
    | {"num_key_value_heads": 4},
    refused=hf.SILU,
    ignored=(".rotary_emb.inv_freq", "mtp."),
)
QWEN3_VL_EXPERTS: hf.Names = {"ffn_gate_inp": "mlp.gate", **hf.FUSED_EXPERTS}
# Published stacks are [experts, in, out], those that transformers saves [experts, out, in].
QWEN3_VL_FOLDS = hf.expert_folds("outputs_first first_half", "outputs_first second_half", "outputs_first")
QWEN3_VL_MOE_DEFAULTS = {
    "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
    "rope_theta": 500000.0,
}  # fmt: skip
QWEN3_VL_ROW = hf.HfRow(
    arch="qwen3vl",
    names={**hf.LLAMA, **hf.HEAD_NORMS},
    defaults={"num_key_value_heads": 32, "head_dim": 128},
    derived={**MROPE, "n_deepstack_layers": n_deepstack},
)
HF_ROWS: dict[str, hf.HfRow] = {
    "qwen2": hf.HfRow(arch="qwen2", defaults=hf.QWEN_DEFAULTS, has_window_switch=True),
    "qwen3": hf.HfRow(
        arch="qwen3",
        names={**hf.LLAMA, **hf.HEAD_NORMS},
        ranking={"cls.output": "score"},
        defaults={**hf.QWEN_DEFAULTS, "head_dim": 128},
        has_window_switch=True,
    ),
    "qwen2_5_vl_text": hf.HfRow(
        arch="qwen2vl", defaults=hf.QWEN_DEFAULTS, derived=MROPE, has_window_switch=True
    ),
    "qwen3_vl_text": QWEN3_VL_ROW,
    "qwen3_vl_moe_text": replace(
        QWEN3_VL_ROW,
        arch="qwen3vlmoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.HEAD_NORMS, **QWEN3_VL_EXPERTS},
        folds=QWEN3_VL_FOLDS,
        defaults=QWEN3_VL_MOE_DEFAULTS,
        refused={"decoder_sparse_step": (1,), "mlp_only_layers": ([],), "norm_topk_prob": (True,)},
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
        names=QWEN_NEXT,
        folds=QWEN_NEXT_FOLDS,
        counts=QWEN_NEXT_COUNTS,
        products={"ssm.inner_size": ("linear_num_value_heads", "linear_value_head_dim")},
        defaults=QWEN_NEXT_DEFAULTS,
        refused={"decoder_sparse_step": (1,), "mlp_only_layers": ([],), **hf.SILU},
        ignored=(".rotary_emb.inv_freq", "mtp."),
    ),
    "qwen3_5_text": QWEN35_ROW,
    "qwen3_5_moe_text": replace(
        QWEN35_ROW,
        arch="qwen35moe",
        names={**QWEN35_ROW.names, **hf.QWEN_EXPERTS, **hf.QWEN_SHARED},
        counts=QWEN_NEXT_COUNTS,
        defaults={**QWEN_NEXT_DEFAULTS, "num_experts": 256, "num_experts_per_tok": 8},
    ),
}
