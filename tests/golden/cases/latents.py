"""Golden models of latent attention: MiniCPM 3, PLM."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, common, key, within, without

LONG: Json = {
    "long_factor": [1.1, 1.4, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
    "original_max_position_embeddings": 24,
    "short_factor": [1.0, 1.05, 1.1, 1.3, 1.6, 2.0, 2.5, 3.0],
    "type": "longrope",
}
# The scales of the published model, which llama.cpp assumes.
MINICPM3 = config(
    "MiniCPM3ForCausalLM",
    "minicpm3",
    attention_bias=False,
    dim_model_base=256,
    kv_lora_rank=32,
    num_key_value_heads=4,
    q_lora_rank=64,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    rope_scaling=LONG,
    scale_depth=1.4,
    scale_emb=12,
    tie_word_embeddings=True,
    v_head_dim=16,
)
PLM = config(
    "PLMForCausalLM",
    "plm",
    attention_bias=False,
    hidden_act="relu2",
    kv_lora_rank=32,
    num_key_value_heads=4,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    rms_norm_eps=1e-6,
    rope_scaling=None,
    tie_word_embeddings=True,
    v_head_dim=32,
)

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="minicpm3", seed=6501, config=MINICPM3, lengths=(40, 25)),
    CaseRow(name="plm", seed=6511, config=PLM),
)

WRONG: tuple[Mutation, ...] = (
    key("minicpm3", "rope_theta", 300.0),
    key("minicpm3", "rms_norm_eps", 0.5),
    key("minicpm3", "hidden_act", "relu"),
    key("minicpm3", "scale_emb", 1),
    key("minicpm3", "scale_depth", 1.0),
    key("minicpm3", "dim_model_base", 64),
    within("minicpm3", "rope_scaling", LONG, long_factor=[1.0] * 8),
    without("minicpm3", "norm of the queries' latent", "q_a_layernorm.weight"),
    without("minicpm3", "norm of the latent", "kv_a_layernorm.weight"),
    *common("plm")[:2],
    without("plm", "norm of the latent", "kv_a_layernorm.weight"),
)
