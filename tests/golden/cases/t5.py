"""T5 and its kin: logits of a decoder behind an encoder, hidden states of an encoder alone."""

from __future__ import annotations

from tests.golden.case_row import CaseRow, Json
from tests.golden.mutation import Mutation, key, refused, without

T5: Json = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 96,
    "d_kv": 32,
    "d_model": 64,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "relu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 256,
    "num_decoder_layers": 2,
    "num_heads": 3,
    "num_layers": 3,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "torch_dtype": "float32",
    "transformers_version": "4.31.0",
    "use_cache": True,
    "vocab_size": 96,
}
FLAN: Json = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MT5: Json = {**FLAN, "architectures": ["MT5ForConditionalGeneration"], "model_type": "mt5"}
UMT5: Json = {
    **FLAN,
    "architectures": ["UMT5ForConditionalGeneration"],
    "model_type": "umt5",
    "relative_attention_num_buckets": 16,
}
ENCODER: Json = {**FLAN, "architectures": ["T5EncoderModel"], "is_encoder_decoder": False}

# sources longer than the largest distance with a bias of its own
LENGTHS = (212, 40)
CASES: tuple[CaseRow, ...] = (
    CaseRow(name="t5", seed=4300, config=T5, lengths=LENGTHS),
    CaseRow(name="flan_t5", seed=4301, config=FLAN, lengths=LENGTHS, untied=True),
    CaseRow(name="mt5", seed=4302, config=MT5, untied=True),
    CaseRow(name="umt5", seed=4303, config=UMT5, untied=True),
    CaseRow(name="t5encoder", seed=4304, config=ENCODER),
)


def common(case: str, *, act: str) -> list[Mutation]:
    return [
        key(case, "layer_norm_epsilon", 0.05),
        key(case, "feed_forward_proj", act),
        refused(case, "relative_attention_max_distance", 64),
        without(case, "no encoder norm", "encoder.final_layer_norm.weight"),
    ]


WRONG: tuple[Mutation, ...] = (
    *common("t5", act="gelu"),
    refused("t5", "tie_word_embeddings", False),  # without a head of its own
    without("t5", "no decoder norm", "decoder.final_layer_norm.weight"),
    without("t5", "no cross norm", "decoder.block.1.layer.1.layer_norm.weight"),
    *common("flan_t5", act="gated-silu"),
    key("flan_t5", "tie_word_embeddings", True),
    without("flan_t5", "no norm before the MLP", "decoder.block.0.layer.2.layer_norm.weight"),
    *common("mt5", act="gated-relu"),
    *common("umt5", act="gated-silu"),
    without(
        "umt5",
        "bias of the second layer",
        "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight",
    ),
    *common("t5encoder", act="gated-silu"),
    refused("t5encoder", "is_decoder", True),  # a causal encoder
)
