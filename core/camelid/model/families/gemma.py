"""Gemma 1 to 4 and 3n."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

from camelid.formats.gguf_header import MetadataValue
from camelid.formats.settings import Config
from camelid.model import hf_rows as hf
from camelid.model.arch import (
    DENSE,
    FUSED_EXPERTS,
    HEAD_NORMS,
    MLP_TENSORS,
    OUTER,
    POST_NORMS,
    PRE_NORMS,
    Arch,
)

# AltUp's streams, the learned residual, and the token's embedding for each layer.
STREAMS = {
    **PRE_NORMS, **POST_NORMS, "inp_gate": "pC", "proj": "Cp", "post_norm": "C", "laurel_l": "rC",
    "laurel_r": "Cr", "laurel_post_norm": "C", "altup_router": "aC", "altup_router_norm": "C",
    "altup_predict_coef": "ca", "altup_correct_coef": "aa", "altup_correct_scale": "C",
}  # fmt: skip
STREAMS_OUTER = {
    **OUTER, "per_layer_token_embd": "Vl", "per_layer_model_proj": "lC", "per_layer_proj_norm": "p",
    "altup_proj": "bCC", "altup_unembd_proj": "bCC",
}  # fmt: skip
STREAM_NAMES: hf.Names = {
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    "laurel_l": "laurel.linear_left",
    "laurel_r": "laurel.linear_right",
    "laurel_post_norm": "laurel.post_laurel_norm",
    "altup_router": "altup.modality_router",
    "altup_router_norm": "altup.router_norm",
    "altup_predict_coef": "altup.prediction_coefs",
    "altup_correct_coef": "altup.correction_coefs",
    "altup_correct_scale.weight": "altup.correct_output_scale",
}
STREAM_OUTER_NAMES: hf.Names = {
    **hf.OUTER,
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
    "altup_proj": "model.altup_projections.{s}",
    "altup_unembd_proj": "model.altup_unembed_projections.{s}",
}
STREAM_COUNTS: hf.Names = {
    "altup.num_inputs": "altup_num_inputs",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "attention.shared_kv_layers": "num_kv_shared_layers",
}
GEMMA3N_DEFAULTS = {
    "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "rope_theta": 1e6,
    "final_logit_softcapping": 30.0, "altup_num_inputs": 4, "hidden_size_per_layer_input": 256,
    "num_kv_shared_layers": 15,
}  # fmt: skip


def _thresholds(config: Config) -> list[float]:
    """The gates' thresholds in standard deviations: of a share 0.95 that is cut off, 1.645."""
    n_layers = config.count("num_hidden_layers")
    n_sparse = 10 if n_layers > 10 else 0
    shares = config.get_list("activation_sparsity_pattern") or [0.95] * n_sparse + [0.0] * (
        n_layers - n_sparse
    )
    own = [Config({"share": share}, config.path).number("share", above=-1.0, most=0.999) for share in shares]
    return [NormalDist().inv_cdf(share) if share > 0.0 else 0.0 for share in own]


GEMMA_DEFAULTS = {
    "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
}  # fmt: skip
GEMMA3_DEFAULTS = {  # the settings inside a multimodal model's leave out most keys
    "rope_theta": 1e6, "hidden_size": 2304, "num_hidden_layers": 26, "intermediate_size": 9216,
    "num_attention_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
SOFTCAPS: hf.Names = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
GEMMA_FOLDS: hf.Names = dict.fromkeys((*hf.SANDWICH, *hf.HEAD_NORMS, "output_norm"), "add_one")
# A token's embedding for each layer, and the scale of a layer's result.
LAYER_INPUTS = {"inp_gate": "pC", "proj": "Cp", "post_norm": "m", "layer_output_scale": "1"}
LAYER_INPUTS_OUTER = {"per_layer_token_embd": "Vl", "per_layer_model_proj": "lC", "per_layer_proj_norm": "p"}
EXPERTS_BESIDE = {  # a dense MLP beside the experts, norms of both, the gain of the router's input
    **MLP_TENSORS["glu"], "post_ffw_norm_1": "C", "pre_ffw_norm_2": "C", "post_ffw_norm_2": "C",
    "ffn_gate_inp.scale": "C", "ffn_down_exps.scale": "E",
}  # fmt: skip
GEMMA4_NAMES: hf.Names = {
    **{name: STREAM_NAMES[name] for name in ("inp_gate", "proj", "post_norm")},
    "layer_output_scale.weight": "layer_scalar",
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "ffn_gate_inp": "router.proj",
    "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale",
    "ffn_gate_up_exps.weight": "experts.gate_up_proj",
    "ffn_down_exps.weight": "experts.down_proj",
}
GEMMA4_COUNTS: hf.Names = {
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "attention.shared_kv_layers": "num_kv_shared_layers",
    **{f"attention.{part}_length_swa": "head_dim" for part in ("key", "value")},
    "rope.dimension_count_swa": "head_dim",
}
GEMMA4_DEFAULTS = {
    "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
    "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
    "final_logit_softcapping": None,  # written as 0, as files that state none have a softcap of 30
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
}  # fmt: skip

GEMMA4_REFUSED: hf.Refused = {
    "attention_bias": (False,), "use_bidirectional_attention": ("vision",),
    "per_layer_config": (),  # in place of global_head_dim, in directories saved by transformers 5.2x
}  # fmt: skip
GEMMA4_TOWERS = ("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.")


def _gemma4_kv_heads(config: Config) -> MetadataValue:
    """KV heads of each layer; those of full attention may differ where its keys are its values."""
    n, key = config.count("num_key_value_heads"), "num_global_key_value_heads"
    n_full = config.count(key) if config.flag("attention_k_eq_v", False) and config.has(key) else n
    kinds = _gemma4_kinds(config, config.count("num_hidden_layers"))
    return [n_full if kind == "full_attention" else n for kind in kinds]


def _gemma4_kinds(config: Config, n_layers: int) -> list[str]:
    """The stated kinds of layers, or five with a window and one of full attention; the last is of full
    attention.
    """
    every = ["sliding_attention"] * 5 + ["full_attention"]
    kinds = config.texts("layer_types") or [every[i % 6] for i in range(n_layers)]
    return [*kinds[:-1], "full_attention"]


def _gemma4_widths(config: Config) -> MetadataValue:
    """Widths of the MLPs; layers with keys and values of other layers may have twice the width."""
    n, n_layers = config.count("intermediate_size"), config.count("num_hidden_layers")
    n_wide = config.count("num_kv_shared_layers", least=0) if config.flag("use_double_wide_mlp", False) else 0
    return [n * (1 + (i >= n_layers - n_wide)) for i in range(n_layers)]


ARCHS: dict[str, Arch] = {
    "gemma": Arch(rope_style="neox", act="gelu", scales_embeddings=True),
    "gemma2": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        window_pattern=2,
        window=4096,  # files of June 2024 state neither the window nor the two softcaps
        softcaps=(50.0, 30.0),
        scales_embeddings=True,
        wide_layers=46,
    ),
    # EmbeddingGemma: rows attend to both sides, and two linear maps follow the pooling.
    "gemma-embedding": Arch(
        mixers=("bidirectional",),
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        added={"bidirectional": HEAD_NORMS},
        optional_outer=DENSE,
        window_pattern=6,
        local_theta=10000.0,
        scales_embeddings=True,
    ),
    "gemma3": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS},
        added={"attention": HEAD_NORMS},
        window_pattern=6,
        local_theta=10000.0,
        scales_embeddings=True,
        sees_images=True,
        wide_layers=62,
    ),
    "gemma4": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**PRE_NORMS, **POST_NORMS, **LAYER_INPUTS},
        added={"attention": HEAD_NORMS, "experts": EXPERTS_BESIDE},
        optional={"attn_v": "KC", "layer_output_scale": "1"},
        no_ending=("ffn_gate_inp.scale", "ffn_down_exps.scale"),
        outer={**OUTER, **LAYER_INPUTS_OUTER},
        splits=FUSED_EXPERTS,
        residual="with_input",
        varies=True,
        shares_kv=True,
        norms_values=True,
        attention_scale=1.0,
        local_theta=10000.0,
        scales_embeddings=True,
        softcaps=(0.0, 30.0),
    ),
    "gemma3n": Arch(
        rope_style="neox",
        act="gelu",
        mlp="sparse_glu",
        tensors=STREAMS,
        added={"attention": HEAD_NORMS},
        outer=STREAMS_OUTER,
        residual="altup",
        shares_kv=True,
        n_own_kv=20,
        norms_values=True,
        attention_scale=1.0,
        softcaps=(0.0, 30.0),
        window_pattern=5,
        local_theta=10000.0,
        scales_embeddings=True,
    ),
}

HF_ROWS: dict[str, hf.HfRow] = {
    "gemma": hf.HfRow(
        arch="gemma",
        folds=GEMMA_FOLDS,
        acts={"gelu": "gelu"},  # early files name the tanh approximation so
        defaults={"num_key_value_heads": 16, "head_dim": 256},
        refused={"use_bidirectional_attention": (False,)},
        is_tied=True,
    ),
    "gemma2": hf.HfRow(
        arch="gemma2",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU},
        folds=GEMMA_FOLDS,
        keys={**hf.KEYS, "hidden_activation": "hidden_activation"},
        numbers=SOFTCAPS,
        defaults={**GEMMA_DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        is_tied=True,
    ),
    "gemma3_text": hf.HfRow(
        arch="gemma3",
        bidirectional="gemma-embedding",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU, **hf.HEAD_NORMS},
        folds=GEMMA_FOLDS,
        keys={**hf.KEYS, "hidden_activation": "hidden_activation"},
        numbers={"final_logit_softcapping": "final_logit_softcapping"},  # transformers' only softcap
        defaults={**GEMMA_DEFAULTS, **GEMMA3_DEFAULTS},
        refused={"use_bidirectional_attention": (False,)},
        is_tied=True,
    ),
    "gemma4_text": hf.HfRow(
        arch="gemma4",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU, **hf.HEAD_NORMS, **GEMMA4_NAMES},
        outer={name: STREAM_OUTER_NAMES[name] for name in (*hf.OUTER, *LAYER_INPUTS_OUTER)},
        keys={
            **hf.KEYS,
            "hidden_activation": "hidden_activation",
            "attention.key_length": "global_head_dim",
            "expert_used_count": "top_k_experts",
        },
        numbers={"final_logit_softcapping": "final_logit_softcapping"},
        counts=GEMMA4_COUNTS,
        layer_types=_gemma4_kinds,
        derived={
            "attention.head_count_kv": _gemma4_kv_heads,
            "feed_forward_length": _gemma4_widths,
            "rope.dimension_count": lambda config: config.count("global_head_dim"),
        },
        defaults=GEMMA4_DEFAULTS,
        refused=GEMMA4_REFUSED,
        is_tied=True,
    ),
    "gemma3n_text": hf.HfRow(
        arch="gemma3n",
        names={**hf.SANDWICH, **hf.ATTENTION, **hf.GLU, **hf.HEAD_NORMS, **STREAM_NAMES},
        outer=STREAM_OUTER_NAMES,
        folds={"per_layer_token_embd": "pad_rows"},
        keys={**hf.KEYS, "hidden_activation": "hidden_activation"},
        numbers={"final_logit_softcapping": "final_logit_softcapping"},
        counts=STREAM_COUNTS,
        derived={"activation_sparsity_scale": _thresholds},
        defaults=GEMMA3N_DEFAULTS,
        refused={"altup_active_idx": (0,), "altup_correct_scale": (True,), "attention_bias": (False,)},
        is_tied=True,
    ),
}
# Published directories: the text model beside towers, which are not read.
HF_ROWS["gemma4"] = replace(
    HF_ROWS["gemma4_text"],
    nested="text_config",
    layer="model.language_model.layers.{i}.",
    outer=hf.renamed(HF_ROWS["gemma4_text"].outer, "model.", "model.language_model."),
    ignored=tuple(f"model.{name}" for name in GEMMA4_TOWERS),
)
