"""Golden models of GPT-2, CodeShell, Refact, StarCoder 1 and 2, StableLM 1 and 2."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, key, without

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
CODESHELL = GPT2 | {
    "activation_function": "gelu_pytorch_tanh",
    "architectures": ["CodeShellForCausalLM"],
    "group_query_attention": True,
    "model_type": "codeshell",
    "n_inner": 96,
    "num_query_groups": 2,
    "position_embedding_type": "rope",
    "rope_scaling": None,
    "tie_word_embeddings": False,
}
JAIS = GPT2 | {
    "activation_function": "swiglu",
    "architectures": ["JAISLMHeadModel"],
    "model_type": "jais",
    "mup_embeddings_scale": 3.0,
    "mup_output_alpha": 2.0,
    "mup_scale_qk_dot_by_d": True,
    "mup_width_scale": 0.25,
    "n_inner": 96,
    "position_embedding_type": "alibi",
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}
STABLELM = config("StableLmForCausalLM", "stablelm") | {
    "hidden_dropout": 0.0,
    "layer_norm_eps": 1e-05,
    "partial_rotary_factor": 0.25,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "use_qkv_bias": True,
}
STABLELM.pop("rms_norm_eps")
STABLELM2 = STABLELM | {"qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": False}
BIGCODE = GPT2 | {
    "activation_function": "gelu_pytorch_tanh",
    "architectures": ["GPTBigCodeForCausalLM"],
    "attention_softmax_in_fp32": True,
    "model_type": "gpt_bigcode",
    "multi_query": True,
    "scale_attention_softmax_in_fp32": True,
}
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

REFACT = GPT2 | {
    "architectures": ["GPTRefactForCausalLM"],
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt_refact",
    "multi_query": True,
    "n_head": 6,  # no power of two: slopes of ALiBi follow two rules
    "n_embd": 96,
}
CASES: tuple[CaseRow, ...] = (
    CaseRow(name="gpt2", seed=191, config=GPT2),
    CaseRow(name="gpt2_bare_names", seed=192, config=GPT2, prefix="transformer.", masks=True),
    CaseRow(name="codeshell", seed=6301, config=CODESHELL),
    CaseRow(name="gpt_bigcode", seed=1080, config=BIGCODE),
    CaseRow(name="gpt_bigcode_heads", seed=1081, config=BIGCODE | {"multi_query": False}),
    CaseRow(name="jais", seed=6311, config=JAIS),
    CaseRow(name="refact", seed=6320, config=REFACT),
    CaseRow(name="stablelm", seed=231, config=STABLELM),
    CaseRow(name="stablelm2", seed=1082, config=STABLELM2),
    CaseRow(name="starcoder2", seed=241, config=STARCODER2),
    CaseRow(name="starcoder2_bare", seed=242, config=STARCODER2 | STARCODER2_BARE),
)

WRONG: tuple[Mutation, ...] = (
    key("refact", "layer_norm_epsilon", 0.05),
    without("refact", "norms", "ln_1.weight", "ln_2.weight"),
    without("refact", "keys and values", "attn.kv.weight"),
    without("refact", "mlp", "gate_up_proj.weight"),
    key("jais", "layer_norm_epsilon", 0.05),
    key("jais", "mup_embeddings_scale", 1.0),
    key("jais", "mup_output_alpha", 1.0),
    key("jais", "mup_width_scale", 1.0),
    key("jais", "mup_scale_qk_dot_by_d", False),
    without("jais", "norm biases", "ln_1.bias", "ln_2.bias"),
    without("jais", "qkv bias", "c_attn.bias"),
    without("jais", "o and down biases", "c_proj.bias"),
    without("jais", "gate bias", "c_fc2.bias"),
    without("jais", "last norm's bias", "ln_f.bias"),
    key("codeshell", "layer_norm_epsilon", 0.05),
    key("codeshell", "activation_function", "relu"),
    without("codeshell", "norm biases", "ln_1.bias", "ln_2.bias"),
    without("codeshell", "qkv bias", "c_attn.bias"),
    without("codeshell", "o and down biases", "c_proj.bias"),
    without("codeshell", "up bias", "c_fc.bias"),
    without("codeshell", "last norm's bias", "ln_f.bias"),
    key("gpt2", "layer_norm_epsilon", 0.05),
    key("gpt2", "activation_function", "relu"),
    key("gpt2", "scale_attn_by_inverse_layer_idx", True),
    without("gpt2", "attention biases", "c_attn.bias", "attn.c_proj.bias"),
    without("gpt2", "ffn biases", "c_fc.bias", "mlp.c_proj.bias"),
    without("gpt2", "norm biases", "ln_1.bias", "ln_2.bias", "ln_f.bias"),
    without("gpt2", "positions", "wpe.weight"),
    key("stablelm", "rope_theta", 10.0),
    key("stablelm", "layer_norm_eps", 0.05),
    key("stablelm", "hidden_act", "relu"),
    key("stablelm", "partial_rotary_factor", 0.5),
    key("stablelm", "use_parallel_residual", True),
    without("stablelm", "qkv bias", "_proj.bias"),
    without("stablelm", "norm biases", "norm.bias"),
    key("stablelm2", "rope_theta", 10.0),
    key("stablelm2", "layer_norm_eps", 0.05),
    without("stablelm2", "q norms", *(f"q_layernorm.norms.{i}.weight" for i in range(4))),
    without("stablelm2", "k norms", *(f"k_layernorm.norms.{i}.weight" for i in range(2))),
    key("gpt_bigcode", "layer_norm_epsilon", 0.05),
    key("gpt_bigcode", "activation_function", "relu"),
    key("gpt_bigcode", "scale_attn_weights", False),
    without("gpt_bigcode", "attention biases", "c_attn.bias", "attn.c_proj.bias"),
    without("gpt_bigcode", "ffn biases", "c_fc.bias", "mlp.c_proj.bias"),
    without("gpt_bigcode", "positions", "wpe.weight"),
    without("gpt_bigcode_heads", "attention biases", "c_attn.bias", "attn.c_proj.bias"),
    key("starcoder2", "rope_theta", 300.0),
    key("starcoder2", "norm_epsilon", 0.05),
    key("starcoder2", "hidden_act", "relu"),
    key("starcoder2", "sliding_window", None),
    Mutation("starcoder2", "sliding_window one wider", {"sliding_window": 13}),
    Mutation("starcoder2", "sliding_window one narrower", {"sliding_window": 11}),
    key("starcoder2", "tie_word_embeddings", False),
    without("starcoder2", "q bias", "q_proj.bias"),
    without("starcoder2", "k bias", "k_proj.bias"),
    without("starcoder2", "v bias", "v_proj.bias"),
    without("starcoder2", "o bias", "o_proj.bias"),
    without("starcoder2", "up bias", "c_fc.bias"),
    without("starcoder2", "down bias", "c_proj.bias"),
    without("starcoder2", "norm biases", "norm.bias"),
    key("starcoder2_bare", "sliding_window", 12),
    key("starcoder2_bare", "hidden_act", "relu"),
)
