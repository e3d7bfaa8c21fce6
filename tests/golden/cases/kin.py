"""Golden models with Llama's layers under names of their own."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, common, key, refused, within, without

DYNAMIC: Json = {"factor": 2.0, "type": "dynamic"}  # beyond the context alone
INTERNLM2 = config("InternLM2ForCausalLM", "internlm2", bias=False, pretraining_tp=1, rope_scaling=DYNAMIC)
INTERNLM3 = config(
    "InternLM3ForCausalLM", "internlm3", bias=True, head_dim=32, qkv_bias=True, rope_scaling=DYNAMIC
)
ORION = config("OrionForCausalLM", "orion", attention_bias=False, max_sequence_length=128, pretraining_tp=1)
XVERSE = config("XverseForCausalLM", "xverse", max_tokenizer_truncation=96, rms_norm_eps=1e-6)
# 32 layers: llama.cpp rotates in a model of that size alone.
BAICHUAN = config(
    "BaiChuanForCausalLM",
    "baichuan",
    hidden_size=32,
    intermediate_size=64,
    model_max_length=128,
    num_hidden_layers=32,
    rms_norm_eps=1e-6,
)
BAICHUAN.pop("num_key_value_heads")
BAICHUAN_13B = BAICHUAN | {"num_hidden_layers": 40}
BAICHUAN_13B.pop("max_position_embeddings")
BAICHUAN_13B.pop("rope_theta")
MAINCODER = config("MaincoderForCausalLM", "maincoder", head_dim=16, use_qk_norm=True)
MINICPM = config(
    "MiniCPMForCausalLM",
    "minicpm",
    dim_model_base=24,
    rope_scaling=None,
    scale_depth=1.4,
    scale_emb=3,
    tie_word_embeddings=True,
)
MINICPM.pop("tie_word_embeddings")
LONG: Json = {
    "long_factor": [1.1, 1.4, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
    "original_max_position_embeddings": 24,
    "rope_type": "longrope",
    "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0],
}
MIMO = config(
    "MiMoForCausalLM",
    "mimo",
    attention_bias=True,
    head_dim=16,
    max_window_layers=2,
    num_nextn_predict_layers=1,
    rope_theta=640000,
    sliding_window=8,
    use_sliding_window=False,
)
PANGU = config("PanguEmbeddedForCausalLM", "PanguEmbedded", bias=True, rope_theta=16000000.0)
# num_key_value_heads is published, and no class reads it.
PLAMO = config(
    "PlamoForCausalLM",
    "plamo",
    n_shared_head=4,
    num_attention_heads=8,
    num_key_value_heads=8,
    rms_norm_eps=1e-6,
)
PLAMO.pop("hidden_act")
PLAMO.pop("rope_theta")
EXAONE = config(
    "ExaoneForCausalLM",
    "exaone",
    activation_function="silu",
    embed_dropout=0.0,
    layer_norm_epsilon=1e-5,
    num_layers=2,
    pad_token_id=0,
    rope_scaling={
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 32,
        "rope_type": "llama3",
    },
    rope_theta=5000.0,
)
for name in ("hidden_act", "num_hidden_layers", "rms_norm_eps"):
    EXAONE.pop(name)
QWEN: Json = {
    "architectures": ["QWenLMHeadModel"],
    "attn_dropout_prob": 0.0,
    "bos_token_id": 1,
    "emb_dropout_prob": 0.0,
    "eos_token_id": 2,
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 192,
    "kv_channels": 16,
    "layer_norm_epsilon": 1e-06,
    "max_position_embeddings": 256,
    "model_type": "qwen",
    "no_bias": True,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rotary_emb_base": 10000,
    "rotary_pct": 1.0,
    "scale_attn_weights": True,
    "seq_length": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.31.0",
    "use_cache": True,
    "use_dynamic_ntk": True,
    "use_logn_attn": True,
    "vocab_size": 96,
}
CHATGLM: Json = {
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False,
    "architectures": ["ChatGLMModel"],
    "attention_dropout": 0.0,
    "attention_softmax_in_fp32": True,
    "bias_dropout_fusion": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "ffn_hidden_size": 96,
    "fp32_residual_connection": False,
    "hidden_dropout": 0.0,
    "hidden_size": 64,
    "kv_channels": 16,
    "layernorm_epsilon": 1e-05,
    "model_type": "chatglm",
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 4,
    "num_layers": 2,
    "original_rope": True,
    "padded_vocab_size": 96,
    "post_layer_norm": True,
    "rmsnorm": True,
    "seq_length": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.30.2",
    "use_cache": True,
    "vocab_size": 96,
}

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="internlm2", seed=6001, config=INTERNLM2),
    CaseRow(name="internlm2_bias", seed=6002, config=INTERNLM2 | {"bias": True, "rope_scaling": None}),
    CaseRow(name="internlm3", seed=6011, config=INTERNLM3),
    CaseRow(name="orion", seed=6021, config=ORION),
    CaseRow(name="xverse", seed=6031, config=XVERSE),
    CaseRow(name="baichuan", seed=6041, config=BAICHUAN, lengths=(20, 11)),
    CaseRow(name="baichuan_13b", seed=6042, config=BAICHUAN_13B, lengths=(20, 11)),
    CaseRow(name="maincoder", seed=6111, config=MAINCODER),
    CaseRow(name="minicpm", seed=6051, config=MINICPM),
    CaseRow(
        name="minicpm_long",
        seed=6052,
        config=MINICPM | {"rope_scaling": LONG, "tie_word_embeddings": False},
        lengths=(40, 25),
    ),
    CaseRow(name="mimo", seed=6061, config=MIMO),
    CaseRow(name="pangu", seed=6071, config=PANGU),
    CaseRow(name="plamo", seed=6121, config=PLAMO),
    CaseRow(name="exaone", seed=6101, config=EXAONE),
    CaseRow(name="qwen", seed=6081, config=QWEN),
    CaseRow(name="chatglm", seed=6091, config=CHATGLM),
    CaseRow(name="chatglm_ratio", seed=6092, config=CHATGLM | {"add_qkv_bias": False, "rope_ratio": 0.02}),
)


def base(case: str, theta: str = "rope_theta", eps: str = "rms_norm_eps") -> list[Mutation]:
    """Wrong facts of models whose activation no key states."""
    return [key(case, theta, 300.0), key(case, eps, 0.05)]


def heads(case: str, q: str, k: str, v: str) -> list[Mutation]:
    return [without(case, f"{name} bias", ending) for name, ending in (("q", q), ("k", k), ("v", v))]


WRONG: tuple[Mutation, ...] = (
    *common("internlm2"),
    without("internlm2", "norm", "attention_norm.weight"),
    without("internlm2_bias", "qkv bias", "wqkv.bias"),
    without("internlm2_bias", "o bias", "wo.bias"),
    *common("internlm3"),
    *heads("internlm3", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("internlm3", "o bias", "o_proj.bias"),
    without("internlm3", "mlp biases", "gate_proj.bias", "up_proj.bias", "down_proj.bias"),
    *common("orion"),
    without("orion", "norm biases", "layernorm.bias"),
    without("orion", "last norm's bias", "model.norm.bias"),
    *common("xverse"),
    *common("baichuan"),
    key("baichuan_13b", "rms_norm_eps", 0.05),
    key("baichuan_13b", "hidden_act", "relu"),
    *common("maincoder"),
    without("maincoder", "q norm", "q_norm.weight"),
    without("maincoder", "k norm", "k_norm.weight"),
    *common("minicpm"),
    key("minicpm", "scale_emb", 1),
    key("minicpm", "scale_depth", 1.0),
    key("minicpm", "dim_model_base", 64),
    within("minicpm_long", "rope_scaling", LONG, long_factor=[1.0] * 8),
    key("minicpm_long", "max_position_embeddings", 24),
    *common("mimo"),
    *heads("mimo", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    *common("pangu"),
    *heads("pangu", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("pangu", "o bias", "o_proj.bias"),
    *base("plamo"),
    without("plamo", "norms of layers", "0.norm.weight", "1.norm.weight"),
    without("plamo", "last norm", "model.norm.weight"),
    without("plamo", "attention", "self_attn.o_proj.weight"),
    without("plamo", "mlp", "mlp.down_proj.weight"),
    refused("plamo", "rope_traditional", True),
    *base("exaone", "rope_theta", "layer_norm_epsilon"),
    key("exaone", "activation_function", "relu"),
    key("exaone", "rope_scaling", None),
    *base("qwen", "rotary_emb_base", "layer_norm_epsilon"),
    without("qwen", "qkv bias", "c_attn.bias"),
    *base("chatglm", "rope_ratio", "layernorm_epsilon"),
    without("chatglm", "qkv bias", "query_key_value.bias"),
    key("chatglm_ratio", "rope_ratio", 1.0),
)
