"""The architectures. A same-family model is one row here, and one in `hf_rows.py` for its published form."""

from __future__ import annotations

from camelid.model.arch import (
    ATTENTION,
    FUSED_GATE_UP,
    FUSED_QKV,
    GLU_NAMES,
    HEAD_NORMS,
    POST_NORMS,
    PRE_NORMS,
    QKV,
    WIDE_NORMS,
    Arch,
)

LLAMA = {**PRE_NORMS, **ATTENTION}

ARCHS: dict[str, Arch] = {
    # Llama 1 to 3, Mistral (its window), Mixtral (its experts) and others that llama.cpp files under llama.
    "llama": Arch(optional_biases=(*ATTENTION, *GLU_NAMES)),
    "qwen2": Arch(rope_style="neox", biases=QKV),
    "qwen3": Arch(rope_style="neox", tensors={**LLAMA, **HEAD_NORMS}),
    "qwen3moe": Arch(rope_style="neox", tensors={**LLAMA, **HEAD_NORMS}),
    "gemma2": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**LLAMA, **POST_NORMS},
        window_pattern=2,
        scales_embeddings=True,
        wide_layers=46,
    ),
    "gemma3": Arch(
        rope_style="neox",
        act="gelu",
        tensors={**LLAMA, **POST_NORMS, **HEAD_NORMS},
        window_pattern=6,
        local_theta=10000.0,
        scales_embeddings=True,
        wide_layers=62,
    ),
    "phi3": Arch(rope_style="neox", splits={**FUSED_QKV, **FUSED_GATE_UP}),
    "gpt2": Arch(
        rope_style="",
        norm_kind="layer",
        mlp="mlp",
        act="gelu",
        biases=(*LLAMA, "ffn_up", "ffn_down", "output_norm"),
        has_positions=True,
        splits=FUSED_QKV,
    ),
    "olmo2": Arch(rope_style="neox", tensors={**ATTENTION, **POST_NORMS, **WIDE_NORMS}),
    "granite": Arch(optional_biases=(*ATTENTION, *GLU_NAMES)),
    "smollm3": Arch(nope_every=4, optional_biases=(*ATTENTION, *GLU_NAMES)),
    "stablelm": Arch(
        rope_style="neox", norm_kind="layer", biases=(*PRE_NORMS, "output_norm"), optional_biases=QKV
    ),
}
