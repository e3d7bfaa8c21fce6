"""A model as data: `ModelSpec` says everything that the decoder needs to lower it to plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_HEAD_DIM = 1 << 13  # the widest published have 576; tables of angles are 256 rows as wide


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotation is stretched beyond the context that a model was trained with.

    `kind` is linear (all angles divided by `factor`), yarn (arXiv 2309.00071) or longrope (arXiv 2402.13753:
    `long_factors` where the loaded context exceeds `original_context`, else `short_factors`). `magnitude`
    multiplies cos and sin. `is_rounded` lets yarn's ramp begin and end at whole pairs.
    """

    kind: str
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    magnitude: float = 1.0
    is_rounded: bool = True
    long_factors: tuple[float, ...] = ()
    short_factors: tuple[float, ...] = ()


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
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer: which block mixes tokens, which block follows, which state and rotation they use.

    `residual` is sequential, parallel, post (the norm comes after the sum), cross (attention to an encoder's
    rows between the two blocks) or altup (several streams).
    `rope` names one of the model's rotations, "" means none. `window` > 0 limits attention to so many latest
    rows. `kv_layer` >= 0 is the layer whose keys and values this one reads instead of its own. A layer
    without keys and values has the group `recurrent`.
    """

    mixer: str = "attention"
    mlp: str = "glu"
    residual: str = "sequential"
    state_group: str = "kv"
    act: str = "silu"
    rope: str = "rope"
    window: int = 0
    kv_layer: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsSpec:
    """A mixture of `n_experts` of which each row takes `n_used`, all from `n_groups_used` of `n_groups`
    neighbourhoods. `gate` is a gate of the router op."""

    n_experts: int
    n_used: int
    ffn_size: int
    gate: str = "softmax"
    normalize: bool = True
    scale: float = 1.0
    shared_size: int = 0
    n_groups: int = 1
    n_groups_used: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SsmSpec:
    """Sizes of mamba2 layers: `n_heads` of `head_dim`, which share B and C of `state_size` in `n_groups`."""

    n_heads: int
    head_dim: int
    n_groups: int
    state_size: int
    conv_width: int = 4

    @property
    def inner_size(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def bc_size(self) -> int:
        return self.n_groups * self.state_size

    @property
    def conv_size(self) -> int:
        return self.inner_size + 2 * self.bc_size


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSpec:
    """Sizes of delta layers: `n_heads` of `value_dim`, neighbours of which share one of `n_key_heads`."""

    n_heads: int
    value_dim: int
    n_key_heads: int
    key_dim: int
    conv_width: int = 4

    @property
    def key_size(self) -> int:
        return self.n_key_heads * self.key_dim

    @property
    def value_size(self) -> int:
        return self.n_heads * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaSpec:
    """Sizes of latent attention: a row keeps a latent of `kv_rank` floats and `rope_dim` rotated ones, which
    are the last of the `head_dim` floats of a query head."""

    kv_rank: int
    rope_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """The layers of an encoder. If no decoder follows, a step gives back an embedding of each sequence by
    `pooling` (mean, cls or last; "": the hidden states of its output rows), brought to length 1 where the
    model `has_unit_length`."""

    layers: tuple[LayerSpec, ...]
    pooling: str = ""
    has_unit_length: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Architecture facts of one model, from its file's metadata.

    `embedding_scale`, `residual_scale` and `logit_scale` multiply the embeddings, what each block adds, and
    the logits; `attention_softcap` and `logit_softcap` bound scores and logits (0: not at all).
    `norms_values` brings each head's values to length sqrt(head_dim); `ffn_cutoff` is how many deviations
    above its row's mean a gate must be to count in layers of kind sparse_glu; `n_streams` > 1 are carried
    from layer to layer by layers whose residual is altup. `layers` are those of the decoder; an `encoder`
    has its own, and may be all there is. `max_distance` is where biases by distance end.
    """

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
    layers: tuple[LayerSpec, ...]
    is_tied: bool
    ropes: Mapping[str, RopeSpec] = field(default_factory=dict[str, RopeSpec])
    norm_kind: str = "rms"
    experts: ExpertsSpec | None = None
    ssm: SsmSpec | None = None
    delta: DeltaSpec | None = None
    mla: MlaSpec | None = None
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    norms_values: bool = False
    ffn_cutoff: float = 0.0
    n_streams: int = 1
    encoder: EncoderSpec | None = None
    max_distance: int = 0

    @property
    def q_size(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.n_kv_heads * self.head_dim
