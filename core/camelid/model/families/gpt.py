"""GPT-2 and models with its plain MLP and layer norms: CodeShell, Jais, Refact, StarCoder2,
StableLM.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, BARE_GPT, FUSED_QKV, GLU_NAMES, GPT, PRE_NORMS, QKV, Arch

JAIS_REFUSED: hf.Refused = {
    "position_embedding_type": ("alibi",), "activation_function": ("swiglu",), "tie_word_embeddings": (True,),
    "scale_qk_dot_by_d": (True,), "mup_scale_qk_dot_by_d": (True,), "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
}  # fmt: skip
REFACT: hf.Names = {
    "attn_norm": "ln_1",
    "attn_q": "attn.q",
    "attn_k": "attn.kv",
    "attn_v": "attn.kv",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_down": "mlp.c_proj",
}
CODESHELL_KEYS: hf.Names = {**hf.GPT2_KEYS, "attention.head_count_kv": "num_query_groups"}

ARCHS: dict[str, Arch] = {
    "gpt2": replace(GPT, has_positions=True),
    "starcoder": replace(GPT, has_positions=True),
    "starcoder2": replace(BARE_GPT, rope_style="neox"),
    "codeshell": replace(GPT, rope_style="neox"),
    "jais": Arch(
        rope_style="",
        norm_kind="layer",
        biases=(*PRE_NORMS, *ATTENTION, *GLU_NAMES, "output_norm"),
        splits=FUSED_QKV,
        max_alibi_bias=8.0,
        scale_power=-1.0,
    ),
    "refact": Arch(rope_style="", norm_kind="layer", max_alibi_bias=8.0),  # files have the key of RMS norms
    # StableLM 2 12B: no ffn_norm, and norms of heads with a row per head.
    "stablelm": Arch(
        rope_style="neox",
        norm_kind="layer",
        tensors={"attn_norm": "C"},
        optional={"ffn_norm": "C", "attn_q_norm": "AD", "attn_k_norm": "kD"},
        biases=("attn_norm", "output_norm"),
        optional_biases=("ffn_norm", *QKV),
        residual="parallel",
        sequential_by="ffn_norm",
    ),
}


def _jais_embeddings(config: Config, n_rows: int) -> hf.Runs:
    scale = config.number("embeddings_scale", 1.0)
    return [(n_rows, config.number("mup_embeddings_scale", scale))]


def _refact_width(config: Config) -> MetadataValue:
    """Two thirds of the stated width, or of four times the hidden size, up to a multiple of 256."""
    inner = config.count("n_inner", 4 * config.count("n_embd"))
    return -(-(2 * inner // 3) // 256) * 256


def _jais_logits(config: Config, n_rows: int) -> hf.Runs:
    alpha, width = config.number("mup_output_alpha", 1.0), config.number("width_scale", 1.0)
    return [(n_rows, alpha * config.number("mup_width_scale", width))]


HF_ROWS: dict[str, hf.HfRow] = {
    "gpt2": hf.HfRow(
        arch="gpt2",
        names=hf.GPT2,
        outer={**hf.GPT_OUTER, "position_embd": "transformer.wpe"},
        layer="transformer.h.{i}.",
        folds=dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), "transpose"),
        keys=hf.GPT2_KEYS,
        refused={"scale_attn_by_inverse_layer_idx": (False,), "scale_attn_weights": (True,)},
        ignored=("attn.bias", "attn.masked_bias"),
        is_tied=True,
    ),
    "codeshell": hf.HfRow(
        arch="codeshell",
        names=hf.GPT2,
        outer=hf.GPT_OUTER,
        layer="transformer.h.{i}.",
        keys=CODESHELL_KEYS,
        refused={"position_embedding_type": ("rope",), "scale_attn_weights": (True,)},
    ),
    # StarCoder 1: GPT-2 with one key/value head, or with rows of heads side by side.
    "gpt_bigcode": hf.HfRow(
        arch="starcoder",
        names=hf.GPT2,
        outer={**hf.GPT_OUTER, "position_embd": "transformer.wpe"},
        layer="transformer.h.{i}.",
        folds=hf.QKV_OF_GROUPS,
        keys=hf.GPT2_KEYS,
        defaults={"n_positions": 1024, "multi_query": True},
        refused={"scale_attn_weights": (True,), "add_cross_attention": (False,)},
        ignored=("attn.bias", "attn.masked_bias"),
        is_tied=True,
    ),
    # muP's scales are in the matrices of embeddings and of logits.
    "jais": hf.HfRow(
        arch="jais",
        names={**hf.GPT2, "ffn_gate": "mlp.c_fc2"},
        outer={**hf.GPT_OUTER, "output": "transformer.wte"},
        layer="transformer.h.{i}.",
        folds=dict.fromkeys(("attn_qkv", "attn_output", *GLU_NAMES), "transpose"),
        scales={"token_embd": _jais_embeddings, "output": _jais_logits},
        keys=hf.GPT2_KEYS,
        derived={"attention.max_alibi_bias": lambda config: 8.0},
        refused=JAIS_REFUSED,
        ignored=("attn.bias", "attn.masked_bias", "relative_pe.slopes", "lm_head.weight"),
        is_tied=True,
    ),
    "gpt_refact": hf.HfRow(
        arch="refact",
        names={**REFACT, "ffn_gate": "mlp.gate_up_proj", "ffn_up": "mlp.gate_up_proj"},
        outer=hf.GPT_OUTER,
        layer="transformer.h.{i}.",
        folds={"attn_k": "first_half", "attn_v": "second_half", **hf.HALVES},
        keys={**hf.GPT2_KEYS, "hidden_activation": "hidden_act"},  # config.json names no activation
        derived={"attention.head_count_kv": lambda _: 1, "feed_forward_length": _refact_width},
    ),
    "starcoder2": hf.HfRow(
        arch="starcoder2",
        names={**hf.PRE_NORMS, **hf.ATTENTION, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        keys={**hf.KEYS, "norm_eps": "norm_epsilon"},
        defaults={"num_key_value_heads": 2},
        is_tied=True,
    ),
    "stablelm": hf.HfRow(
        arch="stablelm",
        names={
            **hf.ATTENTION,
            **hf.GLU,
            "attn_norm": "input_layernorm",
            "attn_q_norm": "self_attn.q_layernorm.norms.{q}",
            "attn_k_norm": "self_attn.k_layernorm.norms.{k}",
        },
        keys=hf.LAYER_KEYS,
        named_by=lambda config: {} if config.flag("use_parallel_residual", False) else hf.PRE_NORMS,
        derived=hf.PARALLEL,
        defaults={
            "num_key_value_heads": 32,
            "partial_rotary_factor": 0.25,
            "use_parallel_residual": False,
        },
    ),
}
