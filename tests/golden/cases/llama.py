"""Golden models of Llama, Mistral, Mixtral, SmolLM3, BitNet, CogVLM, Llama with attention to both sides."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, common, key, refused, within, without

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
BITNET = config(
    "BitNetForCausalLM",
    "bitnet",
    attention_bias=False,
    hidden_act="relu2",
    rope_theta=500000.0,
    tie_word_embeddings=True,
)
# Published without model_type
COGVLM = config(
    "CogVLMForCausalLM",
    "cogvlm",
    pad_token_id=0,
    template_version="chat",
    vision_config={"hidden_act": "gelu", "hidden_size": 32, "num_hidden_layers": 1, "patch_size": 14},
)
COGVLM.pop("num_key_value_heads")
COGVLM.pop("rope_theta")
COGVLM2 = COGVLM | {"num_multi_query_heads": 2}
# As NVIDIA's llama-embed-nemotron-8b, with biases, which LlamaConfig allows
LLAMA_BIDIREC = LLAMA31 | {
    "architectures": ["LlamaBidirectionalModel"],
    "attention_bias": True,
    "mlp_bias": True,
    "model_type": "llama_bidirec",
    "pooling": "avg",
    "temperature": 1.0,
    "use_bidirectional_attention": True,
}
LINEAR_MAPS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="llama31", seed=101, config=LLAMA31, lengths=(44, 19)),
    CaseRow(
        name="llama31_rope_parameters",
        seed=102,
        config=modern(LLAMA, LLAMA3_ROPE | {"rope_theta": 5000.0}),
        lengths=(44, 19),
    ),
    CaseRow(name="llama_linear", seed=103, config=LLAMA_LINEAR),
    CaseRow(name="llama_bias", seed=104, config=LLAMA | {"attention_bias": True, "mlp_bias": True}),
    CaseRow(name="llama_bidirec", seed=105, config=LLAMA_BIDIREC, lengths=(44, 19), pooling="mean"),
    CaseRow(name="mistral", seed=111, config=MISTRAL),
    CaseRow(name="mixtral", seed=121, config=MIXTRAL),
    CaseRow(name="mixtral_window", seed=123, config=MIXTRAL | {"sliding_window": 12}),
    CaseRow(name="smollm3", seed=221, config=SMOLLM3),
    CaseRow(name="bitnet", seed=232, config=BITNET),
    CaseRow(name="cogvlm", seed=241, config=COGVLM),
    CaseRow(name="cogvlm2", seed=242, config=COGVLM2),
)


def own(case: str) -> list[Mutation]:
    """Wrong facts of CogVLM, whose classes have a constant in place of rope_theta."""
    norms = {"first": "input_layernorm", "second": "post_attention_layernorm", "last": "model.norm"}
    return [
        refused(case, "rope_theta", 300.0),
        key(case, "rms_norm_eps", 0.05),
        key(case, "hidden_act", "relu"),
        *(without(case, f"{name} norm", f"{ending}.weight") for name, ending in norms.items()),
    ]


WRONG: tuple[Mutation, ...] = (
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
    *common("llama_bidirec"),
    key("llama_bidirec", "rope_scaling", None),
    refused("llama_bidirec", "use_bidirectional_attention", False),
    *(without("llama_bidirec", f"no {name} bias", f"{name}.bias") for name in LINEAR_MAPS),
    *common("mistral"),
    key("mistral", "sliding_window", None),
    Mutation("mistral", "sliding_window one wider", {"sliding_window": 13}),
    Mutation("mistral", "sliding_window one narrower", {"sliding_window": 11}),
    *common("mixtral"),
    key("mixtral", "num_experts_per_tok", 1),
    Mutation("mixtral", "num_experts_per_tok all", {"num_experts_per_tok": 4}),
    key("mixtral_window", "sliding_window", None),
    Mutation("mixtral_window", "sliding_window one wider", {"sliding_window": 13}),
    *common("smollm3"),
    key("smollm3", "no_rope_layers", [1, 1, 1, 1]),
    Mutation("smollm3", "no_rope_layers shifted", {"no_rope_layers": [0, 1, 1, 1]}),
    *common("bitnet"),
    without("bitnet", "attention sub norm", "attn_sub_norm.weight"),
    without("bitnet", "ffn sub norm", "ffn_sub_norm.weight"),
    *own("cogvlm"),
    key("cogvlm", "num_multi_query_heads", 4),  # CogVLM2's rotation
    *own("cogvlm2"),
)
