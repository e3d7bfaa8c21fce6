"""Shapes of well-known models without their weights, for counts of launches."""

from __future__ import annotations

from dataclasses import replace

from camelid.model.presets import PRESETS
from camelid.model.spec import ExpertsSpec, LayerSpec, ModelSpec, RopeSpec

LAYERS = 12
LOCAL = LayerSpec(act="gelu", state_group="window", window=1024, rope="local")
ROPE = RopeSpec(theta=1e6, dim=128, style="neox")

LLAMA = replace(PRESETS["8b"], n_layers=LAYERS, layers=(LayerSpec(),) * LAYERS)
QWEN3 = replace(LLAMA, arch="qwen3", ffn_size=12288, ropes={"rope": ROPE})
QWEN3_MOE = replace(
    QWEN3,
    arch="qwen3moe",
    hidden_size=2048,
    n_kv_heads=4,
    layers=(LayerSpec(mlp="experts"),) * LAYERS,
    experts=ExpertsSpec(n_experts=128, n_used=8, ffn_size=768),
)
GEMMA3 = replace(
    LLAMA,
    arch="gemma3",
    hidden_size=3840,
    ffn_size=15360,
    n_heads=16,
    head_dim=256,
    is_tied=True,
    layers=(*(LOCAL,) * 5, LayerSpec(act="gelu")) * (LAYERS // 6),
    ropes={"rope": replace(ROPE, dim=256), "local": replace(ROPE, theta=1e4, dim=256)},
)
SHAPES: dict[str, ModelSpec] = {
    "llama": LLAMA,
    "qwen3": QWEN3,
    "gemma3": GEMMA3,
    "qwen3moe": QWEN3_MOE,
}
