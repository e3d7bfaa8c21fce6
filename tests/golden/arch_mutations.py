"""One wrong fact per row: with it, a golden model of archs/ must produce other logits.

make_archs.py proves with transformers that each row moves the logits (NMSE above LEAST). A row changes keys
of config.json; or, where no key controls the feature, it makes tensors neutral: biases 0, norms 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.golden.arch_cases import (
    GEMMA3,
    GEMMA3_GLOBAL,
    GEMMA3_LOCAL,
    GEMMA3_MODERN,
    LLAMA3_ROPE,
    LLAMA_LINEAR,
    OLMO3,
    OLMO3_ROPE,
    PHI3,
    PHI4_MINI,
    YARN,
)

Json = dict[str, Any]
LEAST = 1e-5


@dataclass(frozen=True, slots=True)
class Mutation:
    """A feature of a case, and a change to it that must move the logits."""

    case: str
    feature: str
    config: Json
    neutral: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.case}-{self.feature.replace(' ', '_')}"


def key(case: str, name: str, value: Any) -> Mutation:
    return Mutation(case, name, {name: value})


def within(case: str, key: str, old: Json, **changes: Any) -> Mutation:
    """Changes items of the dict at `key` of the config."""
    return Mutation(case, f"{key} {' '.join(changes)}", {key: old | changes})


def without(case: str, feature: str, *endings: str) -> Mutation:
    return Mutation(case, feature, {}, endings)


def common(case: str, *, act: str = "hidden_act") -> list[Mutation]:
    """Mutations for all architectures. The epsilon is far off, as a tiny model's hidden states are
    of size 1.
    """
    return [key(case, "rope_theta", 300.0), key(case, "rms_norm_eps", 0.05), key(case, act, "relu")]


PLAIN_ROPE = {"rope_theta": 200.0, "rope_type": "default"}
LOCAL_ROPE = {"rope_theta": 100.0, "rope_type": "default"}
GLOBAL_ROPE = {"factor": 8.0, "rope_theta": 10000.0, "rope_type": "linear"}


def gemma3_rope(feature: str, *, local: Json = LOCAL_ROPE, full: Json = GLOBAL_ROPE) -> Mutation:
    rope = {GEMMA3_GLOBAL: full, GEMMA3_LOCAL: local}
    return Mutation("gemma3_rope_parameters", f"rope_parameters {feature}", {"rope_parameters": rope})


def longrope(case: str, old: Json, used: str) -> list[Mutation]:
    scaling = old["rope_scaling"]
    return [
        within(case, "rope_scaling", scaling, **{used: [1.0] * len(scaling[used])}),
        key(case, "rope_scaling", None),
        key(case, "max_position_embeddings", 24),  # ratio to the original: attention factor
    ]


MUTATIONS = (
    *common("llama31"),
    key("llama31", "rope_scaling", None),
    within("llama31", "rope_scaling", LLAMA3_ROPE, factor=2.0),
    within("llama31", "rope_scaling", LLAMA3_ROPE, low_freq_factor=0.25),
    within("llama31", "rope_scaling", LLAMA3_ROPE, high_freq_factor=16.0),
    within("llama31", "rope_scaling", LLAMA3_ROPE, original_max_position_embeddings=128),
    key("llama31_rope_parameters", "rope_parameters", {"rope_theta": 5000.0, "rope_type": "default"}),
    within("llama31_rope_parameters", "rope_parameters", LLAMA3_ROPE, rope_theta=300.0),
    *common("llama_linear"),
    key("llama_linear", "rope_scaling", None),
    within("llama_linear", "rope_scaling", LLAMA_LINEAR["rope_scaling"], factor=2.0),
    without("llama_bias", "q bias", "q_proj.bias"),
    without("llama_bias", "k bias", "k_proj.bias"),
    without("llama_bias", "v bias", "v_proj.bias"),
    without("llama_bias", "o bias", "o_proj.bias"),
    without("llama_bias", "gate bias", "gate_proj.bias"),
    without("llama_bias", "up bias", "up_proj.bias"),
    without("llama_bias", "down bias", "down_proj.bias"),
    *common("mistral"),
    key("mistral", "sliding_window", None),
    Mutation("mistral", "sliding_window one wider", {"sliding_window": 13}),
    Mutation("mistral", "sliding_window one narrower", {"sliding_window": 11}),
    *common("mixtral"),
    key("mixtral", "num_experts_per_tok", 1),
    Mutation("mixtral", "num_experts_per_tok all", {"num_experts_per_tok": 4}),
    key("mixtral_window", "sliding_window", None),
    Mutation("mixtral_window", "sliding_window one wider", {"sliding_window": 13}),
    *common("qwen2"),
    without("qwen2", "qkv bias", "_proj.bias"),
    key("qwen2", "use_sliding_window", True),
    key("qwen2_yarn", "rope_scaling", None),
    within("qwen2_yarn", "rope_scaling", YARN, factor=2.0),
    within("qwen2_yarn", "rope_scaling", YARN, attention_factor=1.0),
    within("qwen2_yarn", "rope_scaling", YARN, original_max_position_embeddings=96),
    within("qwen2_yarn", "rope_scaling", YARN, beta_fast=1.5),
    within("qwen2_yarn", "rope_scaling", YARN, beta_slow=0.25),
    *common("qwen3"),
    without("qwen3", "q norm", "q_norm.weight"),
    without("qwen3", "k norm", "k_norm.weight"),
    key("qwen3_rope_parameters", "rope_parameters", {"rope_theta": 300.0, "rope_type": "default"}),
    key("qwen3_rope_parameters", "rms_norm_eps", 0.05),
    *common("qwen3_moe"),
    key("qwen3_moe", "norm_topk_prob", False),
    key("qwen3_moe", "num_experts_per_tok", 2),
    without("qwen3_moe", "q norm", "q_norm.weight"),
    without("qwen3_moe", "k norm", "k_norm.weight"),
    key("qwen3_moe_raw_probs", "norm_topk_prob", True),
    key("qwen3_moe_raw_probs", "num_experts_per_tok", 4),
    *common("qwen3_next"),
    key("qwen3_next", "norm_topk_prob", False),
    key("qwen3_next", "num_experts_per_tok", 2),
    key("qwen3_next", "partial_rotary_factor", 0.5),
    Mutation("qwen3_next", "one key head", {"linear_num_key_heads": 1, "linear_key_head_dim": 64}),
    without("qwen3_next", "q norm", "q_norm.weight"),
    without("qwen3_next", "k norm", "k_norm.weight"),
    without("qwen3_next", "attention layers", "o_proj.weight"),
    without("qwen3_next", "delta layers", "linear_attn.out_proj.weight"),
    without("qwen3_next", "conv", "linear_attn.conv1d.weight"),
    without("qwen3_next", "corrections and decays", "linear_attn.in_proj_ba.weight"),
    without("qwen3_next", "decays", "linear_attn.A_log"),
    without("qwen3_next", "dt bias", "linear_attn.dt_bias"),
    without("qwen3_next", "norm of the scan", "linear_attn.norm.weight"),
    without("qwen3_next", "shared expert", "shared_expert.down_proj.weight"),
    without("qwen3_next", "gate of the shared expert", "shared_expert_gate.weight"),
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
    *common("phi3_short"),
    *longrope("phi3_short", PHI3, "short_factor"),
    key("phi3_short", "original_max_position_embeddings", 23),
    key("phi3_short", "sliding_window", 12),
    *common("phi3_long"),
    *longrope("phi3_long", PHI3, "long_factor"),
    key("phi3_long", "original_max_position_embeddings", 100),
    Mutation(
        "phi3_partial",
        "partial_rotary_factor",
        {"partial_rotary_factor": 1.0, "rope_scaling": PHI3["rope_scaling"]},
    ),
    within("phi3_partial", "rope_scaling", PHI4_MINI["rope_scaling"], long_factor=[1.0] * 6),
    within("phi3_partial", "rope_scaling", PHI4_MINI["rope_scaling"], short_factor=[1.0] * 6),
    key("phi3_partial", "original_max_position_embeddings", 100),
    key("gpt2", "layer_norm_epsilon", 0.05),
    key("gpt2", "activation_function", "relu"),
    key("gpt2", "scale_attn_by_inverse_layer_idx", True),
    without("gpt2", "attention biases", "c_attn.bias", "attn.c_proj.bias"),
    without("gpt2", "ffn biases", "c_fc.bias", "mlp.c_proj.bias"),
    without("gpt2", "norm biases", "ln_1.bias", "ln_2.bias", "ln_f.bias"),
    without("gpt2", "positions", "wpe.weight"),
    *common("olmo2"),
    without("olmo2", "q norm", "q_norm.weight"),
    without("olmo2", "k norm", "k_norm.weight"),
    without("olmo2", "norm after attention", "post_attention_layernorm.weight"),
    without("olmo2", "norm after ffn", "post_feedforward_layernorm.weight"),
    key("olmo3", "rms_norm_eps", 0.05),
    key("olmo3", "hidden_act", "relu"),
    within("olmo3", "rope_parameters", OLMO3["rope_parameters"], full_attention=PLAIN_ROPE),
    within("olmo3", "rope_parameters", OLMO3["rope_parameters"], sliding_attention=OLMO3_ROPE),
    key("olmo3", "sliding_window", 13),
    key("olmo3", "layer_types", ["full_attention"] * 4),
    *common("granite"),
    key("granite", "attention_multiplier", 0.25),
    key("granite", "embedding_multiplier", 1.0),
    key("granite", "logits_scaling", 1.0),
    key("granite", "residual_multiplier", 1.0),
    key("granitemoehybrid", "rms_norm_eps", 0.05),
    key("granitemoehybrid", "hidden_act", "relu"),
    key("granitemoehybrid", "attention_multiplier", 0.6),
    key("granitemoehybrid", "embedding_multiplier", 1.0),
    key("granitemoehybrid", "logits_scaling", 1.0),
    key("granitemoehybrid", "residual_multiplier", 1.0),
    key("granitemoehybrid", "num_experts_per_tok", 1),
    Mutation("granitemoehybrid", "num_experts_per_tok all", {"num_experts_per_tok": 6}),
    key("granitemoehybrid", "position_embedding_type", "rope"),
    key("granitemoehybrid", "time_step_limit", [0.0, 0.5]),
    Mutation("granitemoehybrid", "one group", {"mamba_n_groups": 1, "mamba_d_state": 32}),
    without("granitemoehybrid", "shared expert", "shared_mlp.output_linear.weight"),
    without("granitemoehybrid", "experts", "block_sparse_moe.output_linear.weight"),
    without("granitemoehybrid", "decays", "mamba.A_log"),
    without("granitemoehybrid", "skip", "mamba.D"),
    without("granitemoehybrid", "dt bias", "mamba.dt_bias"),
    without("granitemoehybrid", "conv bias", "mamba.conv1d.bias"),
    without("granitemoehybrid", "conv", "mamba.conv1d.weight"),
    without("granitemoehybrid", "norm of the scan", "mamba.norm.weight"),
    without("granitemoehybrid", "mamba layers", "mamba.out_proj.weight"),
    without("granitemoehybrid", "attention layers", "o_proj.weight"),
    key("granitemoehybrid_dense", "rope_theta", 300.0),
    key("granitemoehybrid_dense", "position_embedding_type", "nope"),
    without("granitemoehybrid_dense", "qkv bias", "q_proj.bias", "k_proj.bias", "v_proj.bias"),
    without("granitemoehybrid_dense", "o bias", "o_proj.bias"),
    without("granitemoehybrid_dense", "skip", "mamba.D"),
    *common("smollm3"),
    key("smollm3", "no_rope_layers", [1, 1, 1, 1]),
    Mutation("smollm3", "no_rope_layers shifted", {"no_rope_layers": [0, 1, 1, 1]}),
    key("stablelm", "rope_theta", 10.0),
    key("stablelm", "layer_norm_eps", 0.05),
    key("stablelm", "hidden_act", "relu"),
    key("stablelm", "partial_rotary_factor", 0.5),
    key("stablelm", "use_parallel_residual", True),
    without("stablelm", "qkv bias", "_proj.bias"),
    without("stablelm", "norm biases", "norm.bias"),
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
