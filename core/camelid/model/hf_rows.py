"""What a row for a published form (a Hugging Face directory) is: names, settings, folds; and what rows share.

Names are those inside a layer unless they stand in `outer`; `{e}` counts experts, which are stacked. A fold
is exact: rows change places, a matrix is transposed, 1 is added to a norm that was stored around 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Names = Mapping[str, str]

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
LLAMA: Names = {**PRE_NORMS, **ATTENTION, **GLU}
OUTER: Names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

# Rotation of halves becomes rotation of adjacent pairs.
TURN: Names = {"attn_q": "pairs_of_q", "attn_k": "pairs_of_k"}
GEMMA_FOLDS: Names = dict.fromkeys((*SANDWICH, *HEAD_NORMS, "output_norm"), "add_one")

# What config.json calls GGUF's keys.
KEYS: Names = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
    "hidden_activation": "hidden_act",
}
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
GRANITE_SCALES: Names = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
OLMO: Names = {**POST_NORMS, **ATTENTION, **HEAD_NORMS, **GLU}
QWEN_DEFAULTS = {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}
GEMMA_DEFAULTS = {
    "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
}  # fmt: skip
SOFTCAPS: Names = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}


@dataclass(frozen=True, slots=True, kw_only=True)
class HfRow:
    """One model_type. `numbers` are further keys of GGUF and their names in config.json, where stated.

    `refused` maps keys of config.json to the values that change nothing; `ignored` lists endings of tensors
    that are no weights. `defaults` is what an absent key of config.json means, where that is not what most
    rows take it for (the classes of transformers 5), and `is_tied` an absent tie_word_embeddings.
    """

    arch: str
    names: Names = field(default_factory=lambda: LLAMA)
    outer: Names = field(default_factory=lambda: OUTER)
    layer: str = "model.layers.{i}."
    folds: Names = field(default_factory=dict[str, str])
    keys: Names = field(default_factory=lambda: KEYS)
    numbers: Names = field(default_factory=dict[str, str])
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    refused: Mapping[str, tuple[object, ...]] = field(default_factory=dict[str, tuple[object, ...]])
    ignored: tuple[str, ...] = (".rotary_emb.inv_freq",)
    is_tied: bool = False
    has_window_switch: bool = False  # use_sliding_window, from layer max_window_layers on
