"""Llama and its relatives: Mistral, Mixtral, SmolLM3, BitNet, CogVLM, Llama with attention to both sides."""

from __future__ import annotations

from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, FUSED_QKV, GLU_NAMES, Arch, Shapes
from camelid.model.encoder_specs import POOLINGS

BITNET_DEFAULTS = {
    "num_key_value_heads": 5, "rope_theta": 5e5, "rms_norm_eps": 1e-5, "hidden_act": "relu2",
}  # fmt: skip
# CogVLM's visual experts: a layer's matrices for rows of images.
VISUAL: Shapes = {
    "vis_attn_q": "QC", "vis_attn_k": "KC", "vis_attn_v": "KC", "vis_attn_output": "CQ",
    "vis_gate": "FC", "vis_up": "FC", "vis_down": "CF",
}  # fmt: skip
VISUAL_QKV = tuple((f"vis_{part}", letter) for part, letter in FUSED_QKV["attn_qkv"])
COGVLM_NAMES: hf.Names = {
    **hf.PRE_NORMS,
    **{
        f"{prefix}attn_{name}": f"self_attn.{kind}_expert_{published}"
        for prefix, kind in (("", "language"), ("vis_", "vision"))
        for name, published in (("qkv", "query_key_value"), ("output", "dense"))
    },
    **{
        f"{prefix}{name}": f"mlp.{kind}_mlp.{name}_proj"
        for prefix, kind in (("ffn_", "language"), ("vis_", "vision"))
        for name in ("gate", "up", "down")
    },
}
# config.json's name of a pooling -> ours
BIDIREC_POOLINGS = {"avg": "mean", "cls": "cls", "last": "last"}


def _pooling(config: Config) -> int:
    """The pooling_type of a directory without modules.json, which else states it."""
    return POOLINGS.index(BIDIREC_POOLINGS[config.text("pooling")])


def _cogvlm_theta(config: Config) -> float:
    """The constants of the two published classes; that of CogVLM2 alone reads num_multi_query_heads."""
    return 500000.0 if config.has("num_multi_query_heads") else 10000.0


ARCHS: dict[str, Arch] = {
    # Llama 1 to 3, Mistral (sliding window), Mixtral (experts): llama.cpp's converter names them all llama.
    "llama": Arch(optional_biases=(*ATTENTION, *GLU_NAMES)),
    # Llama for embeddings (arXiv 2511.07025): rows attend to both sides.
    "llama-embed": Arch(mixers=("bidirectional",), optional_biases=(*ATTENTION, *GLU_NAMES)),
    # BitNet b1.58 (arXiv 2402.17764): norms before the matrices that leave attention and MLP.
    "bitnet": Arch(
        rope_style="neox", added={"attention": {"attn_sub_norm": "Q"}, "glu": {"ffn_sub_norm": "F"}}
    ),
    # CogVLM (arXiv 2311.03079) for text alone: visual experts are checked and kept, and no plan reads them.
    "cogvlm": Arch(
        rope_style="neox",
        splits={**FUSED_QKV, "vis_attn_qkv": VISUAL_QKV},
        optional=VISUAL,
        optional_biases=tuple(name for name, _ in VISUAL_QKV),
    ),
    "smollm3": Arch(nope_every=4, optional_biases=(*ATTENTION, *GLU_NAMES)),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "llama": hf.HfRow(arch="llama", folds=hf.PAIRS),
    "llama_bidirec": hf.HfRow(
        arch="llama-embed",
        folds=hf.PAIRS,
        derived={"pooling_type": _pooling},
        defaults={"pooling": "avg"},
        refused={
            "pooling": (*BIDIREC_POOLINGS,),
            "use_bidirectional_attention": (True,),
            "is_causal": (False,),
        },
    ),
    "mistral": hf.HfRow(
        arch="llama", folds=hf.PAIRS, defaults={"num_key_value_heads": 8, "sliding_window": 4096}
    ),
    "mixtral": hf.HfRow(
        arch="llama",
        folds=hf.PAIRS,
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.MIXTRAL_EXPERTS},
        defaults={"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6},
    ),
    "bitnet": hf.HfRow(
        arch="bitnet",
        names={**hf.LLAMA, "attn_sub_norm": "self_attn.attn_sub_norm", "ffn_sub_norm": "mlp.ffn_sub_norm"},
        defaults=BITNET_DEFAULTS,
        refused={"attention_bias": (False,)},
    ),
    "cogvlm": hf.HfRow(
        arch="cogvlm",
        names=COGVLM_NAMES,
        keys={**hf.KEYS, "attention.head_count_kv": "num_multi_query_heads"},
        derived={"rope.freq_base": _cogvlm_theta},
        refused={"rope_theta": (), "rope_scaling": ()},  # no published class reads them
        ignored=(".rotary_emb.inv_freq", "model.vision."),
    ),
    "smollm3": hf.HfRow(
        arch="smollm3",
        folds=hf.PAIRS,
        defaults={"num_key_value_heads": 4, "rope_theta": 2e6},
        refused={"use_sliding_window": (False,)},
        is_tied=True,
        has_window_switch=True,
    ),
}
