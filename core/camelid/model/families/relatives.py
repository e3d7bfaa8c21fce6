"""Relatives of Llama: GLM-4, ERNIE 4.5, Seed-OSS, EXAONE 4, Hunyuan, Helium, Ministral, Apertus, Jais 2."""

from __future__ import annotations

from dataclasses import replace

from camelid.model import hf_rows as hf
from camelid.model.arch import (
    ATTENTION,
    FUSED_GATE_UP,
    FUSED_QKV,
    GLU_NAMES,
    GPT,
    HEAD_NORMS,
    LATE_FFN_NORM,
    POST_NORMS,
    PRE_NORMS,
    QKV,
    Arch,
)

GLM = {
    "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5,
}  # fmt: skip
GLM_MLP: hf.Names = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
XIELU = ("alpha_p", "alpha_n", "beta", "eps")
APERTUS_DEFAULTS = {
    "num_key_value_heads": 32, "rms_norm_eps": 1e-5, "rope_theta": 12e6,
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "jais2": replace(GPT, rope_style="neox", act="relu2", splits={}),
    # xIELU (arXiv 2411.13010) between two matrices.
    "apertus": Arch(
        rope_style="neox",
        mlp="mlp",
        act="xielu",
        added={"attention": HEAD_NORMS},
        optional_biases=(*ATTENTION,),
    ),
    "glm4": Arch(
        tensors={**PRE_NORMS, **POST_NORMS}, optional_biases=QKV, splits={**FUSED_QKV, **FUSED_GATE_UP}
    ),
    "ernie4_5": Arch(optional_biases=(*ATTENTION, *GLU_NAMES)),
    "seed_oss": Arch(
        rope_style="neox",
        optional_biases=(*ATTENTION, *GLU_NAMES),
        splits=LATE_FFN_NORM,
    ),
    "mistral3": Arch(optional_biases=(*ATTENTION, *GLU_NAMES), has_temperature=True),
    # EXAONE 4 32B has windows, and no rotation in layers without one; the small models have neither.
    "exaone4": Arch(
        rope_style="neox",
        tensors=POST_NORMS,
        added={"attention": HEAD_NORMS},
        window_pattern=4,
        has_global_nope=True,
    ),
    "hunyuan-dense": Arch(
        rope_style="neox",
        added={"attention": HEAD_NORMS},
        optional_biases=tuple(ATTENTION),
        norms_rotated=True,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "glm": hf.HfRow(arch="chatglm", names={**hf.PRE_NORMS, **hf.ATTENTION, **GLM_MLP}, defaults=GLM),
    "jais2": hf.HfRow(
        arch="jais2",
        keys=hf.LAYER_KEYS,
        defaults={"hidden_act": "relu2"},
        refused={"attention_bias": (True,), "mlp_bias": (True,)},
    ),
    "apertus": hf.HfRow(
        arch="apertus",
        names={
            **hf.LLAMA,
            **hf.HEAD_NORMS,
            "attn_norm": "attention_layernorm",
            "ffn_norm": "feedforward_layernorm",
        },
        values={f"xielu.{name}": f"mlp.act_fn.{name}" for name in XIELU},
        defaults=APERTUS_DEFAULTS,
        refused={"hidden_act": ("xielu",)},
        ignored=(".rotary_emb.inv_freq", *(f".act_fn.{name}" for name in XIELU)),
    ),
    "glm4": hf.HfRow(
        arch="glm4",
        names={
            **hf.PRE_NORMS,
            **hf.ATTENTION,
            **GLM_MLP,
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
        defaults=GLM,
    ),
    "ernie4_5": hf.HfRow(
        arch="ernie4_5",
        defaults={"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5},
        is_tied=True,
    ),
    "seed_oss": hf.HfRow(
        arch="seed_oss",
        names={**hf.LATE_FFN_NORM, **hf.ATTENTION, **hf.GLU},
        defaults={"num_key_value_heads": 8, "head_dim": 128},
    ),
    "exaone4": hf.HfRow(
        arch="exaone4",
        names=hf.OLMO,
        defaults={"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096},
        rotates_windowless=True,
    ),
    "hunyuan_v1_dense": hf.HfRow(
        arch="hunyuan-dense",
        names={
            **hf.LLAMA,
            "attn_q_norm": "self_attn.query_layernorm",
            "attn_k_norm": "self_attn.key_layernorm",
        },
        keys={**hf.KEYS, "rope.scaling.alpha": "alpha"},
        defaults={"rms_norm_eps": 1e-5},
    ),
    # Pairs of a rotation are adjacent, as in GGUF.
    "helium": hf.HfRow(
        arch="llama",
        defaults={
            "num_key_value_heads": 20,
            "head_dim": 128,
            "rms_norm_eps": 1e-8,
            "rope_theta": 1e5,
        },
    ),
    "ministral3": hf.HfRow(
        arch="mistral3",
        folds=hf.PAIRS,
        derived={
            "attention.temperature_scale": lambda config: config.section("rope_parameters").number(
                "llama_4_scaling_beta", 0.0
            )
        },
        defaults={"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5},
    ),
    "ministral": hf.HfRow(
        arch="llama", folds=hf.PAIRS, defaults={"num_key_value_heads": 8, "sliding_window": 4096}
    ),
}
