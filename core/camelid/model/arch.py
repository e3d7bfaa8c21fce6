"""What a row of the architecture table is: tensors with their shapes, and how metadata becomes layers.

Shapes are written in letters: C hidden, Q query heads x head_dim, K key/value heads x head_dim, D head_dim, F
ffn, E experts, X ffn of one expert, S ffn of the shared expert, V vocabulary, P positions; of scans H heads,
I heads x head_dim, G groups, N floats that a norm joins, Z rows of the input projection, U channels and W
width of the convolution, B key heads. A query heads, 1 is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from camelid.model.spec import LayerSpec, ModelSpec
from camelid.plan.weights import Weight

Shapes: TypeAlias = Mapping[str, str]

ATTENTION: Shapes = {"attn_q": "QC", "attn_k": "KC", "attn_v": "KC", "attn_output": "CQ"}
PRE_NORMS: Shapes = {"attn_norm": "C", "ffn_norm": "C"}
POST_NORMS: Shapes = {"post_attention_norm": "C", "post_ffw_norm": "C"}
HEAD_NORMS: Shapes = {"attn_q_norm": "D", "attn_k_norm": "D"}
WIDE_NORMS: Shapes = {"attn_q_norm": "Q", "attn_k_norm": "K"}
# Tensors of each mixer by kind. A name has the ending `.weight` unless it has one here or is in NO_ENDING.
MIXER_TENSORS: Mapping[str, Shapes] = {
    "attention": ATTENTION,
    "mamba2": {
        "ssm_in": "ZC",
        "ssm_conv1d": "UW",
        "ssm_dt.bias": "H",
        "ssm_a": "H1",
        "ssm_d": "H1",
        "ssm_norm": "GN",
        "ssm_out": "CI",
    },
    "delta": {
        "attn_qkv": "UC",
        "attn_gate": "IC",
        "ssm_beta": "HC",
        "ssm_alpha": "HC",
        "ssm_conv1d": "UW",
        "ssm_dt.bias": "H",
        "ssm_a": "H",
        "ssm_norm": "N",
        "ssm_out": "CI",
    },
}
NO_ENDING = ("ssm_a", "ssm_d")
# Matrices and columns that no op multiplies by: float32 on every backend and in every file, as vectors are.
ELEMENTWISE = (*NO_ENDING, "ssm_conv1d", "ssm_norm")
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
NO_TENSORS: Shapes = {}
SHARED_EXPERT: Shapes = {"ffn_gate_shexp": "SC", "ffn_up_shexp": "SC", "ffn_down_shexp": "CS"}
QKV = ("attn_q", "attn_k", "attn_v")
GLU_NAMES = ("ffn_gate", "ffn_up", "ffn_down")
# A fused tensor of a file and the rows that it is cut into; of one part, its name in the file and ours.
FUSED_QKV = {"attn_qkv": (("attn_q", "Q"), ("attn_k", "K"), ("attn_v", "K"))}
GATED_Q = {"attn_q": (("attn_q", "Q"), ("attn_gate", "Q"))}
BETA_ALPHA = {"ssm_ba": (("ssm_beta", "H"), ("ssm_alpha", "H"))}
FUSED_GATE_UP = {"ffn_up": (("ffn_gate", "F"), ("ffn_up", "F"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture.

    `tensors` lists what every layer has besides its mixer and its feed-forward block. `mixers` are the kind
    of layers with keys and values and, of a hybrid, the kind of those without: layers whose `head_count_kv`
    is 0, or all but every `full_attention_interval`th. `added` extends MIXER_TENSORS and MLP_TENSORS by kind.
    `splits` cuts fused tensors; the parts of those in `interleaved` take turns, once a head of the letter
    there. `biases` lists which of all tensors have one, `optional_biases` which may. `window` and `softcaps`
    (scores, logits) are what a file means that states none. `window_pattern` n: every nth layer is full, the
    others see a window (0: all do); only where there is a window. Windowed layers rotate by `local_theta`, if
    any, and unscaled unless `stretches_local`; `nope_every` n leaves every nth unrotated, `has_rope_switch`
    all of them where `rope.scaling.finetuned` is false. `scales_embeddings` multiplies embeddings by
    sqrt(hidden_size). `wide_layers` is the number of layers of the one size whose attention scale is (hidden
    / heads)^-0.5.
    """

    rope_style: str = "norm"
    norm_kind: str = "rms"
    mlp: str = "glu"
    act: str = "silu"
    tensors: Shapes = field(default_factory=lambda: PRE_NORMS)
    mixers: tuple[str, ...] = ("attention",)
    added: Mapping[str, Shapes] = field(default_factory=dict[str, Shapes])
    interleaved: Mapping[str, str] = field(default_factory=dict[str, str])
    full_attention_interval: int = 0
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
    has_rope_switch: bool = False
    scales_embeddings: bool = False
    wide_layers: int = 0
    residual: str = "sequential"

    @property
    def has_local_rope(self) -> bool:
        """Whether layers with a window rotate in a way of their own."""
        return self.local_theta > 0.0 or not self.stretches_local

    def layer_tensors(self, layer: LayerSpec, *, has_shared_expert: bool) -> Shapes:
        """Shapes by name of all that one layer has, biases aside."""
        mixer = {**MIXER_TENSORS[layer.mixer], **self.added.get(layer.mixer, {})}
        mlp = {**MLP_TENSORS[layer.mlp], **self.added.get(layer.mlp, {})}
        has_shared = has_shared_expert and layer.mlp == "experts"
        return {**self.tensors, **mixer, **mlp, **(SHARED_EXPERT if has_shared else NO_TENSORS)}


@dataclass(frozen=True, slots=True)
class Model:
    """A spec and its weights, by GGUF name without the `.weight` ending."""

    spec: ModelSpec
    weights: Mapping[str, Weight]

    @property
    def weight_bytes(self) -> int:
        return sum(w.n_bytes for w in self.weights.values())
