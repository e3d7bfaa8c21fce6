"""What a row of the architecture table is: tensors with their shapes, and how metadata becomes layers.

Shapes are written in letters: C hidden, Q query heads x head_dim, K key/value heads x head_dim, D head_dim,
F ffn, E experts, X ffn of one expert, V vocabulary, P positions, R rope dim / 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from camelid.model.spec import ModelSpec
from camelid.plan.weights import Weight

Shapes: TypeAlias = Mapping[str, str]

ATTENTION: Shapes = {"attn_q": "QC", "attn_k": "KC", "attn_v": "KC", "attn_output": "CQ"}
PRE_NORMS: Shapes = {"attn_norm": "C", "ffn_norm": "C"}
POST_NORMS: Shapes = {"post_attention_norm": "C", "post_ffw_norm": "C"}
HEAD_NORMS: Shapes = {"attn_q_norm": "D", "attn_k_norm": "D"}
WIDE_NORMS: Shapes = {"attn_q_norm": "Q", "attn_k_norm": "K"}
MLP_TENSORS: Mapping[str, Shapes] = {
    "glu": {"ffn_gate": "FC", "ffn_up": "FC", "ffn_down": "CF"},
    "mlp": {"ffn_up": "FC", "ffn_down": "CF"},
    "experts": {
        "ffn_gate_inp": "EC",
        "ffn_gate_exps": "EXC",
        "ffn_up_exps": "EXC",
        "ffn_down_exps": "ECX",
    },
}
QKV = ("attn_q", "attn_k", "attn_v")
GLU_NAMES = ("ffn_gate", "ffn_up", "ffn_down")
# A fused tensor of a file and the rows that it is cut into.
FUSED_QKV = {"attn_qkv": (("attn_q", "Q"), ("attn_k", "K"), ("attn_v", "K"))}
FUSED_GATE_UP = {"ffn_up": (("ffn_gate", "F"), ("ffn_up", "F"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture.

    `tensors` lists what every layer has besides its feed-forward block, `biases` which of all tensors have
    one, `optional_biases` which may. `window` and `softcaps` (scores, logits) are what a file means that
    states none. `window_pattern` n: every nth layer is full, the others see a window (0: all do); only where
    there is a window. Windowed layers rotate by `local_theta`, if any, and unscaled unless `stretches_local`;
    `nope_every` n leaves every nth unrotated. `scales_embeddings` multiplies embeddings by sqrt(hidden_size).
    `wide_layers` is the number of layers of the one size whose attention scale is (hidden / heads)^-0.5.
    """

    rope_style: str = "norm"
    norm_kind: str = "rms"
    mlp: str = "glu"
    act: str = "silu"
    tensors: Shapes = field(default_factory=lambda: {**PRE_NORMS, **ATTENTION})
    biases: tuple[str, ...] = ()
    optional_biases: tuple[str, ...] = ()
    has_positions: bool = False
    splits: Mapping[str, tuple[tuple[str, str], ...]] = field(
        default_factory=dict[str, tuple[tuple[str, str], ...]]
    )
    window_pattern: int = 0
    window: int = 0
    softcaps: tuple[float, float] = (0.0, 0.0)
    local_theta: float = 0.0
    stretches_local: bool = True
    nope_every: int = 0
    scales_embeddings: bool = False
    wide_layers: int = 0
    residual: str = "sequential"

    @property
    def has_local_rope(self) -> bool:
        """Whether layers with a window rotate in a way of their own."""
        return self.local_theta > 0.0 or not self.stretches_local


@dataclass(frozen=True, slots=True)
class Model:
    """A spec and its weights, by GGUF name without the `.weight` ending."""

    spec: ModelSpec
    weights: Mapping[str, Weight]

    @property
    def weight_bytes(self) -> int:
        return sum(w.n_bytes for w in self.weights.values())
