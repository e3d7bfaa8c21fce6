"""Golden mixtures of experts with layers of their own: DBRX."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json
from tests.golden.mutation import Mutation, within, without

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

CASES: tuple[CaseRow, ...] = (CaseRow(name="dbrx", seed=7002, config=DBRX, lengths=(24, 13)),)

WRONG: tuple[Mutation, ...] = (
    within("dbrx", "attn_config", DBRX_ATTENTION, clip_qkv=2.0),
    within("dbrx", "ffn_config", DBRX_FFN, moe_top_k=2),
    within("dbrx", "ffn_config", DBRX_FFN, moe_normalize_expert_weights=None),
    within("dbrx", "rope_parameters", ROTATION, rope_theta=300.0),
    without("dbrx", "norm before the experts", "norm_2.weight"),
)
