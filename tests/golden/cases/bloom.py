"""Golden models of BLOOM and MPT."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json
from tests.golden.mutation import Mutation, key, within, without

# Six heads: two have slopes of the sequence for eight. The keys' names are those of bloom-560m.
BLOOM: Json = {
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["BloomForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "masked_softmax_fusion": True,
    "model_type": "bloom",
    "n_embed": 96,
    "n_inner": None,
    "n_layer": 2,
    "num_attention_heads": 6,
    "offset_alibi": 100,
    "pretraining_tp": 1,
    "seq_length": 128,
    "torch_dtype": "float32",
    "transformers_version": "4.46.0",
    "unk_token_id": 0,
    "use_cache": True,
    "vocab_size": 96,
}

MPT_ATTENTION: Json = {
    "alibi": True,
    "alibi_bias_max": 8,
    "attn_impl": "torch",
    "attn_pdrop": 0,
    "attn_type": "multihead_attention",
    "attn_uses_sequence_id": False,
    "clip_qkv": 0.75,
    "prefix_lm": False,
    "qk_ln": False,
    "softmax_scale": None,
}
MPT: Json = {
    "architectures": ["MPTForCausalLM"],
    "attn_config": MPT_ATTENTION,
    "bos_token_id": 1,
    "d_model": 64,
    "emb_pdrop": 0,
    "embedding_fraction": 1.0,
    "eos_token_id": 2,
    "expansion_ratio": 4,
    "init_device": "cpu",
    "layer_norm_epsilon": 1e-05,
    "learned_pos_emb": True,
    "logit_scale": None,
    "max_seq_len": 128,
    "model_type": "mpt",
    "n_heads": 4,
    "n_layers": 2,
    "no_bias": True,
    "norm_type": "low_precision_layernorm",
    "resid_pdrop": 0,
    "torch_dtype": "float32",
    "transformers_version": "4.46.0",
    "use_cache": False,
    "vocab_size": 96,
}

BLOOM_EMBEDDING: Json = {
    **{key: value for key, value in BLOOM.items() if key != "n_embed"},
    "architectures": ["BloomModel"],
    "hidden_size": BLOOM["n_embed"],
}

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="bloom", seed=1030, config=BLOOM, prefix="transformer."),
    CaseRow(name="bloom_embedding", seed=1034, config=BLOOM_EMBEDDING, pooling="last"),
    CaseRow(name="mpt", seed=1032, config=MPT),
)

WRONG: tuple[Mutation, ...] = (
    key("bloom_embedding", "layer_norm_epsilon", 0.05),
    without("bloom_embedding", "no bias of the last norm", "ln_f.bias"),
    key("mpt", "layer_norm_epsilon", 0.05),
    Mutation("mpt", "slopes of other heads", {"n_heads": 2}),
    within("mpt", "attn_config", MPT_ATTENTION, softmax_scale=0.5),
    within("mpt", "attn_config", MPT_ATTENTION, clip_qkv=None),
    without("mpt", "norms", "norm_1.weight", "norm_2.weight"),
    key("bloom", "layer_norm_epsilon", 0.05),
    key("bloom", "apply_residual_connection_post_layernorm", True),
    Mutation("bloom", "slopes of other heads", {"num_attention_heads": 3}),
    without("bloom", "norm of embeddings", "word_embeddings_layernorm.weight"),
    without("bloom", "norm biases", "layernorm.bias", "ln_f.bias"),
    without("bloom", "attention biases", "query_key_value.bias", "dense.bias"),
    without("bloom", "ffn biases", "h_to_4h.bias", "4h_to_h.bias"),
)
