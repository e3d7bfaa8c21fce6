"""The architectures, and the forms in which models are published. A same-family model is a row in each table.

`ARCHS` has the names of GGUF's `general.architecture`, `HF_ROWS` those of config.json's `model_type`.
"""

from __future__ import annotations

from math import inf

from camelid.model import hf_rows as hf
from camelid.model.arch import (
    ATTENTION,
    BETA_ALPHA,
    FUSED_GATE_UP,
    FUSED_QKV,
    GATED_Q,
    GLU_NAMES,
    HEAD_NORMS,
    POST_NORMS,
    PRE_NORMS,
    QKV,
    WIDE_NORMS,
    Arch,
)

ARCHS: dict[str, Arch] = {
    # Llama 1 to 3, Mistral (its window), Mixtral (its experts) and others that llama.cpp files under llama.
    "llama": Arch(optional_biases=(*ATTENTION, *GLU_NAMES)),
    "qwen2": Arch(rope_style="neox", biases=QKV),
    "qwen3": Arch(rope_style="neox", added={"attention": HEAD_NORMS}),
    "qwen3moe": Arch(rope_style="neox", added={"attention": HEAD_NORMS}),
    # Qwen3-Next: three layers of gated DeltaNet, then one of attention with a gate; experts in all.
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
    "gemma2": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        window_pattern=2,
        window=4096,  # files of the first days, June 2024, state none of these three
        softcaps=(50.0, 30.0),
        scales_embeddings=True,
        wide_layers=46,
    ),
    "gemma3": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        added={"attention": HEAD_NORMS},
        window_pattern=6,
        local_theta=10000.0,
        scales_embeddings=True,
        wide_layers=62,
    ),
    "phi3": Arch(rope_style="neox", splits={**FUSED_QKV, **FUSED_GATE_UP}),
    "gpt2": Arch(
        rope_style="",
        norm_kind="layer",
        mlp="mlp",
        act="gelu",
        biases=(*PRE_NORMS, *ATTENTION, "ffn_up", "ffn_down", "output_norm"),
        has_positions=True,
        splits=FUSED_QKV,
    ),
    # OLMo 2, which has no window, and OLMo 3, which llama.cpp files under it.
    "olmo2": Arch(
        rope_style="neox",
        tensors=POST_NORMS,
        added={"attention": WIDE_NORMS},
        window_pattern=4,
        stretches_local=False,
    ),
    "granite": Arch(optional_biases=(*ATTENTION, *GLU_NAMES), has_rope_switch=True),
    # Granite 4: dense or with experts and a shared one, usually without rotation.
    "granitehybrid": Arch(
        mixers=("attention", "mamba2"),
        optional_biases=(*ATTENTION, *GLU_NAMES, "ssm_conv1d"),
        has_rope_switch=True,
    ),
    "smollm3": Arch(nope_every=4, optional_biases=(*ATTENTION, *GLU_NAMES)),
    "stablelm": Arch(
        rope_style="neox", norm_kind="layer", biases=(*PRE_NORMS, "output_norm"), optional_biases=QKV
    ),
    "starcoder2": Arch(
        rope_style="neox",
        norm_kind="layer",
        mlp="mlp",
        act="gelu",
        biases=(*PRE_NORMS, "output_norm"),
        optional_biases=(*ATTENTION, "ffn_up", "ffn_down"),
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "llama": hf.HfRow(arch="llama", folds=hf.TURN),
    "mistral": hf.HfRow(
        arch="llama", folds=hf.TURN, defaults={"num_key_value_heads": 8, "sliding_window": 4096}
    ),
    "mixtral": hf.HfRow(
        arch="llama",
        folds=hf.TURN,
        names={
            **hf.PRE_NORMS,
            **hf.ATTENTION,
            "ffn_gate_inp": "block_sparse_moe.gate",
            "ffn_gate_exps": "block_sparse_moe.experts.{e}.w1",
            "ffn_up_exps": "block_sparse_moe.experts.{e}.w3",
            "ffn_down_exps": "block_sparse_moe.experts.{e}.w2",
        },
        defaults={"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6},
    ),
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
    "gemma2": hf.HfRow(
        arch="gemma2",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU},
        folds=hf.GEMMA_FOLDS,
        keys={**hf.KEYS, "hidden_activation": "hidden_activation"},
        numbers=hf.SOFTCAPS,
        defaults={**hf.GEMMA_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        is_tied=True,
    ),
    "gemma3_text": hf.HfRow(
        arch="gemma3",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU, **hf.HEAD_NORMS},
        folds=hf.GEMMA_FOLDS,
        keys={**hf.KEYS, "hidden_activation": "hidden_activation"},
        numbers={"final_logit_softcapping": "final_logit_softcapping"},  # transformers reads no other
        defaults={**hf.GEMMA_DEFAULTS, "rope_theta": 1e6},
        refused={"use_bidirectional_attention": (False,)},
        is_tied=True,
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
    "gpt2": hf.HfRow(
        arch="gpt2",
        names={
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        outer={
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layer="transformer.h.{i}.",
        folds=dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), "transpose"),
        keys=hf.GPT2_KEYS,
        refused={"scale_attn_by_inverse_layer_idx": (False,), "scale_attn_weights": (True,)},
        ignored=("attn.bias", "attn.masked_bias"),
        is_tied=True,
    ),
    "olmo2": hf.HfRow(arch="olmo2", names=hf.OLMO, defaults={"rms_norm_eps": 1e-5}),
    "olmo3": hf.HfRow(arch="olmo2", names=hf.OLMO, defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096}),
    "granite": hf.HfRow(
        arch="granite", folds=hf.TURN, numbers=hf.GRANITE_SCALES, defaults={"attention_multiplier": 1.0}
    ),
    "granitemoehybrid": hf.HfRow(
        arch="granitehybrid",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.MAMBA2},
        mlp_names=hf.GRANITE_MLPS,
        folds={**hf.TURN, **hf.MAMBA2_FOLDS, **hf.HALVES},
        counts=hf.GRANITE_HYBRID_COUNTS,
        products={"ssm.inner_size": ("mamba_expand", "hidden_size")},
        numbers=hf.GRANITE_SCALES,
        defaults=hf.GRANITE_HYBRID_DEFAULTS,
        refused={"hidden_act": ("silu",), "mamba_proj_bias": (False,), "time_step_limit": ([0.0, inf],)},
    ),
    "smollm3": hf.HfRow(
        arch="smollm3",
        folds=hf.TURN,
        defaults={"num_key_value_heads": 4, "rope_theta": 2e6},
        refused={"use_sliding_window": (False,)},
        is_tied=True,
        has_window_switch=True,
    ),
    "stablelm": hf.HfRow(
        arch="stablelm",
        keys={**hf.KEYS, "norm_eps": "layer_norm_eps"},
        defaults={"num_key_value_heads": 32, "partial_rotary_factor": 0.25},
        refused={"qk_layernorm": (False,), "use_parallel_residual": (False,)},
    ),
    "starcoder2": hf.HfRow(
        arch="starcoder2",
        names={**hf.PRE_NORMS, **hf.ATTENTION, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        keys={**hf.KEYS, "norm_eps": "norm_epsilon"},
        defaults={"num_key_value_heads": 2},
        is_tied=True,
    ),
}
