"""OLMo 1 to 3."""

from __future__ import annotations

from camelid.model import hf_rows as hf
from camelid.model.arch import ATTENTION, POST_NORMS, PRE_NORMS, WIDE_NORMS, Arch

ARCHS: dict[str, Arch] = {
    # Layer norms without gain and bias.
    "olmo": Arch(
        norm_kind="layer",
        outer={"token_embd": "VC"},
        tensors={},
        ones=(*PRE_NORMS, "output_norm"),
        optional_biases=tuple(ATTENTION),
    ),
    # OLMo 2 (no window) and OLMo 3 (window): llama.cpp names both olmo2.
    "olmo2": Arch(
        rope_style="neox",
        tensors=POST_NORMS,
        added={"attention": WIDE_NORMS},
        window_pattern=4,
        scales_local=False,
    ),
    "olmoe": Arch(rope_style="neox", added={"attention": WIDE_NORMS}, normalizes=False),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "olmo": hf.HfRow(
        arch="olmo",
        names={**hf.ATTENTION, **hf.GLU},
        outer={"token_embd": "model.embed_tokens", "output": "lm_head"},
        folds=hf.PAIRS,
        keys=hf.LAYER_KEYS,
        numbers={"attention.clamp_kqv": "clip_qkv"},
        defaults={"max_position_embeddings": 2048, "layer_norm_eps": 1e-5},
    ),
    "olmo2": hf.HfRow(arch="olmo2", names=hf.OLMO, defaults={"rms_norm_eps": 1e-5}),
    "olmo3": hf.HfRow(arch="olmo2", names=hf.OLMO, defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096}),
    "olmoe": hf.HfRow(
        arch="olmoe",
        names={**hf.PRE_NORMS, **hf.ATTENTION, **hf.HEAD_NORMS, **hf.QWEN_EXPERTS},
        defaults={"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8},
        refused={"attention_bias": (False,)},
    ),
}
