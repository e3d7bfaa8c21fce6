"""Golden mixtures of experts with layers of their own: DBRX, Llama 4."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config, modern
from tests.golden.mutation import Mutation, key, within, without

DBRX_ATTENTION: Json = {"clip_qkv": 0.75, "kv_n_heads": 2, "rope_theta": 1000.0}
DBRX_FFN: Json = {
    "ffn_act_fn": {"name": "silu"},
    "ffn_hidden_size": 32,
    "moe_jitter_eps": 0.01,
    "moe_loss_weight": 0.05,
    "moe_normalize_expert_weights": 1.0,
    "moe_num_experts": 6,
    "moe_top_k": 3,
}
ROTATION: Json = {"rope_theta": 1000.0, "rope_type": "default"}
DBRX: Json = {
    "architectures": ["DbrxForCausalLM"],
    "attn_config": DBRX_ATTENTION,
    "d_model": 64,
    "dtype": "float32",
    "emb_pdrop": 0.0,
    "ffn_config": DBRX_FFN,
    "initializer_range": 0.02,
    "max_seq_len": 128,
    "model_type": "dbrx",
    "n_heads": 4,
    "n_layers": 2,
    "resid_pdrop": 0.0,
    "rope_parameters": ROTATION,
    "tie_word_embeddings": False,
    "transformers_version": "5.0.0",
    "use_cache": True,
    "vocab_size": 96,
}
LLAMA4_ROPE: Json = {
    "factor": 8.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 5000.0,
    "rope_type": "llama3",
}
# Dense layers between those of experts; chunks and the temperature's steps end within the sequences.
LLAMA4 = modern(
    config(
        "Llama4ForCausalLM",
        "llama4_text",
        attention_bias=False,
        attention_chunk_size=12,
        attn_scale=0.4,
        attn_temperature_tuning=True,
        floor_scale=7,
        head_dim=32,
        interleave_moe_layer_step=2,
        intermediate_size=32,
        intermediate_size_mlp=96,
        no_rope_layers=[1, 0, 1, 0],
        num_experts_per_tok=1,
        num_hidden_layers=4,
        num_local_experts=6,
        use_qk_norm=True,
    ),
    LLAMA4_ROPE,
)

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="dbrx", seed=7002, config=DBRX, lengths=(24, 13)),
    CaseRow(name="llama4", seed=7011, config=LLAMA4, lengths=(30, 13)),
)

WRONG: tuple[Mutation, ...] = (
    within("dbrx", "attn_config", DBRX_ATTENTION, clip_qkv=2.0),
    within("dbrx", "ffn_config", DBRX_FFN, moe_top_k=2),
    within("dbrx", "ffn_config", DBRX_FFN, moe_normalize_expert_weights=None),
    within("dbrx", "rope_parameters", ROTATION, rope_theta=300.0),
    without("dbrx", "norm before the experts", "norm_2.weight"),
    key("llama4", "rms_norm_eps", 0.05),
    key("llama4", "attention_chunk_size", 13),
    Mutation("llama4", "no chunks", {"attention_chunk_size": None}),
    key("llama4", "no_rope_layers", [1, 1, 1, 0]),
    key("llama4", "attn_scale", 0.1),
    key("llama4", "floor_scale", 8),
    key("llama4", "attn_temperature_tuning", False),
    key("llama4", "use_qk_norm", False),
    within("llama4", "rope_parameters", LLAMA4_ROPE, factor=2.0),
    without("llama4", "shared experts", "shared_expert.down_proj.weight"),
    without("llama4", "dense layers", "feed_forward.down_proj.weight"),
)
