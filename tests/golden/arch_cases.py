"""The tiny models of archs/: published configs with reduced sizes.

Each uses the features of its architecture: sequences exceed the windows and the original contexts, experts
outnumber the selected experts, multipliers differ from 1. make_archs.py turns rows into files.
"""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.cases import CASES
from tests.golden.hybrid_cases import GRANITE_HYBRID, GRANITE_HYBRID_DENSE, QWEN3_NEXT

LLAMA3_ROPE: Json = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}
LLAMA = config(
    "LlamaForCausalLM",
    "llama",
    attention_bias=False,
    head_dim=32,
    mlp_bias=False,
    pretraining_tp=1,
    rope_scaling=None,
)
LLAMA31 = LLAMA | {"rope_scaling": LLAMA3_ROPE, "rope_theta": 5000.0}
# Without head_dim, as in the llama files of 2023, and with that year's rope_scaling
LLAMA_LINEAR = {key: value for key, value in LLAMA.items() if key != "head_dim"} | {
    "rope_scaling": {"factor": 4.0, "type": "linear"},
    "tie_word_embeddings": True,
}

MISTRAL = config("MistralForCausalLM", "mistral", head_dim=32, sliding_window=12)
MIXTRAL = config(
    "MixtralForCausalLM",
    "mixtral",
    num_experts_per_tok=2,
    num_local_experts=4,
    output_router_logits=False,
    rope_theta=1000000.0,
    router_aux_loss_coef=0.02,
    sliding_window=None,
)

# A window is present, as in the published files, but disabled.
QWEN2 = config(
    "Qwen2ForCausalLM",
    "qwen2",
    max_window_layers=1,
    rms_norm_eps=1e-06,
    rope_theta=1000000.0,
    sliding_window=8,
    tie_word_embeddings=True,
    use_sliding_window=False,
)
YARN: Json = {"factor": 4.0, "original_max_position_embeddings": 24, "type": "yarn"}
QWEN3 = config(
    "Qwen3ForCausalLM",
    "qwen3",
    attention_bias=False,
    head_dim=32,
    max_window_layers=2,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000000.0,
    sliding_window=None,
    tie_word_embeddings=True,
    use_sliding_window=False,
)
QWEN3_MOE = config(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    attention_bias=False,
    decoder_sparse_step=1,
    head_dim=32,
    max_window_layers=2,
    mlp_only_layers=[],
    moe_intermediate_size=32,
    norm_topk_prob=True,
    num_experts=8,
    num_experts_per_tok=3,
    output_router_logits=False,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=1000000.0,
    router_aux_loss_coef=0.001,
    sliding_window=None,
    use_sliding_window=False,
)

GEMMA = {
    "attention_bias": False,
    "head_dim": 32,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
}
GEMMA2 = config(
    "Gemma2ForCausalLM",
    "gemma2",
    **GEMMA,
    attn_logit_softcapping=5.0,
    cache_implementation="hybrid",
    final_logit_softcapping=6.0,
    num_hidden_layers=3,
    query_pre_attn_scalar=20,
    sliding_window=10,
)
GEMMA3 = config(
    "Gemma3ForCausalLM",
    "gemma3_text",
    **GEMMA,
    attn_logit_softcapping=None,
    cache_implementation="hybrid",
    final_logit_softcapping=None,
    num_hidden_layers=5,
    query_pre_attn_scalar=12,
    rope_local_base_freq=100.0,
    rope_scaling={"factor": 8.0, "rope_type": "linear"},
    rope_theta=10000.0,
    sliding_window=10,
    sliding_window_pattern=4,
)
GEMMA3_LOCAL, GEMMA3_GLOBAL = "sliding_attention", "full_attention"
GEMMA3_MODERN = modern(
    GEMMA3,
    {
        GEMMA3_GLOBAL: {"factor": 8.0, "rope_theta": 10000.0, "rope_type": "linear"},
        GEMMA3_LOCAL: {"rope_theta": 100.0, "rope_type": "default"},
    },
    layer_types=[GEMMA3_LOCAL, GEMMA3_LOCAL, GEMMA3_GLOBAL, GEMMA3_LOCAL],
    num_hidden_layers=4,
    use_bidirectional_attention=False,
)

PHI3 = config(
    "Phi3ForCausalLM",
    "phi3",
    attention_bias=False,
    embd_pdrop=0.0,
    original_max_position_embeddings=24,
    pad_token_id=0,
    resid_pdrop=0.0,
    rope_scaling={
        "long_factor": [1.1, 1.4, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
        "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0],
        "type": "longrope",
    },
    sliding_window=200,
)
PHI4_MINI = PHI3 | {
    "partial_rotary_factor": 0.75,
    "rope_scaling": {
        "long_factor": [1.2, 1.6, 2.4, 4.0, 8.0, 15.0],
        "short_factor": [1.0, 1.0, 1.2, 1.5, 2.0, 3.0],
        "type": "longrope",
    },
    "sliding_window": None,
    "tie_word_embeddings": True,
}

GPT2: Json = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 2,
    "embd_pdrop": 0.1,
    "eos_token_id": 2,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 64,
    "n_embd": 64,
    "n_head": 4,
    "n_inner": None,
    "n_layer": 2,
    "n_positions": 64,
    "resid_pdrop": 0.1,
    "scale_attn_weights": True,
    "torch_dtype": "float32",
    "transformers_version": "4.46.0",
    "use_cache": True,
    "vocab_size": 96,
}
OLMO2 = config(
    "Olmo2ForCausalLM",
    "olmo2",
    attention_bias=False,
    pad_token_id=0,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=500000.0,
)
OLMO3_ROPE: Json = {
    "attention_factor": 1.2079441541679836,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 8.0,
    "original_max_position_embeddings": 24,
    "rope_theta": 200.0,
    "rope_type": "yarn",
}
# With rope_parameters: transformers 5 applies the published rope_theta to the full layers only.
OLMO3 = modern(
    config("Olmo3ForCausalLM", "olmo3", attention_bias=False, pad_token_id=0, rms_norm_eps=1e-06),
    {"full_attention": OLMO3_ROPE, "sliding_attention": {"rope_theta": 200.0, "rope_type": "default"}},
    layer_types=["sliding_attention"] * 3 + ["full_attention"],
    num_hidden_layers=4,
    sliding_window=12,
)
GRANITE = config(
    "GraniteForCausalLM",
    "granite",
    attention_bias=False,
    attention_multiplier=0.15,
    embedding_multiplier=3.0,
    logits_scaling=4.0,
    mlp_bias=False,
    pad_token_id=0,
    residual_multiplier=0.4,
    rope_scaling=None,
    tie_word_embeddings=True,
)
SMOLLM3 = config(
    "SmolLM3ForCausalLM",
    "smollm3",
    attention_bias=False,
    layer_types=["full_attention"] * 4,
    max_window_layers=4,
    mlp_bias=False,
    no_rope_layer_interval=4,
    no_rope_layers=[1, 1, 1, 0],
    num_hidden_layers=4,
    pad_token_id=0,
    pretraining_tp=1,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=5000.0,
    sliding_window=None,
    tie_word_embeddings=True,
    use_sliding_window=False,
)
STABLELM = config("StableLmForCausalLM", "stablelm") | {
    "hidden_dropout": 0.0,
    "layer_norm_eps": 1e-05,
    "partial_rotary_factor": 0.25,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "use_qkv_bias": True,
}
STABLELM.pop("rms_norm_eps")
# Without tie_word_embeddings, as in the published files: the default is tied.
STARCODER2 = config("Starcoder2ForCausalLM", "starcoder2") | {
    "embedding_dropout": 0.1,
    "hidden_act": "gelu_pytorch_tanh",
    "mlp_type": "default",
    "norm_epsilon": 1e-05,
    "norm_type": "layer_norm",
    "residual_dropout": 0.1,
    "sliding_window": 12,
    "use_bias": True,
}
STARCODER2.pop("rms_norm_eps")
STARCODER2.pop("tie_word_embeddings")
STARCODER2_BARE = {"sliding_window": None, "tie_word_embeddings": False, "use_bias": False}

ROWS: tuple[CaseRow, ...] = (
    CaseRow(name="llama31", seed=101, config=LLAMA31, lengths=(44, 19)),
    CaseRow(
        name="llama31_rope_parameters",
        seed=102,
        config=modern(LLAMA, LLAMA3_ROPE | {"rope_theta": 5000.0}),
        lengths=(44, 19),
    ),
    CaseRow(name="llama_linear", seed=103, config=LLAMA_LINEAR),
    CaseRow(name="llama_bias", seed=104, config=LLAMA | {"attention_bias": True, "mlp_bias": True}),
    CaseRow(name="mistral", seed=111, config=MISTRAL),
    CaseRow(name="mixtral", seed=121, config=MIXTRAL),
    CaseRow(name="mixtral_window", seed=123, config=MIXTRAL | {"sliding_window": 12}),
    CaseRow(name="qwen2", seed=131, config=QWEN2),
    CaseRow(name="qwen2_yarn", seed=132, config=QWEN2 | {"rope_scaling": YARN, "rope_theta": 200.0}),
    CaseRow(name="qwen3", seed=141, config=QWEN3),
    CaseRow(
        name="qwen3_rope_parameters",
        seed=142,
        config=modern(QWEN3, {"rope_theta": 1000000.0, "rope_type": "default"}, tie_word_embeddings=False),
    ),
    CaseRow(name="qwen3_moe", seed=152, config=QWEN3_MOE),
    CaseRow(name="qwen3_moe_raw_probs", seed=155, config=QWEN3_MOE | {"norm_topk_prob": False}),
    CaseRow(name="qwen3_next", seed=266, config=QWEN3_NEXT),
    CaseRow(name="gemma2", seed=161, config=GEMMA2),
    CaseRow(name="gemma3", seed=171, config=GEMMA3),
    CaseRow(name="gemma3_rope_parameters", seed=172, config=GEMMA3_MODERN),
    CaseRow(name="phi3_short", seed=181, config=PHI3, lengths=(24, 17)),  # 24: the longest short sequence
    CaseRow(name="phi3_long", seed=182, config=PHI3, lengths=(40, 25)),
    CaseRow(name="phi3_partial", seed=183, config=PHI4_MINI),
    CaseRow(name="gpt2", seed=191, config=GPT2),
    CaseRow(name="gpt2_bare_names", seed=192, config=GPT2, prefix="transformer.", masks=True),
    CaseRow(name="olmo2", seed=201, config=OLMO2),
    CaseRow(name="olmo3", seed=202, config=OLMO3),
    CaseRow(name="granite", seed=211, config=GRANITE),
    CaseRow(name="granitemoehybrid", seed=255, config=GRANITE_HYBRID),
    CaseRow(name="granitemoehybrid_dense", seed=252, config=GRANITE_HYBRID_DENSE),
    CaseRow(name="smollm3", seed=221, config=SMOLLM3),
    CaseRow(name="stablelm", seed=231, config=STABLELM),
    CaseRow(name="starcoder2", seed=241, config=STARCODER2),
    CaseRow(name="starcoder2_bare", seed=242, config=STARCODER2 | STARCODER2_BARE),
    *CASES,
)
