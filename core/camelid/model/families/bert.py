"""BERT and its kin: encoders whose rows attend to both sides, for embeddings and rankings."""

from __future__ import annotations

from dataclasses import replace

from camelid.model import hf_rows as hf
from camelid.model.arch import (
    ATTENTION,
    BERT_NORMS,
    BERT_OUTER,
    FUSED_GATE_UP,
    FUSED_QKV,
    PLAIN_MLP,
    RANKING,
    Arch,
)

BERT: hf.Names = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
OUTER: hf.Names = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
}
KEYS: hf.Names = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_attention_heads",
    "context_length": "max_position_embeddings",
    "norm_eps": "layer_norm_eps",
    "hidden_activation": "hidden_act",
}
NOMIC: hf.Names = {
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.out_proj",
    "attn_output_norm": "norm1",
    "ffn_up": "mlp.fc11",
    "ffn_gate": "mlp.fc12",
    "ffn_down": "mlp.fc2",
    "layer_output_norm": "norm2",
}
# Every second layer has experts, stored one below the other, and one bias of their sum.
NOMIC_MOE: hf.Names = {
    **{name: inner for name, inner in NOMIC.items() if not name.startswith("ffn")},
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
    "ffn_gate_inp": "mlp.router.layer",
    "ffn_up_exps.weight": "mlp.experts.mlp.w1",
    "ffn_down_exps.weight": "mlp.experts.mlp.w2",
    "ffn_exps.bias": "mlp.experts.bias",
}
NOMIC_MOE_KEYS: hf.Names = {
    **KEYS, "hidden_activation": "activation_function", "expert_used_count": "moe_top_k",
    "expert_feed_forward_length": "moe_intermediate_size",
}  # fmt: skip
JINA: hf.Names = {
    "attn_qkv": "mixer.Wqkv",
    "attn_output": "mixer.out_proj",
    "attn_output_norm": "norm1",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
    "layer_output_norm": "norm2",
}
# A GEGLU whose published matrix is the gate above the other factor.
JINA2: hf.Names = {
    **{name: inner for name, inner in BERT.items() if not name.startswith("ffn")},
    "ffn_up": "mlp.gated_layers",
    "ffn_down": "mlp.wo",
    "layer_output_norm": "mlp.layernorm",
}
MODERN: hf.Names = {
    "attn_norm": "attn_norm",
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.Wo",
    "ffn_norm": "mlp_norm",
    "ffn_up": "mlp.Wi",
    "ffn_down": "mlp.Wo",
}
MODERN_OUTER: hf.Names = {
    "token_embd": "model.embeddings.tok_embeddings",
    "token_embd_norm": "model.embeddings.norm",
    "output_norm": "model.final_norm",
}
# The keys of nomic's own code, before transformers had the class.
NOMIC_ALIASES: hf.Names = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
    "max_trained_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps", "rotary_emb_base": "rope_theta",
    "rotary_emb_fraction": "partial_rotary_factor",
}  # fmt: skip
NOMIC_REFUSED: hf.Refused = {
    "prenorm": (False,), "parallel_block": (False,), "qkv_proj_bias": (False,), "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,), "activation_function": ("swiglu",), "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (), "use_rms_norm": (False,), "causal": (False,), "num_experts": (0,),
    "moe_every_n_layers": (0,),
}  # fmt: skip
NOMIC_MOE_REFUSED: hf.Refused = {
    **{key: values for key, values in NOMIC_REFUSED.items() if not key.endswith(("_bias", "experts"))},
    "activation_function": ("gelu",), "moe_every_n_layers": (2,), "moe_normalize_expert_weights": (False,),
    "num_shared_experts": (0,), "expert_choice_router": (False,), "rotary_scaling_factor": (),
    "qkv_proj_bias": (True,), "mlp_fc1_bias": (True,), "mlp_fc2_bias": (True,),
}  # fmt: skip
MODERN_ALIASES: hf.Names = {
    "global_rope_theta": "rope_theta", "local_rope_theta": "rope_local_base_freq",
    "local_attention": "sliding_window", "global_attn_every_n_layers": "sliding_window_pattern",
}  # fmt: skip
MODERN_REFUSED: hf.Refused = {
    "attention_bias": (False,), "mlp_bias": (False,), "norm_bias": (False,),
    "classifier_activation": ("gelu",), "position_embedding_type": ("absolute", "rope"),
}  # fmt: skip
REFUSED: hf.Refused = {
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "position_embedding_type": ("absolute", "rope"),
}


def prefixed(prefix: str, **own: str) -> hf.Names:
    """The published names of the tensors outside layers; a table without positions is never looked for."""
    return {name: prefix + inner for name, inner in {**OUTER, **own}.items()}


BERT_ARCH = Arch(
    mixers=("bidirectional",),
    rope_style="",
    norm_kind="layer",
    mlp="mlp",
    act="gelu_erf",
    residual="post",
    tensors=BERT_NORMS,
    outer=BERT_OUTER,
    optional_outer={"token_types": "TC", **RANKING},
    has_positions=True,
    splits=FUSED_QKV,
    biases=("token_embd_norm", *BERT_NORMS, *ATTENTION, *PLAIN_MLP),
    optional_biases=(*RANKING,),
)
TURNED = replace(BERT_ARCH, rope_style="neox", has_positions=False, optional_outer={"token_types": "TC"})
BERT_ROW = hf.HfRow(
    arch="bert", names=BERT, keys=KEYS, defaults={"layer_norm_eps": 1e-12}, refused=REFUSED, is_tied=True
)
POOLED: hf.Names = {"cls": "bert.pooler.dense", "cls.output": "classifier"}
XLM_ROBERTA = replace(
    BERT_ROW,
    outer=prefixed("roberta."),
    ranking={"cls": "classifier.dense", "cls.output": "classifier.out_proj"},
    layer="roberta.encoder.layer.{i}.",
    folds={"position_embd": "after_padding"},
    defaults={"layer_norm_eps": 1e-12, "pad_token_id": 1},
    ignored=("roberta.pooler.", "lm_head.", ".position_ids"),
    counts_padding=True,
)

ARCHS: dict[str, Arch] = {
    "bert": BERT_ARCH,
    "nomic-bert": replace(TURNED, mlp="glu", act="silu", biases=("token_embd_norm", *BERT_NORMS)),
    "nomic-bert-moe": replace(
        TURNED,
        normalizes=False,
        optional={"ffn_exps.bias": "C"},  # llama.cpp's files lack it
        refused={"moe_every_n_layers": (2,)},
    ),
    "jina-bert-v2": replace(
        BERT_ARCH,
        mlp="glu",
        max_alibi_bias=8.0,
        has_positions=False,
        splits={**FUSED_QKV, **FUSED_GATE_UP},
        biases=("token_embd_norm", *BERT_NORMS, *ATTENTION, "ffn_down"),
    ),
    "jina-bert-v3": TURNED,
    "modern-bert": Arch(
        mixers=("bidirectional",),
        rope_style="neox",
        norm_kind="layer",
        act="gelu_erf",
        tensors={"ffn_norm": "C"},
        optional={"attn_norm": "C"},  # absent in the first layer
        outer={**BERT_OUTER, "output_norm": "C"},
        optional_outer={**RANKING, "cls.norm": "C"},
        splits={**FUSED_QKV, **FUSED_GATE_UP},
        optional_biases=(*RANKING,),
        window_pattern=3,
        is_full_first=True,
        local_theta=10000.0,
        rank_pooling="mean",
        head_act="gelu_erf",
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "bert": replace(
        BERT_ROW,
        outer=prefixed("bert."),
        ranking=POOLED,
        layer="bert.encoder.layer.{i}.",
        ignored=("bert.pooler.", "cls.", ".position_ids"),
    ),
    "xlm-roberta": XLM_ROBERTA,
    # The published code of Jina's rerankers 2, whose model_type is that of XLM-RoBERTa.
    "xlm_roberta_flash": replace(
        XLM_ROBERTA,
        names=JINA,
        outer=prefixed("roberta.", token_embd_norm="emb_ln"),
        layer="roberta.encoder.layers.{i}.",
    ),
    "nomic_bert": replace(
        BERT_ROW,
        arch="nomic-bert",
        names=NOMIC,
        outer=prefixed("nomic_bert.", token_embd_norm="emb_ln"),
        layer="nomic_bert.encoder.layers.{i}.",
        aliases=NOMIC_ALIASES,
        defaults={"layer_norm_eps": 1e-12, "rope_theta": 1000.0},
        refused=NOMIC_REFUSED,
        ignored=("nomic_bert.pooler.", "cls.", ".inv_freq"),
    ),
    "nomic_bert_moe": replace(
        BERT_ROW,
        arch="nomic-bert-moe",
        names=NOMIC_MOE,
        outer=prefixed("nomic_bert.", token_embd_norm="emb_ln"),
        layer="nomic_bert.encoder.layers.{i}.",
        folds={"ffn_up_exps": "stack", "ffn_down_exps": "stack transpose_each"},
        aliases=NOMIC_ALIASES,
        keys=NOMIC_MOE_KEYS,
        counts={"moe_every_n_layers": "moe_every_n_layers"},
        defaults={"layer_norm_eps": 1e-5, "moe_every_n_layers": 2, "moe_top_k": 2},
        refused=NOMIC_MOE_REFUSED,
        ignored=("nomic_bert.pooler.", "cls.", ".inv_freq"),
    ),
    "jina_bert": replace(
        BERT_ROW,
        arch="jina-bert-v2",
        names=JINA2,
        outer=prefixed("bert."),
        ranking=POOLED,
        layer="bert.encoder.layer.{i}.",
        keys={**KEYS, "hidden_activation": "feed_forward_type"},
        acts={"geglu": "gelu_erf", "reglu": "relu"},
        refused={**REFUSED, "position_embedding_type": ("alibi",)},
        ignored=("bert.pooler.", "cls.", ".position_ids"),
    ),
    "jina_embeddings_v3": replace(
        BERT_ROW,
        arch="jina-bert-v3",
        names=JINA,
        outer=prefixed("roberta.", token_embd_norm="emb_ln"),
        layer="roberta.encoder.layers.{i}.",
        defaults={"layer_norm_eps": 1e-5, "rope_theta": 20000.0},
        ignored=("roberta.pooler.", "lm_head.", ".inv_freq"),
    ),
    "modernbert": hf.HfRow(
        arch="modern-bert",
        names=MODERN,
        outer=MODERN_OUTER,
        ranking={"cls": "head.dense", "cls.norm": "head.norm", "cls.output": "classifier"},
        aliases=MODERN_ALIASES,
        keys={**KEYS, "norm_eps": "norm_eps", "hidden_activation": "hidden_activation"},
        defaults={"norm_eps": 1e-5, "rope_theta": 160000.0, "sliding_window": 128},
        refused=MODERN_REFUSED,
        ignored=("head.", "decoder."),
        is_tied=True,
    ),
}
