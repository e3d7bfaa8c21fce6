"""Models whose layers differ in heads and widths: OpenELM, DeciLM."""

from __future__ import annotations

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, FUSED_QKV, GLU_NAMES, HEAD_NORMS, Arch

OPENELM_KEYS: hf.Names = {
    **hf.KEYS,
    "embedding_length": "model_dim",
    "block_count": "num_transformer_layers",
    "context_length": "max_context_length",
    "rope.freq_base": "rope_freq_constant",
    "hidden_activation": "activation_fn_name",
}
OPENELM_REFUSED: hf.Refused = {
    "normalize_qk_projections": (True,), "share_input_output_layers": (True,), "ffn_with_glu": (True,),
    "normalization_layer_name": ("rms_norm",),
}  # fmt: skip

ARCHS: dict[str, Arch] = {
    "openelm": Arch(rope_style="neox", added={"attention": HEAD_NORMS}, splits=FUSED_QKV, varies=True),
    "deci": Arch(optional_biases=(*ATTENTION, *GLU_NAMES), varies=True),
}


def _openelm_widths(config: Config) -> MetadataValue:
    """ffn_multipliers times model_dim, to the nearest multiple of the divisor, but not 10 % below."""
    divisor, width = config.count("ffn_dim_divisor"), config.count("model_dim")
    exact = [multiplier * width for multiplier in config.numbers("ffn_multipliers")]
    near = [max(divisor, int(n + divisor / 2) // divisor * divisor) for n in exact]
    return [m + divisor if m < 0.9 * n else m for m, n in zip(near, exact, strict=True)]


def _blocks(config: Config, part: str) -> list[Config]:
    """The settings of attention or of the MLP in each item of block_configs."""
    items = config.get_list("block_configs")
    wholes = [Config({"item": item}, config.path, config.prefix).section("item") for item in items]
    return [whole.section(part) for whole in wholes]


def _deci_heads(config: Config) -> MetadataValue:
    """The heads of each layer: 0 where nothing replaces its attention."""
    n = config.count("num_attention_heads")
    if not config.has("block_configs"):
        return n
    kinds = _blocks(config, "attention")
    kept = [kind.has("n_heads_in_group") or kind.flag("replace_with_linear", False) for kind in kinds]
    return [n if has else 0 for has in kept]


def _deci_kv_heads(config: Config) -> MetadataValue:
    if not config.has("block_configs"):
        return config.counts("num_key_value_heads_per_layer")
    n, kinds = config.count("num_attention_heads"), _blocks(config, "attention")
    return [n // kind.count("n_heads_in_group") if kind.has("n_heads_in_group") else 0 for kind in kinds]


def _deci_widths(config: Config) -> MetadataValue:
    """Two thirds of ffn_mult times hidden_size, up to a multiple of 256; 0 without an MLP."""
    if not config.has("block_configs"):
        return config.count("intermediate_size")
    size, kinds = config.count("hidden_size"), _blocks(config, "ffn")
    factors = [kind.number("ffn_mult") if kind.has("ffn_mult") else 0.0 for kind in kinds]
    return [-(-int(2 * factor * size / 3) // 256) * 256 for factor in factors]


DECI_COUNTS = {
    "attention.head_count": _deci_heads,
    "attention.head_count_kv": _deci_kv_heads,
    "feed_forward_length": _deci_widths,
}
HF_ROWS: dict[str, hf.HfRow] = {
    "openelm": hf.HfRow(
        arch="openelm",
        names={
            "attn_norm": "attn_norm",
            "attn_qkv": "attn.qkv_proj",
            "attn_q_norm": "attn.q_norm",
            "attn_k_norm": "attn.k_norm",
            "attn_output": "attn.out_proj",
            "ffn_norm": "ffn_norm",
            "ffn_gate": "ffn.proj_1",
            "ffn_up": "ffn.proj_1",
            "ffn_down": "ffn.proj_2",
        },
        outer={"token_embd": "transformer.token_embeddings", "output_norm": "transformer.norm"},
        layer="transformer.layers.{i}.",
        folds=hf.HALVES,
        keys=OPENELM_KEYS,
        derived={
            "attention.head_count": lambda config: config.counts("num_query_heads"),
            "attention.head_count_kv": lambda config: config.counts("num_kv_heads"),
            "feed_forward_length": _openelm_widths,
        },
        defaults={"rms_norm_eps": 1e-6},
        refused=OPENELM_REFUSED,
        is_tied=True,
    ),
    "deci": hf.HfRow(arch="deci", folds=hf.PAIRS, derived=DECI_COUNTS),
    "nemotron-nas": hf.HfRow(arch="deci", folds=hf.PAIRS, derived=DECI_COUNTS),
}
