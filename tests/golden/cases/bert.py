"""BERT and its kin: hidden states of encoders, scores of ranking models."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, common, key, refused, without

BERT_FACTS: Json = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 96,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 48,
    "model_type": "bert",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "torch_dtype": "float32",
    "transformers_version": "4.41.0",
    "type_vocab_size": 2,
    "vocab_size": 96,
}
RANKS: Json = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
ROBERTA: Json = {
    "architectures": ["XLMRobertaModel"],
    "model_type": "xlm-roberta",
    "layer_norm_eps": 1e-5,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "type_vocab_size": 1,
}
FLASH: Json = {**ROBERTA, "model_type": "xlm_roberta_flash", "use_flash_attn": True}
NOMIC: Json = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "hidden_act": "silu",
    "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"},
}
# The keys of the published code, which has no class in transformers.
NOMIC_MOE: Json = {
    "architectures": ["NomicBertModel"],
    "activation_function": "gelu",
    "causal": False,
    "expert_choice_router": False,
    "layer_norm_epsilon": 1e-5,
    "max_trained_positions": 48,
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "model_type": "nomic_bert_moe",
    "moe_every_n_layers": 2,
    "moe_normalize_expert_weights": False,
    "moe_top_k": 2,
    "n_embd": 64,
    "n_head": 4,
    "n_inner": 96,
    "n_layer": 4,
    "n_positions": 48,
    "num_experts": 5,
    "num_shared_experts": 0,
    "prenorm": False,
    "qkv_proj_bias": True,
    "rotary_emb_base": 1000.0,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "torch_dtype": "float32",
    "type_vocab_size": 1,
    "vocab_size": 96,
}
JINA: Json = {
    **ROBERTA,
    "architectures": ["JinaEmbeddingsV3Model"],
    "model_type": "jina_embeddings_v3",
    "rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"},
}
# 3 heads: the slopes of ALiBi are not one geometric sequence
JINA_2: Json = {
    "architectures": ["JinaBertModel"],
    "model_type": "jina_bert",
    "feed_forward_type": "geglu",
    "position_embedding_type": "alibi",
    "hidden_size": 96,
    "num_attention_heads": 3,
}
MODERN: Json = {
    "architectures": ["ModernBertModel"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_pooling": "mean",
    "cls_token_id": 1,
    "eos_token_id": 2,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "local_attention": 16,
    "local_rope_theta": 1000.0,
    "max_position_embeddings": 64,
    "mlp_bias": False,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-5,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "sep_token_id": 2,
    "torch_dtype": "float32",
    "transformers_version": "4.48.0",
    "vocab_size": 96,
}

# Decoders that encode: Qwen3-Embedding pools the last row of causal attention, EmbeddingGemma all rows of
# attention to both sides.
QWEN3_EMBEDDING = config("Qwen3Model", "qwen3", head_dim=16, rope_theta=1e6)
QWEN3_RANKS: Json = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "pad_token_id": 0,
}
GEMMA_EMBEDDING = {
    **config("Gemma3TextModel", "gemma3_text", num_hidden_layers=3, head_dim=24, query_pre_attn_scalar=12),
    "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 100.0, "sliding_window": 10,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "use_bidirectional_attention": True,
}  # fmt: skip

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="qwen3_ranking", seed=4030, config={**QWEN3_EMBEDDING, **QWEN3_RANKS}),
    CaseRow(name="qwen3_embedding", seed=4020, config=QWEN3_EMBEDDING, pooling="last"),
    CaseRow(
        name="gemma_embedding",
        seed=4023,
        config=GEMMA_EMBEDDING,
        pooling="mean",
        dense=((160, 64), (64, 160)),
    ),
    CaseRow(name="bert", seed=4000, config=BERT_FACTS),
    CaseRow(
        name="bert_ranking",
        seed=4001,
        config={**BERT_FACTS, **RANKS, "architectures": ["BertForSequenceClassification"]},
    ),
    # seeds without the id of padding, whose positions transformers skips
    CaseRow(name="xlm_roberta", seed=4010, config={**BERT_FACTS, **ROBERTA}),
    CaseRow(
        name="xlm_roberta_ranking",
        seed=4013,
        config={**BERT_FACTS, **ROBERTA, **RANKS, "architectures": ["XLMRobertaForSequenceClassification"]},
    ),
    CaseRow(name="nomic_bert", seed=4004, config={**BERT_FACTS, **NOMIC}),
    CaseRow(name="nomic_bert_moe", seed=4050, config=NOMIC_MOE),
    CaseRow(name="jina_bert", seed=4040, config={**BERT_FACTS, **JINA_2}),
    CaseRow(
        name="jina_bert_ranking",
        seed=4041,
        config={**BERT_FACTS, **JINA_2, **RANKS, "architectures": ["JinaBertForSequenceClassification"]},
    ),
    CaseRow(name="xlm_roberta_flash", seed=4060, config={**BERT_FACTS, **FLASH}),
    CaseRow(
        name="xlm_roberta_flash_ranking",
        seed=4069,
        config={**BERT_FACTS, **FLASH, **RANKS, "architectures": ["XLMRobertaForSequenceClassification"]},
    ),
    CaseRow(name="jina_embeddings_v3", seed=4005, config={**BERT_FACTS, **JINA}),
    CaseRow(name="modernbert", seed=4006, config=MODERN),
    CaseRow(
        name="modernbert_ranking",
        seed=4007,
        config={**MODERN, **RANKS, "architectures": ["ModernBertForSequenceClassification"]},
    ),
)


def encoder(case: str, *names: str) -> list[Mutation]:
    """Wrong facts of encoders with post-norms; `names` are tensors whose biases and norms are neutral."""
    return [
        key(case, "layer_norm_eps", 0.05),
        key(case, "hidden_act", "relu"),
        *(without(case, f"no {name}", name) for name in names),
    ]


WRONG: tuple[Mutation, ...] = (
    *common("qwen3_embedding"),
    *common("qwen3_ranking"),
    without("qwen3_ranking", "no norm of keys", "k_norm.weight"),
    without("qwen3_embedding", "no norm of keys", "k_norm.weight"),
    key("gemma_embedding", "use_bidirectional_attention", False),
    key("gemma_embedding", "sliding_window", 6),
    key("gemma_embedding", "rope_local_base_freq", 1000.0),
    key("gemma_embedding", "query_pre_attn_scalar", 30),
    without("gemma_embedding", "no norm of queries", "q_norm.weight"),
    *encoder(
        "bert",
        "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias", "query.bias", "value.bias",
        "attention.output.dense.bias", "attention.output.LayerNorm.weight", "intermediate.dense.bias",
        "position_embeddings.weight", "token_type_embeddings.weight", "output.dense.bias",
        "output.LayerNorm.bias",
    ),
    key("bert", "num_attention_heads", 2),
    without("bert_ranking", "no pooler bias", "pooler.dense.bias"),
    without("bert_ranking", "no classifier bias", "classifier.bias"),
    without("bert_ranking", "no token types", "token_type_embeddings.weight"),
    *encoder("xlm_roberta", "position_embeddings.weight", "token_type_embeddings.weight"),
    key("xlm_roberta", "pad_token_id", 3),
    without("xlm_roberta_ranking", "no dense bias", "classifier.dense.bias"),
    without("xlm_roberta_ranking", "no output bias", "classifier.out_proj.bias"),
    *encoder("nomic_bert", "emb_ln.weight", "token_type_embeddings.weight", "norm1.bias", "norm2.weight"),
    key("nomic_bert", "rope_parameters", {"rope_theta": 30.0, "rope_type": "default"}),
    key("nomic_bert_moe", "layer_norm_epsilon", 0.05),
    key("nomic_bert_moe", "rotary_emb_base", 30.0),
    key("nomic_bert_moe", "moe_top_k", 1),
    key("nomic_bert_moe", "n_head", 2),
    refused("nomic_bert_moe", "moe_normalize_expert_weights", True),
    refused("nomic_bert_moe", "activation_function", "relu"),
    *(
        without("nomic_bert_moe", f"no {name}", name)
        for name in (
            "router.layer.weight", "mlp.w2", "experts.bias", "fc1.bias", "fc2.bias", "Wqkv.bias",
            "out_proj.bias", "token_type_embeddings.weight", "emb_ln.weight", "norm1.bias", "norm2.weight",
        )
    ),
    *encoder("jina_embeddings_v3", "emb_ln.bias", "Wqkv.bias", "out_proj.bias", "fc1.bias", "fc2.bias"),
    key("jina_bert", "layer_norm_eps", 0.05),
    key("jina_bert", "num_attention_heads", 4),
    key("jina_bert", "feed_forward_type", "reglu"),
    *(
        without("jina_bert", f"no {name}", name)
        for name in (
            "embeddings.LayerNorm.weight", "query.bias", "key.weight", "output.dense.bias", "mlp.wo.bias",
            "mlp.layernorm.bias", "attention.output.LayerNorm.weight", "token_type_embeddings.weight",
        )
    ),
    without("jina_bert_ranking", "no pooler bias", "pooler.dense.bias"),
    without("jina_bert_ranking", "no classifier bias", "classifier.bias"),
    without("jina_bert_ranking", "no token types", "token_type_embeddings.weight"),
    *encoder("xlm_roberta_flash", "position_embeddings.weight", "token_type_embeddings.weight"),
    key("xlm_roberta_flash", "pad_token_id", 3),
    without("xlm_roberta_flash", "no biases of attention", "Wqkv.bias"),
    without("xlm_roberta_flash_ranking", "no dense bias", "classifier.dense.bias"),
    without("xlm_roberta_flash_ranking", "no output bias", "classifier.out_proj.bias"),
    key("jina_embeddings_v3", "rope_parameters", {"rope_theta": 30.0, "rope_type": "default"}),
    key("modernbert", "norm_eps", 0.05),
    key("modernbert", "hidden_activation", "relu"),
    key("modernbert", "local_attention", 8),
    key("modernbert", "global_attn_every_n_layers", 2),
    key("modernbert", "global_rope_theta", 300.0),
    key("modernbert", "local_rope_theta", 30.0),
    without("modernbert", "no attention norm", "attn_norm.weight"),
    without("modernbert", "no MLP norm", "mlp_norm.weight"),
    without("modernbert", "no embedding norm", "embeddings.norm.weight"),
    without("modernbert", "no final norm", "final_norm.weight"),
    key("modernbert_ranking", "classifier_pooling", "cls"),
    key("modernbert_ranking", "classifier_activation", "relu"),
    without("modernbert_ranking", "no head norm", "head.norm.weight"),
)  # fmt: skip
