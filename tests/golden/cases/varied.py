"""Golden models whose layers differ in heads and widths: OpenELM, DeciLM."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json, config
from tests.golden.mutation import Mutation, common, key, without

OPENELM: Json = {
    "activation_fn_name": "swish",
    "architectures": ["OpenELMForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "ffn_dim_divisor": 32,
    "ffn_multipliers": [0.5, 1.1, 2.0],
    "ffn_with_glu": True,
    "head_dim": 32,
    "initializer_range": 0.02,
    "max_context_length": 128,
    "model_dim": 64,
    "model_type": "openelm",
    "normalization_layer_name": "rms_norm",
    "normalize_qk_projections": True,
    "num_gqa_groups": 2,
    "num_kv_heads": [1, 2, 3],
    "num_query_heads": [2, 4, 6],
    "num_transformer_layers": 3,
    "qkv_multipliers": [0.5, 1.0],
    "rope_freq_constant": 10000,
    "rope_max_length": 256,
    "share_input_output_layers": True,
    "torch_dtype": "float32",
    "transformers_version": "4.39.3",
    "use_cache": True,
    "vocab_size": 96,
}
DECI = config("DeciLMForCausalLM", "deci", num_hidden_layers=3, num_key_value_heads_per_layer=[4, 1, 2])
DECI.pop("num_key_value_heads")


def block(heads_in_group: int | None, ffn_mult: float | None, *, linear: bool = False) -> Json:
    attention = {"n_heads_in_group": heads_in_group, "no_op": False, "replace_with_linear": linear}
    return {
        "attention": attention,
        "ffn": {"ffn_mult": ffn_mult, "no_op": False, "replace_with_linear": False},
    }


# Attention of two widths, a matrix in its place, no attention, and an empty layer.
NEMOTRON_NAS = config(
    "DeciLMForCausalLM",
    "nemotron-nas",
    block_configs=[
        block(1, 2.0),
        block(None, 2.0, linear=True),
        block(None, 5.0),
        block(None, None),
        block(2, 2.0),
    ],
    num_hidden_layers=5,
)
NEMOTRON_NAS.pop("num_key_value_heads")
NEMOTRON_NAS.pop("intermediate_size")

CASES: tuple[CaseRow, ...] = (
    CaseRow(name="openelm", seed=6401, config=OPENELM),
    CaseRow(name="deci", seed=6411, config=DECI),
    CaseRow(name="nemotron_nas", seed=6421, config=NEMOTRON_NAS),
)

WRONG: tuple[Mutation, ...] = (
    key("openelm", "rope_freq_constant", 300.0),
    key("openelm", "activation_fn_name", "relu"),
    without("openelm", "q norm", "q_norm.weight"),
    without("openelm", "k norm", "k_norm.weight"),
    *common("deci"),
    *common("nemotron_nas"),
    without("nemotron_nas", "matrix in place of attention", "layers.1.self_attn.o_proj.weight"),
    without("nemotron_nas", "layer without attention", "layers.2.mlp.down_proj.weight"),
)
