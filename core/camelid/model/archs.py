"""Tables of architectures and of Hugging Face model types, joined from the modules of `families/`.

`ARCHS` is keyed by GGUF's `general.architecture`, `HF_ROWS` by config.json's `model_type`.
"""

from __future__ import annotations

from camelid.model.arch import Arch
from camelid.model.families import (
    bert,
    bloom,
    cohere,
    deepseek,
    falcon,
    gated,
    gemma,
    gpt,
    gpt_oss,
    granite,
    kin,
    latents,
    liquid,
    llama,
    mamba,
    mixtures,
    nemotron,
    neox,
    olmo,
    opt,
    phi,
    qwen,
    relatives,
    routed,
    varied,
)
from camelid.model.hf_rows import HfRow

FAMILIES = (
    llama,
    qwen,
    gemma,
    phi,
    gpt,
    olmo,
    granite,
    liquid,
    kin,
    mamba,
    gpt_oss,
    bert,
    mixtures,
    deepseek,
    varied,
    routed,
    cohere,
    falcon,
    neox,
    bloom,
    opt,
    nemotron,
    relatives,
    gated,
    latents,
)
ARCHS: dict[str, Arch] = {name: row for family in FAMILIES for name, row in family.ARCHS.items()}
HF_ROWS: dict[str, HfRow] = {name: row for family in FAMILIES for name, row in family.HF_ROWS.items()}
