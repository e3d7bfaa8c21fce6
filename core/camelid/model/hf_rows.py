"""Row type of `HF_ROWS`, and the tensor names, config.json keys and folds that rows share.

Tensor maps go from GGUF name to published name, both relative to their layer except in `outer`; `{e}` is the
expert index, `{q}` and `{k}` that of a query and key head, and these tensors are stacked. A fold changes a
tensor at load. Folds are exact (rows permuted, a matrix transposed or cut in two, 1 added to a norm's gain),
except the exponential of a decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config

Names = Mapping[str, str]
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
GLU: Names = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GLM_MLP: Names = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
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
SHARED_EXPERT: Names = {
    "ffn_gate_shexp": "shared_mlp.input_linear",
    "ffn_up_shexp": "shared_mlp.input_linear",
    "ffn_down_shexp": "shared_mlp.output_linear",
}
# Granite publishes the dense MLP and the shared expert under the same names.
GRANITE_MLPS: Mapping[str, Names] = {
    "glu": {name.removesuffix("_shexp"): inner for name, inner in SHARED_EXPERT.items()},
    "experts": {
        "ffn_gate_inp": "block_sparse_moe.router.layer",
        "ffn_gate_exps": "block_sparse_moe.input_linear",
        "ffn_up_exps": "block_sparse_moe.input_linear",
        "ffn_down_exps": "block_sparse_moe.output_linear",
        **SHARED_EXPERT,
    },
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
BAILING: Names = {
    **PRE_NORMS,
    "attn_output": "attention.dense",
    **GLU,
    **QWEN_EXPERTS,
    **SHARED_EXPERTS,
}
BAILING_2: Names = {
    "attn_qkv": "attention.query_key_value",
    "attn_q_norm": "attention.query_layernorm",
    "attn_k_norm": "attention.key_layernorm",
    "exp_probs_b.bias": "mlp.gate.expert_bias",
}
ROUTER_BIAS: Names = {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
QWEN_NEXT: Names = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    **ATTENTION,
    **HEAD_NORMS,
    "attn_qkv": "linear_attn.in_proj_qkvz",
    "attn_gate": "linear_attn.in_proj_qkvz",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    **QWEN_EXPERTS,
    **QWEN_SHARED,
}
GPT2: Names = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
OUTER: Names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BAILING_OUTER: Names = {**OUTER, "token_embd": "model.word_embeddings"}
GPT_OUTER: Names = {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f", "output": "lm_head"}

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
GEMMA_FOLDS: Names = dict.fromkeys((*SANDWICH, *HEAD_NORMS, "output_norm"), "add_one")
QWEN_NEXT_FOLDS: Names = {
    **dict.fromkeys(("attn_norm", "post_attention_norm", *HEAD_NORMS, "output_norm"), "add_one"),
    "attn_qkv": "qkv_of_qkvz", "attn_gate": "z_of_qkvz", "ssm_conv1d": "squeeze", "ssm_a": "decay",
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
BAILING_COUNTS: Names = {
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_shared_count": "num_shared_experts",
}
BAILING_REFUSED: Mapping[str, tuple[object, ...]] = {
    "use_bias": (False,), "use_qkv_bias": (False,), "use_sliding_window": (False,),
}  # fmt: skip
OPENELM_KEYS: Names = {
    **KEYS,
    "embedding_length": "model_dim",
    "block_count": "num_transformer_layers",
    "context_length": "max_context_length",
    "rope.freq_base": "rope_freq_constant",
    "hidden_activation": "activation_fn_name",
}
OPENELM_REFUSED: Mapping[str, tuple[object, ...]] = {
    "normalize_qk_projections": (True,), "share_input_output_layers": (True,), "ffn_with_glu": (True,),
    "normalization_layer_name": ("rms_norm",),
}  # fmt: skip
JAIS_REFUSED: Mapping[str, tuple[object, ...]] = {
    "position_embedding_type": ("alibi",), "activation_function": ("swiglu",), "tie_word_embeddings": (True,),
    "scale_qk_dot_by_d": (True,), "mup_scale_qk_dot_by_d": (True,), "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
}  # fmt: skip
SMALLTHINKER_KEYS: Names = {
    **KEYS,
    "feed_forward_length": "moe_ffn_hidden_size",
    "expert_used_count": "moe_num_active_primary_experts",
    "expert_feed_forward_length": "moe_ffn_hidden_size",
}
QWEN1_KEYS: Names = {
    **KEYS,
    "attention.key_length": "kv_channels",
    "attention.head_count_kv": "num_attention_heads",
    "context_length": "seq_length",  # longer contexts scale attention by the length
    "norm_eps": "layer_norm_epsilon",
    "rope.freq_base": "rotary_emb_base",
}
EXAONE_KEYS: Names = {
    **KEYS,
    "block_count": "num_layers",
    "norm_eps": "layer_norm_epsilon",
    "hidden_activation": "activation_function",
}
CODESHELL_KEYS: Names = {**GPT2_KEYS, "attention.head_count_kv": "num_query_groups"}
CHATGLM_KEYS: Names = {
    **KEYS,
    "block_count": "num_layers",
    "feed_forward_length": "ffn_hidden_size",
    "attention.head_count_kv": "multi_query_group_num",
    "attention.key_length": "kv_channels",
    "context_length": "seq_length",
    "norm_eps": "layernorm_epsilon",
}
CHATGLM_REFUSED: Mapping[str, tuple[object, ...]] = {
    "multi_query_attention": (True,), "rmsnorm": (True,), "post_layer_norm": (True,),
    "original_rope": (True,), "apply_residual_connection_post_layernorm": (False,),
    "add_bias_linear": (False,), "quantization_bit": (0,), "pre_seq_len": (),
}  # fmt: skip
MPT_KEYS: Names = {
    "embedding_length": "d_model",
    "block_count": "n_layers",
    "feed_forward_length": "ffn_size",
    "attention.head_count": "n_heads",
    "attention.head_count_kv": "n_heads",
    "context_length": "max_seq_len",
    "norm_eps": "layer_norm_epsilon",
    "hidden_activation": "activation",
}
GRANITE_SCALES: Names = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
GRANITE_HYBRID_COUNTS: Names = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state",
    "ssm.time_step_rank": "mamba_n_heads",
    "ssm.group_count": "mamba_n_groups",
    "expert_shared_feed_forward_length": "shared_intermediate_size",
}
GRANITE_HYBRID_DEFAULTS = {
    "attention_multiplier": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024, "position_embedding_type": "nope", "mamba_n_heads": 128,
    "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip
GRANITE_MOE_DEFAULTS = {
    "attention_multiplier": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
QWEN_NEXT_COUNTS: Names = {
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
GLM = {
    "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5,
}  # fmt: skip
OLMO: Names = {**POST_NORMS, **ATTENTION, **HEAD_NORMS, **GLU}
QWEN_DEFAULTS = {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}
GEMMA_DEFAULTS = {
    "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
}  # fmt: skip
GEMMA3_DEFAULTS = {  # the settings inside a multimodal model's leave out most keys
    "rope_theta": 1e6, "hidden_size": 2304, "num_hidden_layers": 26, "intermediate_size": 9216,
    "num_attention_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip


def mrope_sections(config: Config) -> list[int]:
    """Pairs of a head that turn by time, height and width, and by a fourth axis that no model has."""
    name = "rope_parameters" if config.has("rope_parameters") else "rope_scaling"
    return [*config.section(name).counts("mrope_section", most=MAX_SECTION), 0]


def n_deepstack(config: Config) -> int:
    """Layers that add embeddings of images, which `vision/hf.py` counts."""
    return config.count("n_deepstack_layers", 0, least=0)


MAX_SECTION = 1 << 12
MROPE: Mapping[str, Callable[[Config], MetadataValue]] = {"rope.dimension_sections": mrope_sections}
SOFTCAPS: Names = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
PARALLEL: Mapping[str, Callable[[Config], MetadataValue]] = {
    "use_parallel_residual": lambda config: config.flag("use_parallel_residual", False)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HfRow:
    """One model_type: the ARCHS row `arch`, published tensor names, folds, and config.json's keys.

    Names. `names` are tensors of a layer under the prefix `layer`, `outer` those outside layers, `ranking`
    those of a ranking head, which classes ...ForSequenceClassification have; `mlp_names` the MLP's by kind,
    for models whose dense and expert MLPs share published names, `named_by` (of config.json) those that
    depend on a setting. `folds` maps a GGUF name to one or more folds (`hf_folds.FOLDS`), in order, `scales`
    to factors of its rows, from config.json and the number of rows. Tensors that begin or end with an item
    of `ignored` are not weights.
    Keys. `aliases` are other names of config.json keys; keys of the dicts in `sections` are read as
    `section.key`. `keys`, `numbers`, `counts` and `products` map GGUF keys to config.json keys: `numbers` are
    optional floats, `counts` integers, `products` integers multiplied from two keys, `derived` values of
    other functions of config.json. `layer_types` (of config.json, number of layers) states the layers' kinds
    where config.json does not by that key. `acts` maps published activations to ours where the model's class
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
    layer: str = "model.layers.{i}."
    folds: Names = field(default_factory=dict[str, str])
    scales: Mapping[str, Callable[[Config, int], Runs]] = field(
        default_factory=dict[str, Callable[[Config, int], Runs]]
    )
    aliases: Names = field(default_factory=dict[str, str])
    keys: Names = field(default_factory=lambda: KEYS)
    numbers: Names = field(default_factory=dict[str, str])
    counts: Names = field(default_factory=dict[str, str])
    sections: tuple[str, ...] = ()
    acts: Names = field(default_factory=dict[str, str])
    products: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    derived: Mapping[str, Callable[[Config], MetadataValue]] = field(
        default_factory=dict[str, Callable[[Config], MetadataValue]]
    )
    layer_types: Callable[[Config, int], list[str]] | None = None
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    refused: Mapping[str, tuple[object, ...]] = field(default_factory=dict[str, tuple[object, ...]])
    ignored: tuple[str, ...] = (".rotary_emb.inv_freq",)
    is_tied: bool = False
    bidirectional: str = ""  # the ARCHS row with use_bidirectional_attention
    counts_padding: bool = False  # positions begin after pad_token_id
    has_window_switch: bool = False  # use_sliding_window; window layers start at max_window_layers
