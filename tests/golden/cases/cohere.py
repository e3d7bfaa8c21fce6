"""Golden models of Command R and R7B."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, config
from tests.golden.mutation import Mutation, key, without

COHERE = config(
    "CohereForCausalLM",
    "cohere",
    attention_bias=False,
    layer_norm_eps=1e-05,
    logit_scale=0.25,
    pad_token_id=0,
    rope_theta=10000.0,
    tie_word_embeddings=True,
    use_qk_norm=False,
)
COHERE.pop("rms_norm_eps")
COHERE_PLUS = COHERE | {"attention_bias": True, "hidden_size": 128, "use_qk_norm": True}
COHERE2 = {key: value for key, value in COHERE.items() if key != "use_qk_norm"} | {
    "architectures": ["Cohere2ForCausalLM"],
    "cache_implementation": "hybrid",
    "head_dim": 16,
    "model_type": "cohere2",
    "num_hidden_layers": 4,
    "order_of_interleaved_layers": "local_attn_first",
    "position_embedding_type": "rope_gptj",
    "sliding_window": 12,
    "sliding_window_pattern": 4,
}
LOCAL, GLOBAL = "sliding_attention", "full_attention"
COHERE2_GLOBAL = COHERE2 | {"layer_types": [GLOBAL] * 2, "num_hidden_layers": 2}

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="cohere", seed=1010, config=COHERE),
    CaseRow(name="cohere_plus", seed=1011, config=COHERE_PLUS),
    CaseRow(name="cohere2", seed=1012, config=COHERE2),
    CaseRow(name="cohere2_global", seed=1013, config=COHERE2_GLOBAL, lengths=(24, 9)),
)

WRONG: tuple[Mutation, ...] = (
    key("cohere", "rope_theta", 300.0),
    key("cohere", "layer_norm_eps", 0.05),
    key("cohere", "hidden_act", "relu"),
    key("cohere", "logit_scale", 0.5),
    without("cohere", "norms", "layernorm.weight"),
    without("cohere_plus", "q norm", "q_norm.weight"),
    without("cohere_plus", "k norm", "k_norm.weight"),
    without("cohere_plus", "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("cohere_plus", "o bias", "o_proj.bias"),
    key("cohere2", "rope_theta", 300.0),
    key("cohere2", "logit_scale", 0.5),
    Mutation("cohere2", "sliding_window one wider", {"sliding_window": 13}),
    key("cohere2", "layer_types", [LOCAL] * 4),
    Mutation("cohere2", "layer_types shifted", {"layer_types": [GLOBAL, LOCAL, LOCAL, LOCAL]}),
    Mutation("cohere2_global", "rotation", {"layer_types": [LOCAL] * 2, "sliding_window": 64}),
)
