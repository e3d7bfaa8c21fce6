"""A model as data: `ModelSpec` says everything that the decoder needs to lower it to plans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary position embedding. `style` is norm (adjacent pairs) or neox (halves).

    `dim` counts the rotated floats of a head. `factors` divide the frequencies, one a pair (Llama 3.1's
    `rope_freqs`); empty means none.
    """

    theta: float
    dim: int
    style: str
    factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer: which block mixes tokens, which block follows, which norms, which state it uses."""

    mixer: str = "attention"
    mlp: str = "glu"
    residual: str = "sequential"
    state_group: str = "kv"
    act: str = "silu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Architecture facts of one model, from its file's metadata."""

    arch: str
    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_size: int
    ffn_size: int
    vocab_size: int
    context_length: int
    norm_eps: float
    rope: RopeSpec
    layers: tuple[LayerSpec, ...]
    is_tied: bool

    @property
    def q_size(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.n_kv_heads * self.head_dim

    @property
    def attention_scale(self) -> float:
        return self.head_dim**-0.5
