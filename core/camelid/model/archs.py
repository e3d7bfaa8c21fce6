"""Tables of architectures and of Hugging Face model types, joined from the modules of `families/`.

`ARCHS` is keyed by GGUF's `general.architecture`, `HF_ROWS` by config.json's `model_type`.
"""

from __future__ import annotations

from collections.abc import Callable

from camelid.formats.settings import Config
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
    rwkv,
    sparse,
    t5,
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
    t5,
    sparse,
    rwkv,
)
ARCHS: dict[str, Arch] = {name: row for family in FAMILIES for name, row in family.ARCHS.items()}
HF_ROWS: dict[str, HfRow] = {name: row for family in FAMILIES for name, row in family.HF_ROWS.items()}
# Classes published with the model_type of another class, or without one -> key of their row.
CLASSES = {
    "BailingMoeV2ForCausalLM": "bailing_moe_v2",
    "CogVLMForCausalLM": "cogvlm",
    "JinaBertForMaskedLM": "jina_bert",
    "JinaBertForSequenceClassification": "jina_bert",
    "JinaBertModel": "jina_bert",
    "T5EncoderModel": "t5encoder",
}
# model_type -> the key of another row, of models whose config.json fulfils a condition.
FORMS: dict[str, tuple[str, Callable[[Config], bool]]] = {
    "nemotron_h": ("nemotron_h_moe", mamba.has_experts),
    "nomic_bert": ("nomic_bert_moe", lambda config: bool(config.values.get("moe_every_n_layers"))),
    "xlm-roberta": ("xlm_roberta_flash", lambda config: config.has("use_flash_attn")),
}


def row_name(config: Config) -> str:
    """The key in `HF_ROWS` of a config.json: its model_type, or that of its class or form."""
    classes = config.texts("architectures")
    name = CLASSES.get(classes[0] if classes else "") or config.text("model_type")
    form, is_form = FORMS.get(name, ("", bool))
    return form if form and is_form(config) else name
