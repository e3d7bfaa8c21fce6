"""Specs of well-known models: `camelid info` computes their size and memory without a file."""

from __future__ import annotations

from camelid.model.spec import LayerSpec, ModelSpec, RopeSpec


def _llama3(name: str, *, n_layers: int, n_heads: int, hidden_size: int, ffn_size: int) -> ModelSpec:
    """Llama 3 (arXiv 2407.21783, table 3), as published in April 2024: 8,192 positions, no scaling."""
    return ModelSpec(
        arch="llama",
        name=name,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=8,
        head_dim=128,
        hidden_size=hidden_size,
        ffn_size=ffn_size,
        vocab_size=128256,
        context_length=8192,
        norm_eps=1e-5,
        layers=(LayerSpec(),) * n_layers,
        is_tied=False,
        ropes={"rope": RopeSpec(theta=500000.0, dim=128, style="norm")},
        attention_scale=128**-0.5,
    )


PRESETS: dict[str, ModelSpec] = {
    "8b": _llama3("Llama 3 8B", n_layers=32, n_heads=32, hidden_size=4096, ffn_size=14336),
    "70b": _llama3("Llama 3 70B", n_layers=80, n_heads=64, hidden_size=8192, ffn_size=28672),
}
