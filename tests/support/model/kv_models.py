"""Small models whose state supports every kv_type."""

from __future__ import annotations

from typing import Any

from tests.support.model.stress_runs import make_model, random_weights

from camelid.model.arch import Model
from camelid.model.spec import LayerSpec, MlaSpec, ModelSpec, RopeSpec

C, H, D, K, V, WINDOW = 32, 4, 16, 2, 48, 21
RANK, TURNED, NOPE = 24, 8, 8
FACTS: dict[str, Any] = {
    "arch": "stress", "n_layers": 2, "n_heads": H, "hidden_size": C, "ffn_size": C, "vocab_size": V,
    "context_length": 1024, "norm_eps": 1e-5, "is_tied": True,
}  # fmt: skip
LOCAL = LayerSpec(state_group="window", window=WINDOW)
# Windows, sinks and capped scores; a state of two tensors.
MIXED_SPEC = ModelSpec(
    name="mixed", n_kv_heads=K, head_dim=D, layers=(LOCAL, LayerSpec()), attention_softcap=6.0,
    ropes={"rope": RopeSpec(theta=100.0, dim=D, style="neox")}, **FACTS,
)  # fmt: skip
# Latent attention; a state of one tensor.
LATENT_SPEC = ModelSpec(
    name="latent", n_kv_heads=1, head_dim=NOPE + TURNED, layers=(LayerSpec(mixer="mla"),) * 2,
    mla=MlaSpec(kv_rank=RANK, rope_dim=TURNED),
    ropes={"rope": RopeSpec(theta=100.0, dim=TURNED, style="norm")}, **FACTS,
)  # fmt: skip
FEED = {"attn_norm": (C,), "ffn_norm": (C,), "ffn_gate": (C, C), "ffn_up": (C, C), "ffn_down": (C, C)}
MIXED_LAYER = FEED | {
    "attn_q": (H * D, C), "attn_k": (K * D, C), "attn_v": (K * D, C), "attn_output": (C, H * D),
    "attn_sinks": (H,),
}  # fmt: skip
LATENT_LAYER = FEED | {
    "attn_q": (H * (NOPE + TURNED), C), "attn_kv_a_mqa": (RANK + TURNED, C), "attn_kv_a_norm": (RANK,),
    "attn_k_b": (H, RANK, NOPE), "attn_v_b": (H, D, RANK), "attn_output": (C, H * D),
}  # fmt: skip


def small_model(spec: ModelSpec, layer: dict[str, tuple[int, ...]]) -> Model:
    """A model of two layers with random weights."""
    shapes = {"token_embd": (V, C), "output_norm": (C,)}
    shapes |= {f"blk.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    return make_model(spec, random_weights(shapes, 41))


MODELS = {
    "mixed": small_model(MIXED_SPEC, MIXED_LAYER),
    "latent": small_model(LATENT_SPEC, LATENT_LAYER),
}
