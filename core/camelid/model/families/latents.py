"""Further models of latent attention: MiniCPM 3, PLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import Arch
from camelid.model.families.deepseek import MLA_NAMES
from camelid.model.families.kin import MINICPM_DEPTH, MINICPM_SCALES

# llama.cpp expands keys and values of these models, so their files keep one matrix for both.
NAMES: hf.Names = {
    **hf.PRE_NORMS,
    **{name: inner for name, inner in MLA_NAMES.items() if name not in ("attn_k_b", "attn_v_b")},
    "attn_kv_b": "self_attn.kv_b_proj",
    **hf.GLU,
}
VALUES: Mapping[str, Callable[[Config], MetadataValue]] = {
    "attention.key_length": lambda c: c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim"),
    "attention.value_length": lambda c: c.count(
        "v_head_dim", c.count("hidden_size") // c.count("num_attention_heads")
    ),
    "attention.q_lora_rank": lambda c: c.count("q_lora_rank") if c.has("q_lora_rank") else 0,
    "attention.kv_lora_rank": lambda c: c.count("kv_lora_rank"),
    "rope.dimension_count": lambda c: c.count("qk_rope_head_dim"),
}

ARCHS: dict[str, Arch] = {
    "minicpm3": Arch(rope_style="neox", mixers=("mla",), depth_scales=MINICPM_DEPTH, latent_eps=1e-6),
    "plm": Arch(mixers=("mla",), mlp="mlp", act="relu2", latent_eps=1e-6),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "minicpm3": hf.HfRow(
        arch="minicpm3",
        names=NAMES,
        numbers={"embedding_scale": "scale_emb"},
        derived={**VALUES, **MINICPM_SCALES},
        defaults={
            "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
            "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "rms_norm_eps": 1e-5,
        },
        refused={"attention_bias": (False,), "mlp_bias": (False,)},
        is_tied=True,
    ),
    "plm": hf.HfRow(
        arch="plm",
        names=NAMES,
        derived=VALUES,
        refused={"attention_bias": (False,), "hidden_act": ("relu2",)},
        is_tied=True,
    ),
}  # fmt: skip
