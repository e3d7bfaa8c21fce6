"""Golden models of GPT-J and GPT-NeoX (Pythia)."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.cases.gpt import GPT2
from tests.golden.mutation import Mutation, key, within, without

GPTJ: Json = {key: value for key, value in GPT2.items() if key != "scale_attn_weights"} | {
    "architectures": ["GPTJForCausalLM"],
    "model_type": "gptj",
    "rotary_dim": 8,
    "tie_word_embeddings": False,
}
GPT_NEOX = config("GPTNeoXForCausalLM", "gpt_neox") | {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-05,
    "rotary_emb_base": 1000,
    "rotary_pct": 0.5,
    "use_parallel_residual": True,
}
for name in ("num_key_value_heads", "rms_norm_eps", "rope_theta"):
    GPT_NEOX.pop(name)
ROPE: Json = {"partial_rotary_factor": 0.25, "rope_theta": 1000.0, "rope_type": "default"}
OLD_ROPE = ("rotary_emb_base", "rotary_pct")
SEQUENTIAL = modern({key: value for key, value in GPT_NEOX.items() if key not in OLD_ROPE}, ROPE) | {
    "attention_bias": False,
    "use_parallel_residual": False,
}

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="gptj", seed=1020, config=GPTJ),
    CaseRow(name="gpt_neox", seed=1021, config=GPT_NEOX),
    CaseRow(name="gpt_neox_sequential", seed=1022, config=SEQUENTIAL),
)

WRONG: tuple[Mutation, ...] = (
    key("gptj", "layer_norm_epsilon", 0.05),
    key("gptj", "activation_function", "relu"),
    key("gptj", "rotary_dim", 16),
    without("gptj", "ffn biases", "fc_in.bias", "fc_out.bias"),
    without("gptj", "norm biases", "ln_1.bias", "ln_f.bias"),
    without("gptj", "head bias", "lm_head.bias"),
    key("gpt_neox", "rotary_emb_base", 100),
    key("gpt_neox", "rotary_pct", 0.25),
    key("gpt_neox", "layer_norm_eps", 0.05),
    key("gpt_neox", "hidden_act", "relu"),
    key("gpt_neox", "use_parallel_residual", False),
    without("gpt_neox", "norm of mlp", "post_attention_layernorm.weight"),
    without("gpt_neox", "attention biases", "query_key_value.bias", "dense.bias"),
    without("gpt_neox", "ffn biases", "h_to_4h.bias", "4h_to_h.bias"),
    key("gpt_neox_sequential", "use_parallel_residual", True),
    within("gpt_neox_sequential", "rope_parameters", ROPE, rope_theta=100.0),
    within("gpt_neox_sequential", "rope_parameters", ROPE, partial_rotary_factor=0.5),
)
