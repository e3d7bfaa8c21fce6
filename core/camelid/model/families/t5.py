"""T5 (arXiv 1910.10683) and its kin: an encoder, and a decoder that attends to the encoder's rows.

Scores are unscaled and have a bias by bucketed distance. T5 has ReLU and a tied head that scales logits;
version 1.1 and Flan-T5 have gates and a head of their own. mT5 (arXiv 2010.11934) is version 1.1 in many
languages; UMT5 has a bias in each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import DENSE, Arch

KEYS: hf.Names = {
    "embedding_length": "d_model",
    "block_count": "num_layers",
    "feed_forward_length": "d_ff",
    "attention.head_count": "num_heads",
    "attention.head_count_kv": "num_heads",
    "attention.key_length": "d_kv",
    "context_length": "n_positions",  # distances have no bound, but training had one
    "norm_eps": "layer_norm_epsilon",
    "hidden_activation": "feed_forward_proj",
}
DEFAULTS = {
    "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "n_positions": 512,
    "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "relative_attention_num_buckets": 32,
    "pad_token_id": 0,
}  # fmt: skip
MT5_DEFAULTS = {
    **DEFAULTS, "num_layers": 8, "num_heads": 6, "d_ff": 1024, "feed_forward_proj": "gated-gelu",
}  # fmt: skip
MAX_DISTANCE = 128  # the only one in published models; GGUF has no key for it
REFUSED: hf.Refused = {"relative_attention_max_distance": (MAX_DISTANCE,)}
ATTENTION: hf.Names = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_o": "o"}
OUTER: hf.Names = {
    "token_embd": "shared",
    "enc.output_norm": "encoder.final_layer_norm",
    "dec.output_norm": "decoder.final_layer_norm",
    "output": "lm_head",
}


def _layer(config: Config, mlp: int) -> hf.Names:
    """Names of self-attention, and of the MLP, which is sublayer number `mlp`."""
    inner = f"layer.{mlp}.DenseReluDense."
    is_gated = config.text("feed_forward_proj").startswith("gated-")
    gated = {"ffn_gate": inner + "wi_0", "ffn_up": inner + "wi_1"}
    return {
        "attn_norm": "layer.0.layer_norm",
        **{name: f"layer.0.SelfAttention.{each}" for name, each in ATTENTION.items()},
        "attn_rel_b": "layer.0.SelfAttention.relative_attention_bias",
        "ffn_norm": f"layer.{mlp}.layer_norm",
        **(gated if is_gated else {"ffn_up": inner + "wi"}),
        "ffn_down": inner + "wo",
    }


def _encoder(config: Config) -> hf.Names:
    return _layer(config, 1)


def _decoder(config: Config) -> hf.Names:
    cross = {f"cross_{name}": f"layer.1.EncDecAttention.{each}" for name, each in ATTENTION.items()}
    return {"cross_attn_norm": "layer.1.layer_norm", **cross, **_layer(config, 2)}


def _n_decoder(config: Config) -> int:
    return config.count("num_decoder_layers", config.count("num_layers"))


def _start_id(config: Config) -> int:
    return config.count("decoder_start_token_id", config.count("pad_token_id", least=0), least=0)


def _logit_scale(config: Config) -> float:
    """transformers scales logits wherever `tie_word_embeddings` is not false, whatever the tensors; the files
    that it writes state the scaling by a key of its own.
    """
    is_scaled = config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True))
    return config.count("d_model") ** -0.5 if is_scaled else 1.0


def _unscaled(_: Config) -> float:
    return 1.0


DERIVED: Mapping[str, Callable[[Config], MetadataValue]] = {
    "decoder_block_count": _n_decoder,
    "decoder_start_token_id": _start_id,
    "logit_scale": _logit_scale,
}
STACK = Arch(
    rope_style="",
    act="gelu",
    plain_act="relu",
    first={"attn_rel_b": "tA"},
    splits={"attn_o": (("attn_output", "C"),)},
    attention_scale=1.0,
    max_distance=MAX_DISTANCE,
)
ROW = hf.HfRow(
    arch="t5",
    names={},
    named_by=_decoder,
    encoder=_encoder,
    outer=OUTER,
    layer="decoder.block.{i}.",
    encoder_layer="encoder.block.{i}.",
    keys=KEYS,
    acts={"gated-gelu": "gelu", "gated-silu": "silu", "gated-relu": "relu"},
    counts={"attention.relative_buckets_count": "relative_attention_num_buckets"},
    derived=DERIVED,
    defaults=DEFAULTS,
    refused=REFUSED,
    # copies of the embedding, and a bias of cross-attention that no class reads
    ignored=("embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight"),
    is_tied=True,
)
ENCODER_ROW = replace(
    ROW,
    arch="t5encoder",
    named_by=_encoder,
    encoder=None,
    layer=ROW.encoder_layer,
    outer={name: OUTER[name] for name in ("token_embd", "enc.output_norm")},
    derived={},
    refused={**REFUSED, "is_decoder": (False,)},
    ignored=("embed_tokens.weight", "decoder.", "lm_head."),  # of a file with the decoder, too
)

ARCHS: dict[str, Arch] = {
    "t5": replace(
        STACK,
        stacks=("enc.", "dec."),
        outer={"token_embd": "VC", "enc.output_norm": "C", "dec.output_norm": "C"},
        optional={"cross_attn_rel_b": "tA"},  # in old files, and read by no class
        multiplies_logits=True,
        scales_tied=True,
    ),
    "t5encoder": replace(
        STACK,
        mixers=("bidirectional",),
        stacks=("enc.",),
        outer={"token_embd": "VC", "enc.output_norm": "C"},
        optional_outer=DENSE,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "t5": ROW,
    "umt5": replace(ROW, defaults={**DEFAULTS, "feed_forward_proj": "gated-gelu"}),
    "mt5": replace(
        ROW,
        defaults=MT5_DEFAULTS,
        derived={**DERIVED, "logit_scale": _unscaled},
    ),
    "t5encoder": ENCODER_ROW,
}
