"""Row type of `HF_ROWS`, and the tensor names, config.json keys and folds that rows share.

Tensor maps go from GGUF name to published name, both relative to their layer except in `outer`; `{e}` is the
expert index, `{q}` and `{k}` that of a query and key head, `{wkvrg}` each of these letters in turn, and
these tensors are stacked. A fold changes a tensor at load. Folds are exact (rows permuted, a matrix
transposed or cut in two, 1 added to a norm's gain), except the exponential of a decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config

Names = Mapping[str, str]
Refused: TypeAlias = Mapping[str, tuple[object, ...]]  # supported values of a key
Derived: TypeAlias = Mapping[str, Callable[[Config], MetadataValue]]
Runs: TypeAlias = Sequence[tuple[int, float]]  # (number of rows, factor), for all rows of a matrix

ATTENTION: Names = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
HEAD_NORMS: Names = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
PRE_NORMS: Names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
POST_NORMS: Names = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
SANDWICH: Names = {"attn_norm": "input_layernorm", "ffn_norm": "pre_feedforward_layernorm", **POST_NORMS}
# Of files that name the norm before the MLP post_attention_norm; `arch.LATE_FFN_NORM` reads it.
LATE_FFN_NORM: Names = {
    "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
}  # fmt: skip
PRE_FF_NORMS: Names = {"attn_norm": "input_layernorm", "ffn_norm": "pre_ff_layernorm"}
GLU: Names = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
LLAMA: Names = {**PRE_NORMS, **ATTENTION, **GLU}
MAMBA2: Names = {
    "ssm_in": "mamba.in_proj",
    "ssm_conv1d": "mamba.conv1d",
    "ssm_dt.bias": "mamba.dt_bias",
    "ssm_a": "mamba.A_log",
    "ssm_d": "mamba.D",
    "ssm_norm": "mamba.norm",
    "ssm_out": "mamba.out_proj",
}
MAMBA2_COUNTS: Names = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state",
    "ssm.time_step_rank": "mamba_n_heads",
    "ssm.group_count": "mamba_n_groups",
}
QWEN_EXPERTS: Names = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{e}.gate_proj",
    "ffn_up_exps": "mlp.experts.{e}.up_proj",
    "ffn_down_exps": "mlp.experts.{e}.down_proj",
}
QWEN_SHARED: Names = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
SHARED_EXPERTS: Names = {
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
MIXTRAL_EXPERTS: Names = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{e}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{e}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{e}.w2",
}
# All experts in one tensor, gate and up side by side.
FUSED_EXPERTS: Names = {
    "ffn_gate_exps.weight": "mlp.experts.gate_up_proj",
    "ffn_up_exps.weight": "mlp.experts.gate_up_proj",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
}
ROUTER_BIAS: Names = {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
ROUTER: Names = {"ffn_gate_inp": "mlp.router.gate", "exp_probs_b.bias": "mlp.expert_bias"}
GPT2: Names = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


def renamed(names: Names, old: str, new: str) -> Names:
    """The names with another module name."""
    return {name: published.replace(old, new) for name, published in names.items()}


def prefixed(names: Names, prefix: str) -> Names:
    """The names with a module's name before them."""
    return {name: prefix + published for name, published in names.items()}


def neox_names(attention: str) -> Names:
    """GPT-NeoX's matrices of a layer, with this name of its attention."""
    return {
        "attn_qkv": f"{attention}.query_key_value", "attn_output": f"{attention}.dense",
        "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
    }  # fmt: skip


def outer(token_embd: str, output_norm: str, output: str = "lm_head") -> Names:
    """Names of the tensors outside layers."""
    return {"token_embd": token_embd, "output_norm": output_norm, "output": output}


def expert_folds(gate: str, up: str, down: str) -> Names:
    """Folds of the experts' matrices."""
    return {"ffn_gate_exps": gate, "ffn_up_exps": up, "ffn_down_exps": down}


def only(value: object, *keys: str) -> Refused:
    """Keys of which this value alone is supported."""
    return dict.fromkeys(keys, (value,))


def unlimited(*keys: str) -> Refused:
    """Bounds of time steps that bound nothing."""
    return only([0.0, inf], *keys)


OUTER: Names = outer("model.embed_tokens", "model.norm")
FINAL_OUTER: Names = outer("model.embed_tokens", "model.final_layernorm")
FEED_FORWARD: Names = renamed(GLU, "mlp.", "feed_forward.")
GPT_OUTER: Names = outer("transformer.wte", "transformer.ln_f")

# Rotation of halves becomes rotation of adjacent pairs: rows of each head are permuted.
PAIRS: Names = {"attn_q": "pairs_of_q", "attn_k": "pairs_of_k"}
# Each key head's rows of the fused matrix, its queries first, become all queries, all keys, all values.
QKV_OF_GROUPS: Names = {"attn_qkv": "qkv_of_groups"}
# A stacked [gate; up] matrix becomes two matrices.
HALVES: Names = {
    f"ffn_{name}{kind}": fold
    for name, fold in (("gate", "first_half"), ("up", "second_half"))
    for kind in ("", "_exps", "_shexp")
}
MAMBA2_FOLDS: Names = {
    "ssm_conv1d": "squeeze", "ssm_a": "decay_column", "ssm_d": "column", "ssm_norm": "groups",
}  # fmt: skip

# GGUF key -> config.json key.
KEYS: Names = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
    "hidden_activation": "hidden_act",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
LAYER_KEYS: Names = {**KEYS, "norm_eps": "layer_norm_eps"}
GPT2_KEYS: Names = {
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.head_count_kv": "n_head",
    "context_length": "n_positions",
    "norm_eps": "layer_norm_epsilon",
    "hidden_activation": "activation_function",
}
OLMO: Names = {**POST_NORMS, **ATTENTION, **HEAD_NORMS, **GLU}
QWEN_DEFAULTS = {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}
SILU: Refused = only("silu", "hidden_act")

PARALLEL: Derived = {"use_parallel_residual": lambda config: config.flag("use_parallel_residual", False)}
# The router's gate, by llama.cpp's numbers.
SOFTMAX_GATE: Derived = {"expert_gating_func": lambda _: 1}
SIGMOID_GATE: Derived = {"expert_gating_func": lambda _: 2}
NORMED_PROBS: Derived = {"expert_weights_norm": lambda _: True}


@dataclass(frozen=True, slots=True, kw_only=True)
class HfRow:
    """One model_type: the ARCHS row `arch`, published tensor names, folds, and config.json's keys.

    Names. `names` are tensors of a layer under the prefix `layer`, `outer` those outside layers, `ranking`
    those of a ranking head, which classes ...ForSequenceClassification have; `mlp_names` the MLP's by kind,
    for models whose dense and expert MLPs share published names, `named_by` (of config.json) those that
    depend on a setting, `first` those of the first layer that differ. In a model with an encoder and a
    decoder, `encoder` (of config.json) are the tensors of the encoder's layers, under the prefix
    `encoder_layer`; `names`, `named_by` and `layer` are the decoder's. `folds` maps a GGUF name to one or
    more folds (`hf_folds.FOLDS`), in order, `scales` to factors of its rows, from config.json and the number
    of rows. Tensors that begin or end with an item of `ignored` are not weights.
    Keys. `nested` names the section of config.json with the text model's keys, which override those outside.
    `aliases` are other names of config.json keys; keys of the dicts in `sections` are read as
    `section.key`. `keys`, `numbers`, `counts` and `products` map GGUF keys to config.json keys: `numbers` are
    optional floats, `counts` integers, `products` integers multiplied from two keys, `derived` values of
    other functions of config.json. `values` maps GGUF keys to tensors of one number in each layer.
    `layer_types` (of config.json, number of layers) states the layers' kinds where config.json does not by
    that key. `acts` maps published activations to ours where the model's class
    reads a name otherwise. `defaults` are the values of absent keys as in the classes of transformers 5;
    `is_tied` is the default of tie_word_embeddings. `refused` maps a key to its supported values; any other
    value raises UnsupportedModelError.
    """

    arch: str
    names: Names = field(default_factory=lambda: LLAMA)
    mlp_names: Mapping[str, Names] = field(default_factory=dict[str, Names])
    outer: Names = field(default_factory=lambda: OUTER)
    ranking: Names = field(default_factory=dict[str, str])
    named_by: Callable[[Config], Names] | None = None
    first: Names = field(default_factory=dict[str, str])
    layer: str = "model.layers.{i}."
    encoder: Callable[[Config], Names] | None = None
    encoder_layer: str = ""
    folds: Names = field(default_factory=dict[str, str])
    scales: Mapping[str, Callable[[Config, int], Runs]] = field(
        default_factory=dict[str, Callable[[Config, int], Runs]]
    )
    nested: str = ""
    aliases: Names = field(default_factory=dict[str, str])
    keys: Names = field(default_factory=lambda: KEYS)
    numbers: Names = field(default_factory=dict[str, str])
    counts: Names = field(default_factory=dict[str, str])
    sections: tuple[str, ...] = ()
    acts: Names = field(default_factory=dict[str, str])
    values: Names = field(default_factory=dict[str, str])
    products: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    derived: Derived = field(default_factory=dict[str, Callable[[Config], MetadataValue]])
    layer_types: Callable[[Config, int], list[str]] | None = None
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    refused: Refused = field(default_factory=dict[str, tuple[object, ...]])
    ignored: tuple[str, ...] = (".rotary_emb.inv_freq",)
    is_tied: bool = False
    bidirectional: str = ""  # the ARCHS row with use_bidirectional_attention
    counts_padding: bool = False  # positions begin after pad_token_id
    has_window_switch: bool = False  # use_sliding_window; window layers start at max_window_layers
    rotates_windowless: bool = False  # with sliding_window null, in spite of the row's `has_global_nope`
