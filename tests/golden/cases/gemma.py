"""Golden models of Gemma 1, 2 and 3."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, common, key, within, without

GEMMA = {
    "attention_bias": False,
    "head_dim": 32,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
}
# The activation's name is that of the first files.
GEMMA1 = config("GemmaForCausalLM", "gemma", **GEMMA | {"hidden_act": "gelu", "hidden_activation": None})
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
GEMMA3_LOCAL = "sliding_attention"
GEMMA3_GLOBAL = "full_attention"
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
LOCAL_ROPE = {"rope_theta": 100.0, "rope_type": "default"}
GLOBAL_ROPE = {"factor": 8.0, "rope_theta": 10000.0, "rope_type": "linear"}


def gemma3_rope(feature: str, *, local: Json = LOCAL_ROPE, full: Json = GLOBAL_ROPE) -> Mutation:
    rope = {GEMMA3_GLOBAL: full, GEMMA3_LOCAL: local}
    return Mutation("gemma3_rope_parameters", f"rope_parameters {feature}", {"rope_parameters": rope})


CASES: tuple[CaseRow, ...] = (
    CaseRow(name="gemma", seed=1060, config=GEMMA1),
    CaseRow(name="gemma2", seed=161, config=GEMMA2),
    CaseRow(name="gemma3", seed=171, config=GEMMA3),
    CaseRow(name="gemma3_rope_parameters", seed=172, config=GEMMA3_MODERN),
)

WRONG: tuple[Mutation, ...] = (
    *common("gemma"),
    without("gemma", "norms", "layernorm.weight"),
    *common("gemma2", act="hidden_activation"),
    key("gemma2", "attn_logit_softcapping", None),
    key("gemma2", "final_logit_softcapping", None),
    key("gemma2", "query_pre_attn_scalar", 32),
    key("gemma2", "sliding_window", 200),
    Mutation("gemma2", "sliding_window one wider", {"sliding_window": 11}),
    key("gemma2", "layer_types", ["full_attention", "sliding_attention", "full_attention"]),
    without("gemma2", "norm after attention", "post_attention_layernorm.weight"),
    without("gemma2", "norm after ffn", "post_feedforward_layernorm.weight"),
    *common("gemma3", act="hidden_activation"),
    key("gemma3", "rope_scaling", None),
    within("gemma3", "rope_scaling", GEMMA3["rope_scaling"], factor=2.0),
    key("gemma3", "rope_local_base_freq", 10000.0),
    key("gemma3", "query_pre_attn_scalar", 32),
    key("gemma3", "sliding_window", 200),
    Mutation("gemma3", "sliding_window one wider", {"sliding_window": 11}),
    key("gemma3", "sliding_window_pattern", 3),
    without("gemma3", "q norm", "q_norm.weight"),
    without("gemma3", "k norm", "k_norm.weight"),
    gemma3_rope("local theta", local=LOCAL_ROPE | {"rope_theta": 10000.0}),
    gemma3_rope("global theta", full=GLOBAL_ROPE | {"rope_theta": 300.0}),
    gemma3_rope("global factor", full=GLOBAL_ROPE | {"factor": 1.0}),
    Mutation("gemma3_rope_parameters", "layer_types", {"layer_types": GEMMA3_MODERN["layer_types"][::-1]}),
)
