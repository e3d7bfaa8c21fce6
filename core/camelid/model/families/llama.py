"""Llama and its relatives: Mistral, Mixtral, SmolLM3, BitNet, Llama with attention to both sides."""

from __future__ import annotations

from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, GLU_NAMES, Arch
from camelid.model.encoder_specs import POOLINGS

BITNET_DEFAULTS = {
    "num_key_value_heads": 5, "rope_theta": 5e5, "rms_norm_eps": 1e-5, "hidden_act": "relu2",
}  # fmt: skip
# config.json's name of a pooling -> ours
BIDIREC_POOLINGS = {"avg": "mean", "cls": "cls", "last": "last"}


def _pooling(config: Config) -> int:
    """The pooling_type of a directory without modules.json, which else states it."""
    return POOLINGS.index(BIDIREC_POOLINGS[config.text("pooling")])


ARCHS: dict[str, Arch] = {
    # Llama 1 to 3, Mistral (sliding window), Mixtral (experts): llama.cpp's converter names them all llama.
    "llama": Arch(optional_biases=(*ATTENTION, *GLU_NAMES)),
    # Llama for embeddings (arXiv 2511.07025): rows attend to both sides.
    "llama-embed": Arch(mixers=("bidirectional",), optional_biases=(*ATTENTION, *GLU_NAMES)),
    # BitNet b1.58 (arXiv 2402.17764): norms before the matrices that leave attention and MLP.
    "bitnet": Arch(
        rope_style="neox", added={"attention": {"attn_sub_norm": "Q"}, "glu": {"ffn_sub_norm": "F"}}
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
    "smollm3": hf.HfRow(
        arch="smollm3",
        folds=hf.PAIRS,
        defaults={"num_key_value_heads": 4, "rope_theta": 2e6},
        refused={"use_sliding_window": (False,)},
        is_tied=True,
        has_window_switch=True,
    ),
}
