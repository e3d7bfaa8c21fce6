"""Golden models of Llama's relatives: GLM-4, ERNIE 4.5, Seed-OSS, EXAONE 4, Hunyuan, Helium, Ministral."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, common, key, within, without

GLM = config(
    "GlmForCausalLM",
    "glm",
    attention_bias=True,
    head_dim=16,
    pad_token_id=0,
    partial_rotary_factor=0.5,
    rms_norm_eps=1.5625e-07,
)
GLM4 = GLM | {"architectures": ["Glm4ForCausalLM"], "model_type": "glm4"}
ERNIE = config(
    "Ernie4_5ForCausalLM", "ernie4_5", head_dim=32, rope_theta=5e5, tie_word_embeddings=True, use_bias=False
)
SEED_OSS = config(
    "SeedOssForCausalLM",
    "seed_oss",
    attention_bias=True,
    attention_out_bias=False,
    head_dim=32,
    mlp_bias=False,
    residual_dropout=0.1,
    rms_norm_eps=1e-06,
    rope_scaling={"rope_type": "default"},
)
LOCAL, GLOBAL = "sliding_attention", "full_attention"
LLAMA3_ROPE: Json = {
    "factor": 16.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}
EXAONE4 = config(
    "Exaone4ForCausalLM",
    "exaone4",
    head_dim=16,
    layer_types=[LOCAL, LOCAL, LOCAL, GLOBAL],
    num_hidden_layers=4,
    rope_scaling=LLAMA3_ROPE,
    sliding_window=12,
    sliding_window_pattern="LLLG",
)
EXAONE4_SMALL = EXAONE4 | {
    "layer_types": [GLOBAL] * 2,
    "num_hidden_layers": 2,
    "sliding_window": None,
    "sliding_window_pattern": None,
}
EXAONE4_GLOBAL = EXAONE4 | {"layer_types": [GLOBAL] * 2, "num_hidden_layers": 2}
ALPHA: Json = {"alpha": 50.0, "factor": 1.0, "type": "dynamic"}
HUNYUAN = config(
    "HunYuanDenseV1ForCausalLM",
    "hunyuan_v1_dense",
    attention_bias=False,
    attention_head_dim=32,
    head_dim=32,
    rope_scaling=ALPHA,
    tie_word_embeddings=True,
)
HELIUM = config(
    "HeliumForCausalLM", "helium", attention_bias=False, head_dim=16, mlp_bias=False, rms_norm_eps=1e-08
)
MINISTRAL = config(
    "MinistralForCausalLM",
    "ministral",
    head_dim=32,
    layer_types=[LOCAL, GLOBAL],
    rms_norm_eps=1e-06,
    sliding_window=12,
)
YARN: Json = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 2.0,
    "llama_4_scaling_beta": 0.5,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 256,
    "rope_theta": 1000000.0,
    "rope_type": "yarn",
    "type": "yarn",
}
MINISTRAL3 = modern(
    config(
        "Ministral3ForCausalLM",
        "ministral3",
        head_dim=32,
        max_position_embeddings=512,
        sliding_window=None,
        vocab_size=32,
    ),
    YARN,
)
JAIS2 = config(
    "Jais2ForCausalLM",
    "jais2",
    attention_bias=True,
    head_dim=16,
    hidden_act="relu2",
    layer_norm_eps=1e-05,
    mlp_bias=True,
)
JAIS2.pop("rms_norm_eps")
APERTUS_ROPE: Json = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 5000.0,
    "rope_type": "llama3",
}
APERTUS = modern(
    config("ApertusForCausalLM", "apertus", attention_bias=False, hidden_act="xielu"), APERTUS_ROPE
)

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="jais2", seed=1114, config=JAIS2),
    CaseRow(name="apertus", seed=1123, config=APERTUS),
    CaseRow(name="glm", seed=1100, config=GLM),
    CaseRow(name="glm4", seed=1101, config=GLM4),
    CaseRow(name="ernie4_5", seed=1102, config=ERNIE),
    CaseRow(name="ernie4_5_bias", seed=1110, config=ERNIE | {"use_bias": True}),
    CaseRow(name="seed_oss", seed=1103, config=SEED_OSS),
    CaseRow(
        name="seed_oss_bias", seed=1112, config=SEED_OSS | {"attention_out_bias": True, "mlp_bias": True}
    ),
    CaseRow(name="exaone4", seed=1104, config=EXAONE4),
    CaseRow(name="exaone4_small", seed=1105, config=EXAONE4_SMALL),
    CaseRow(name="exaone4_global", seed=1113, config=EXAONE4_GLOBAL, lengths=(24, 9)),
    CaseRow(name="hunyuan_v1_dense", seed=1106, config=HUNYUAN),
    CaseRow(name="hunyuan_v1_dense_bias", seed=1111, config=HUNYUAN | {"attention_bias": True}),
    CaseRow(name="helium", seed=1107, config=HELIUM),
    CaseRow(name="ministral", seed=1108, config=MINISTRAL),
    CaseRow(name="ministral3", seed=1109, config=MINISTRAL3, lengths=(264, 19)),
)

WRONG: tuple[Mutation, ...] = (
    key("jais2", "rope_theta", 300.0),
    key("jais2", "layer_norm_eps", 0.05),
    key("jais2", "hidden_act", "relu"),
    without("jais2", "norm biases", "layernorm.bias", "model.norm.bias"),
    without("jais2", "attention biases", "q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"),
    without("jais2", "ffn biases", "up_proj.bias", "down_proj.bias"),
    key("apertus", "rms_norm_eps", 0.05),
    within("apertus", "rope_parameters", APERTUS_ROPE, factor=2.0),
    without("apertus", "q norm", "q_norm.weight"),
    without("apertus", "k norm", "k_norm.weight"),
    *(without("apertus", name, f"act_fn.{name}") for name in ("alpha_p", "alpha_n", "beta", "eps")),
    *common("glm"),
    key("glm", "partial_rotary_factor", 1.0),
    without("glm", "qkv bias", "_proj.bias"),
    *common("glm4"),
    key("glm4", "partial_rotary_factor", 1.0),
    without("glm4", "norm after attention", "post_self_attn_layernorm.weight"),
    without("glm4", "norm before mlp", "post_attention_layernorm.weight"),
    without("glm4", "norm after mlp", "post_mlp_layernorm.weight"),
    *common("ernie4_5"),
    without("ernie4_5_bias", "attention biases", "q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"),
    without("ernie4_5_bias", "ffn biases", "gate_proj.bias", "up_proj.bias", "down_proj.bias"),
    *common("seed_oss"),
    without("seed_oss", "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("seed_oss_bias", "o bias", "o_proj.bias"),
    without("seed_oss_bias", "ffn biases", "gate_proj.bias", "up_proj.bias", "down_proj.bias"),
    without("seed_oss", "norm before mlp", "post_attention_layernorm.weight"),
    *common("exaone4"),
    key("exaone4", "rope_scaling", None),
    key("exaone4", "layer_types", [LOCAL] * 4),
    Mutation("exaone4", "sliding_window one wider", {"sliding_window": 13}),
    without("exaone4", "q norm", "q_norm.weight"),
    without("exaone4", "k norm", "k_norm.weight"),
    without("exaone4", "norm after attention", "post_attention_layernorm.weight"),
    without("exaone4", "norm after mlp", "post_feedforward_layernorm.weight"),
    key("exaone4_small", "rope_theta", 300.0),
    Mutation("exaone4_global", "rotation", {"sliding_window": None, "sliding_window_pattern": None}),
    *common("hunyuan_v1_dense"),
    within("hunyuan_v1_dense", "rope_scaling", ALPHA, alpha=2.0),
    without("hunyuan_v1_dense", "q norm", "query_layernorm.weight"),
    without("hunyuan_v1_dense", "k norm", "key_layernorm.weight"),
    without("hunyuan_v1_dense_bias", "attention biases", "_proj.bias"),
    *common("helium"),
    *common("ministral"),
    key("ministral", "layer_types", [GLOBAL] * 2),
    Mutation("ministral", "sliding_window one wider", {"sliding_window": 13}),
    key("ministral3", "rms_norm_eps", 0.05),
    within("ministral3", "rope_parameters", YARN, llama_4_scaling_beta=0.0),
    within("ministral3", "rope_parameters", YARN, factor=4.0),
    within("ministral3", "rope_parameters", YARN, rope_theta=300.0),
    within("ministral3", "rope_parameters", YARN, mscale_all_dim=0.5),
    within("ministral3", "rope_parameters", YARN, original_max_position_embeddings=512),
)
