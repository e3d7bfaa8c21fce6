"""Mamba 1 and 2, and their hybrids with attention: Jamba, Falcon-H1, Nemotron-H."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, prod

from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import FUSED_GATE_UP, FUSED_QKV, PLAIN_MLP, POST_NORMS, PRE_NORMS, Arch, Shapes

SSM_BIASES = ("ssm_in", "ssm_conv1d", "ssm_out")
LATENTS = ("ffn_latent_down", "ffn_latent_up")
SHARED_MLP = ("ffn_up_shexp", "ffn_down_shexp")
LATENT_EXPERTS: Shapes = {
    "exp_probs_b.bias": "E", "ffn_up_exps": "EXo", "ffn_down_exps": "EoX", "ffn_latent_down": "eC",
    "ffn_latent_up": "Ce",
}  # fmt: skip
# Each layer is mamba2, attention without rotation or an MLP.
NEMOTRON_H = Arch(
    rope_style="",
    tensors={"attn_norm": "C"},
    mixers=("attention", "mamba2"),
    mlp="mlp",
    act="relu2",
    optional_biases=(*SSM_BIASES, *PLAIN_MLP),
    residual="single",
)
ARCHS: dict[str, Arch] = {
    "mamba": Arch(
        rope_style="",
        tensors={"attn_norm": "C"},
        mixers=("mamba",),
        mlp="",
        biases=("ssm_dt",),
        optional_biases=SSM_BIASES,
        residual="single",
    ),
    # Layers with attention or mamba, with experts or dense.
    "jamba": Arch(
        rope_style="",
        mixers=("attention", "mamba"),
        added={"mamba": {"ssm_dt_norm": "r", "ssm_b_norm": "s", "ssm_c_norm": "s"}},
        biases=("ssm_dt",),
        optional_biases=SSM_BIASES,
        normalizes=False,
    ),
    "mamba2": Arch(
        rope_style="",
        tensors={"attn_norm": "C"},
        mixers=("mamba2",),
        mlp="",
        optional_biases=SSM_BIASES,
        residual="single",
    ),
    "falcon-h1": Arch(
        rope_style="neox",
        mixers=("attention_mamba2",),
        optional={"ssm_norm": "GN"},
        no_ending=("ffn_norm",),
        optional_biases=("ssm_conv1d",),
    ),
    "plamo2": Arch(
        rope_style="neox",
        mixers=("attention", "mamba_heads"),
        tensors={**PRE_NORMS, **POST_NORMS},
        added={"attention": {"attn_q_norm": "AD", "attn_k_norm": "kD"}},
        biases=("ssm_dt",),
        no_ending=("post_attention_norm", "post_ffw_norm", "ssm_dt_norm", "ssm_b_norm", "ssm_c_norm"),
        splits={**FUSED_QKV, **FUSED_GATE_UP, "ssm_in": (("ssm_z", "I"), ("ssm_in", "I"))},
        interleaved={"ssm_in": "H"},
    ),
    "nemotron_h": NEMOTRON_H,
    # Layers of experts, of which one runs for every row; Nemotron 3 Super has a latent.
    "nemotron_h_moe": replace(
        NEMOTRON_H,
        gate="sigmoid",
        added={"experts": LATENT_EXPERTS},
        optional_biases=(*NEMOTRON_H.optional_biases, *SHARED_MLP, *LATENTS),
    ),
}

OUTER: hf.Names = hf.outer("backbone.embeddings", "backbone.norm_f")
MIXER: hf.Names = hf.renamed(hf.MAMBA2, "mamba.", "mixer.")
MAMBA1: hf.Names = {
    "ssm_in": "mamba.in_proj", "ssm_conv1d": "mamba.conv1d", "ssm_x": "mamba.x_proj",
    "ssm_dt": "mamba.dt_proj", "ssm_a": "mamba.A_log", "ssm_d": "mamba.D", "ssm_out": "mamba.out_proj",
}  # fmt: skip
MAMBA1_FOLDS: hf.Names = {"ssm_conv1d": "squeeze", "ssm_a": "decay"}
KEYS: hf.Names = {**hf.KEYS, "norm_eps": "layer_norm_epsilon"}
COUNTS: hf.Names = {"ssm.conv_kernel": "conv_kernel", "ssm.group_count": "n_groups"}
KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}  # letters of hybrid_override_pattern


def _factor(*keys: str) -> Callable[[Config, int], hf.Runs]:
    """All rows times the product of these numbers; a key with a dot is an index in a list."""
    return lambda config, rows: [(rows, prod(_number(config, key) for key in keys))]


def _number(config: Config, key: str) -> float:
    name, dot, index = key.partition(".")
    if not dot:
        return config.number(name, 1.0)
    values = config.get_list(name)
    item = Config({name: values[int(index)] if len(values) > int(index) else None}, config.path)
    return item.number(name) if values else 1.0


def _in_proj(config: Config, _rows: int) -> hf.Runs:
    """Factors of the rows of z, x, B, C and dt, which follow each other."""
    inner = config.count("mamba_d_ssm")
    bc, n_heads = (
        config.count("mamba_n_groups") * config.count("mamba_d_state"),
        config.count("mamba_n_heads"),
    )
    whole = config.number("ssm_in_multiplier", 1.0)
    sizes = (inner, inner, bc, bc, n_heads)
    return [(n, whole * _number(config, f"ssm_multipliers.{i}")) for i, n in enumerate(sizes)]


# muP's multipliers, which Falcon-H1 publishes beside its matrices.
FALCON_H1_SCALES = {
    "token_embd": _factor("embedding_multiplier"),
    "attn_q": _factor("attention_in_multiplier"),
    "attn_k": _factor("attention_in_multiplier", "key_multiplier"),
    "attn_v": _factor("attention_in_multiplier"),
    "attn_output": _factor("attention_out_multiplier"),
    "ssm_in": _in_proj,
    "ssm_out": _factor("ssm_out_multiplier"),
    "ffn_gate": _factor("mlp_multipliers.0"),
    "ffn_down": _factor("mlp_multipliers.1"),
    "output": _factor("lm_head_multiplier"),
}


def _rank(key: str) -> Callable[[Config], int]:
    """The rank of the time steps: a number, or a sixteenth of the width for `auto`."""
    return lambda config: (
        ceil(config.count("hidden_size") / 16)
        if config.values.get(key, "auto") == "auto"
        else config.count(key)
    )


# Layers are a mixer alone.
ALL_MIXERS: hf.Derived = {"attention.head_count": lambda _: 0, "feed_forward_length": lambda _: 0}


def _has_bare_norms(_config: Config) -> bool:
    """Falcon Mamba norms time steps, B and C."""
    return True


def _jamba_types(config: Config, n_layers: int) -> list[str]:
    period, offset = config.count("attn_layer_period"), config.count("attn_layer_offset", least=0)
    return ["attention" if i % period == offset else "mamba" for i in range(n_layers)]


def _layer_types(config: Config, _n_layers: int) -> list[str]:
    """The kind of each layer, by name or as a letter of hybrid_override_pattern."""
    if config.has("layers_block_type"):
        return config.texts("layers_block_type")
    return [KINDS.get(letter, letter) for letter in config.text("hybrid_override_pattern")]


def _mlp_widths(config: Config) -> list[int]:
    """The width of the MLP or of an expert in layers that are one or have them, 0 in the others."""
    kinds, keys = _layer_types(config, 0), {"mlp": "intermediate_size", "moe": "moe_intermediate_size"}
    widths = {kind: config.count(key) for kind, key in keys.items() if kind in kinds}
    return [widths.get(kind, 0) for kind in kinds]


def _latent_size(config: Config) -> int:
    return config.count("moe_latent_size", 0, least=0)


def _plamo2_types(config: Config, n_layers: int) -> list[str]:
    """The kind of each layer: attention in the middle of each `mamba_step` layers."""
    step = config.count("mamba_step", least=2)
    if n_layers <= step // 2:
        return ["mamba"] * (n_layers - 1) + ["attention"]
    return ["attention" if i % step == step // 2 else "mamba" for i in range(n_layers)]


def has_experts(config: Config) -> bool:
    """True for a Nemotron-H with layers of experts."""
    return "moe" in _layer_types(config, 0)


NEMOTRON_H_ROW = hf.HfRow(
    arch="nemotron_h",
    names={
        "attn_norm": "norm",
        **MIXER,
        **hf.renamed(hf.ATTENTION, "self_attn.", "mixer."),
        "ffn_up": "mixer.up_proj",
        "ffn_down": "mixer.down_proj",
    },
    outer=OUTER,
    layer="backbone.layers.{i}.",
    folds=hf.MAMBA2_FOLDS,
    keys={**KEYS, "hidden_activation": "mlp_hidden_act"},
    counts={**COUNTS, "ssm.state_size": "ssm_state_size", "ssm.time_step_rank": "mamba_num_heads"},
    products={"ssm.inner_size": ("mamba_num_heads", "mamba_head_dim")},
    numbers={"attention.layer_norm_epsilon": "layer_norm_epsilon"},  # read by llama.cpp
    derived={"feed_forward_length": _mlp_widths},
    layer_types=_layer_types,
    defaults={
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504, "ssm_state_size": 128,
        "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4,
        "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2", "max_position_embeddings": 4096,
    },
    refused={**hf.unlimited("time_step_limit", "mamba_dt_limit"), "mamba_hidden_act": ("silu",),
             "num_nextn_predict_layers": (0,)},
)  # fmt: skip
NEMOTRON_EXPERTS: hf.Names = {
    "ffn_gate_inp": "mixer.gate",
    "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
    "ffn_up_exps": "mixer.experts.{e}.up_proj",
    "ffn_down_exps": "mixer.experts.{e}.down_proj",
    "ffn_up_shexp": "mixer.shared_experts.up_proj",
    "ffn_down_shexp": "mixer.shared_experts.down_proj",
    "ffn_latent_down": "mixer.fc1_latent_proj",
    "ffn_latent_up": "mixer.fc2_latent_proj",
}
NEMOTRON_MOE_DEFAULTS = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
}  # fmt: skip
NEMOTRON_COUNTS: hf.Names = {
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "expert_shared_count": "n_shared_experts",
    "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
}
PLAMO2: hf.Names = {
    "attn_norm": "pre_mixer_norm",
    "post_attention_norm": "post_mixer_norm.weight",  # without an ending of its own
    "ffn_norm": "pre_mlp_norm",
    "post_ffw_norm": "post_mlp_norm.weight",
    "attn_qkv": "mixer.qkv_proj",
    "attn_q_norm.weight": "mixer.q_weight",
    "attn_k_norm.weight": "mixer.k_weight",
    "attn_output": "mixer.o_proj",
    **{name: inner.replace("mamba.", "mixer.") for name, inner in MAMBA1.items()},
    "ssm_x": "mixer.bcdt_proj",
    "ssm_dt.bias": "mixer.dt_bias",
    "ssm_dt_norm": "mixer.dt_norm_weight",
    "ssm_b_norm": "mixer.B_norm_weight",
    "ssm_c_norm": "mixer.C_norm_weight",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
PLAMO2_FOLDS: hf.Names = {
    **MAMBA1_FOLDS, **dict.fromkeys(("attn_norm", "ffn_norm", "output_norm"), "add_one"),
    "post_attention_norm": "add_fifth", "post_ffw_norm": "add_fifth_of_root",
}  # fmt: skip
PLAMO2_DEFAULTS = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 4,
    "hidden_size_per_head": 128, "max_position_embeddings": 2048, "attention_window_size": 2048,
    "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_num_heads": 64, "mamba_step": 2,
    "intermediate_size": 13312,
}  # fmt: skip
MAMBA_ROW = hf.HfRow(
    arch="mamba",
    names={"attn_norm": "norm", **hf.renamed(MAMBA1, "mamba.", "mixer.")},
    outer=OUTER,
    layer="backbone.layers.{i}.",
    folds=MAMBA1_FOLDS,
    keys=KEYS,
    counts={"ssm.conv_kernel": "conv_kernel", "ssm.state_size": "state_size"},
    derived={
        **ALL_MIXERS,
        "ssm.inner_size": lambda config: config.count(
            "intermediate_size", config.count("expand") * config.count("hidden_size")
        ),
        "ssm.time_step_rank": _rank("time_step_rank"),
    },
    defaults={
        "hidden_size": 768, "state_size": 16, "conv_kernel": 4, "expand": 2, "layer_norm_epsilon": 1e-5,
        "num_hidden_layers": 32, "max_position_embeddings": 1 << 20,
    },
    refused=hf.SILU,
    is_tied=True,
)  # fmt: skip
HF_ROWS: dict[str, hf.HfRow] = {
    "mamba": MAMBA_ROW,
    "falcon_mamba": replace(
        MAMBA_ROW,
        numbers={"ssm.dt_b_c_rms_epsilon": "mixer_rms_eps"},
        derived={**MAMBA_ROW.derived, "ssm.dt_b_c_rms": _has_bare_norms},
        defaults={**MAMBA_ROW.defaults, "mixer_rms_eps": 1e-6},
    ),
    "jamba": hf.HfRow(
        arch="jamba",
        names={
            **hf.PRE_FF_NORMS,
            **hf.ATTENTION,
            **MAMBA1,
            **{f"ssm_{name}_norm": f"mamba.{name}_layernorm" for name in ("dt", "b", "c")},
            **hf.FEED_FORWARD,
            **hf.renamed(hf.QWEN_EXPERTS, "mlp.", "feed_forward."),
            "ffn_gate_inp": "feed_forward.router",
        },
        outer=hf.FINAL_OUTER,
        folds=MAMBA1_FOLDS,
        counts={"ssm.conv_kernel": "mamba_d_conv", "ssm.state_size": "mamba_d_state"},
        products={"ssm.inner_size": ("mamba_expand", "hidden_size")},
        derived={"ssm.time_step_rank": _rank("mamba_dt_rank")},
        layer_types=_jamba_types,
        defaults={
            "num_key_value_heads": 8, "num_experts": 16, "num_experts_per_tok": 2, "attn_layer_period": 8,
            "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
            "rms_norm_eps": 1e-6, "intermediate_size": 14336, "max_position_embeddings": 262144,
        },
        refused=hf.SILU,
    ),
    "mamba2": hf.HfRow(
        arch="mamba2",
        names={"attn_norm": "norm", **MIXER},
        outer=OUTER,
        layer="backbone.layers.{i}.",
        folds=hf.MAMBA2_FOLDS,
        keys=KEYS,
        counts={**COUNTS, "ssm.state_size": "state_size", "ssm.time_step_rank": "num_heads"},
        products={"ssm.inner_size": ("num_heads", "head_dim")},
        derived=ALL_MIXERS,
        defaults={
            "num_heads": 128, "head_dim": 64, "hidden_size": 4096, "state_size": 128, "conv_kernel": 4,
            "n_groups": 8, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 1 << 20,
            "num_hidden_layers": 64,
        },
        refused={**hf.SILU, **hf.unlimited("time_step_limit")},
    ),
    "falcon_h1": hf.HfRow(
        arch="falcon-h1",
        names={
            **hf.MAMBA2,
            **hf.ATTENTION,
            **hf.PRE_FF_NORMS,
            "ffn_norm": "pre_ff_layernorm.weight",  # without an ending of its own
            **hf.FEED_FORWARD,
        },
        outer=hf.FINAL_OUTER,
        folds={**hf.MAMBA2_FOLDS, "ssm_conv1d": "published_conv", "ssm_norm": "groups_behind_gate"},
        scales=FALCON_H1_SCALES,
        counts={**hf.MAMBA2_COUNTS, "ssm.inner_size": "mamba_d_ssm"},
        defaults={
            "num_key_value_heads": 8, "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1,
            "mamba_d_state": 256, "mamba_d_conv": 4, "rms_norm_eps": 1e-5,
        },
        refused={
            **hf.only(False, "attention_bias", "mamba_proj_bias", "mlp_bias", "projectors_bias"),
            **hf.only(False, "tie_word_embeddings"), **hf.SILU, **hf.unlimited("time_step_limit"),
        },
    ),
    "plamo2": hf.HfRow(
        arch="plamo2",
        names=PLAMO2,
        layer="model.layers.layers.{i}.",
        folds=PLAMO2_FOLDS,
        keys={
            **hf.KEYS, "attention.key_length": "hidden_size_per_head",
            "attention.sliding_window": "attention_window_size",
        },
        counts={
            "ssm.conv_kernel": "mamba_d_conv", "ssm.state_size": "mamba_d_state",
            "ssm.time_step_rank": "mamba_num_heads",
        },
        products={"ssm.inner_size": ("mamba_num_heads", "hidden_size_per_head")},
        derived={"ssm.group_count": lambda _: 0},  # read by llama.cpp
        layer_types=_plamo2_types,
        defaults=PLAMO2_DEFAULTS,
        refused={"mamba_enabled": (True,), "full_attention_idx": ([],), "rms_norm_eps": (1e-6,)},
        is_tied=True,
    ),
    "nemotron_h": NEMOTRON_H_ROW,
    "nemotron_h_moe": replace(
        NEMOTRON_H_ROW,
        arch="nemotron_h_moe",
        names={**NEMOTRON_H_ROW.names, **NEMOTRON_EXPERTS},
        counts={**NEMOTRON_H_ROW.counts, **NEMOTRON_COUNTS},
        numbers={**NEMOTRON_H_ROW.numbers, "expert_weights_scale": "routed_scaling_factor"},
        derived={
            "feed_forward_length": _mlp_widths,
            "moe_latent_size": _latent_size,
        },
        defaults={**NEMOTRON_H_ROW.defaults, **NEMOTRON_MOE_DEFAULTS},
    ),
}  # fmt: skip
