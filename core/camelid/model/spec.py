"""A model's architecture as data: `ModelSpec` is all that lowering to plans needs besides the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

OWN_NUMBERS = ("n_heads", "n_kv_heads", "head_dim", "ffn_size")  # of a layer, in place of the model's
MAX_HEAD_DIM = 1 << 13  # published models have at most 576; RoPE tables hold 256 rows of this width


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """RoPE scaling beyond the context length of training.

    `kind`: linear (all angles divided by `factor`), yarn (arXiv 2309.00071) or longrope (arXiv 2402.13753:
    `long_factors` if the loaded context exceeds `original_context`, else `short_factors`). `magnitude`
    multiplies cos and sin. `is_rounded` rounds the ends of YaRN's ramp to whole pairs.
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
    """Rotary position embedding (RoPE). `style`: norm rotates adjacent pairs, neox pairs across halves.

    `dim` is the number of rotated floats per head. `factors` divide the frequencies, one factor per pair
    (Llama 3.1's `rope_freqs`); an empty tuple divides by 1. `axes` are the position channels by which pairs
    turn where rows have several (M-RoPE, arXiv 2409.12191); empty: channel 0. `temperature` > 0 multiplies
    the rotated floats by 1 + temperature * ln(1 + position // temperature_length).
    """

    theta: float
    dim: int
    style: str
    factors: tuple[float, ...] = ()
    axes: tuple[int, ...] = ()
    scaling: RopeScaling | None = None
    temperature: float = 0.0
    temperature_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer: a row of `layers.MIXERS` and one of `layers.MLPS`, with their state group and rotation.

    `residual`: sequential, parallel (mixer and MLP read the same stream), single (a mixer or an MLP alone;
    the other is ""), early_router (experts chosen by the layer's input), early_experts (experts beside a
    dense MLP), post (norm after the sum), cross (attention to an encoder's rows between mixer and MLP),
    with_input (the token's embedding for the layer after both) or altup (several streams); the rows of
    `layers.RESIDUALS`. `rope` is a key of `ModelSpec.ropes`, "" for no
    rotation. `window` > 0 limits attention to the latest `window` rows. `kv_layer` >= 0 is the layer whose
    keys and values this layer reads instead of its own. Layers without a KV cache have the state group
    `recurrent`, those without state none (""). `n_heads`, `n_kv_heads`, `head_dim` and `ffn_size` are
    numbers of this layer alone (0: those of the model; its counts are the largest of its layers).
    """

    mixer: str = "attention"
    mlp: str = "glu"
    residual: str = "sequential"
    state_group: str = "kv"
    act: str = "silu"
    rope: str = "rope"
    window: int = 0
    kv_layer: int = -1
    n_heads: int = 0
    n_kv_heads: int = 0
    head_dim: int = 0
    ffn_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsSpec:
    """A mixture of experts: the router picks `n_used` of `n_experts` for each row.

    The experts form `n_groups` groups, the picked ones are from the best `n_groups_used` of them. `gate` is
    the router op's gate, `softcap` bounds the router's logits (0: unbounded); `normalize` makes the probs of
    the picked experts sum to 1, `scale` multiplies them. With `weighs_input` the probs multiply the experts'
    input instead of the results.
    `shared_size` is the width of an expert that runs for every row (0: none). `chunk_size` is the width of
    an expert that `chunk_experts` neighbours share, `chunk_scale` multiplies its result (0: none).
    `latent_size` is the width of a latent that experts read and write (0: none, the hidden size).
    """

    n_experts: int
    n_used: int
    ffn_size: int
    gate: str = "softmax"
    normalize: bool = True
    scale: float = 1.0
    softcap: float = 0.0
    weighs_input: bool = False
    shared_size: int = 0
    n_groups: int = 1
    n_groups_used: int = 1
    chunk_size: int = 0
    chunk_experts: int = 1
    chunk_scale: float = 1.0
    latent_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SsmSpec:
    """Sizes of mamba2 layers: `n_heads` of `head_dim`; each of `n_groups` groups shares its B and C.

    Mamba 1 has heads of one column, and time steps from `dt_rank` numbers; in mamba2 `dt_rank` is 0. With
    `part_eps` > 0, time steps, B and C have norms without gain of this epsilon (Falcon Mamba).
    """

    n_heads: int
    head_dim: int
    n_groups: int
    state_size: int
    conv_width: int = 4
    dt_rank: int = 0
    part_eps: float = 0.0

    @property
    def inner_size(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def bc_size(self) -> int:
        return self.n_groups * self.state_size

    @property
    def conv_size(self) -> int:
        return self.inner_size + (0 if self.dt_rank else 2 * self.bc_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSpec:
    """Sizes of delta layers: `n_heads` of `value_dim` and `n_key_heads` of `key_dim`.

    Adjacent heads share a key head; if `is_tiled`, heads that are `n_key_heads` apart do.
    """

    n_heads: int
    value_dim: int
    n_key_heads: int
    key_dim: int
    conv_width: int = 4
    is_tiled: bool = False

    @property
    def key_size(self) -> int:
        return self.n_key_heads * self.key_dim

    @property
    def value_size(self) -> int:
        return self.n_heads * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class RwkvSpec:
    """Sizes of RWKV layers: `n_heads` of `head_dim`, `n_key_heads` of keys and values, an optional norm of
    heads with the epsilon `norm_eps`, and the ranks of the matrix pairs that give decays, in-context learning
    rates, the share of the first layer's values, gates (RWKV-7), and mixes (RWKV-6)."""

    n_heads: int
    n_key_heads: int
    head_dim: int
    norm_eps: float
    decay_rank: int
    rate_rank: int = 0
    value_rank: int = 0
    gate_rank: int = 0
    mix_rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaSpec:
    """Sizes of multi-head latent attention (MLA, DeepSeek-V2).

    The KV cache stores a latent of `kv_rank` floats and a rotated key of `rope_dim` floats per row. The last
    `rope_dim` of a query head's `head_dim` floats are rotated. Queries come through `q_rank` floats (0:
    directly from the hidden state); a head's values have `value_dim` floats. `norm_eps` is the epsilon of the
    latents' norms (0: that of the model's).
    """

    kv_rank: int
    rope_dim: int
    q_rank: int = 0
    value_dim: int = 0
    norm_eps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """The layers of an encoder, and its output if the model has no decoder.

    `pooling` is mean, cls or last for one embedding per sequence, or "" for the hidden states of the output
    rows. `has_unit_length` scales outputs to length 1. `n_labels` > 0 is the number of scores that a ranking
    head makes of the pooled row; `head_act` is the activation between its two matrices. Texts are cut at
    `max_tokens` in training (0: the context length). `dense_size` > 0 is the width between two linear maps of
    the pooled row.
    """

    layers: tuple[LayerSpec, ...]
    pooling: str = ""
    has_unit_length: bool = False
    n_labels: int = 0
    head_act: str = "tanh"
    max_tokens: int = 0
    dense_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Architecture and sizes of one model.

    `layers` are the decoder's; `encoder` has its own, and a model may have only an encoder.
    `embedding_scale`, `residual_scale` and `logit_scale` multiply embeddings, each block's output and logits.
    `attention_softcap` and `logit_softcap` bound scores and logits (0: unbounded). `norms_values` applies an
    RMS norm without gain to each head's values, `norms_rotated` norms queries and keys after their rotation.
    `qkv_limit` bounds queries, keys and values before norms and rotation (0: unbounded).
    `unit_heads` norms rotated queries and keys without a gain. With `is_chunked`, a row of a window layer
    attends to the rows of its own chunk of `window` rows. `nope_temperature` > 0 multiplies queries of layers
    without rotation by 1 + nope_temperature * ln(1 + (position + 1) // nope_temperature_length).
    `max_alibi_bias` > 0 adds a bias by distance to scores (ALiBi), multiplied by `alibi_scale`. `ffn_cutoff`
    is the gate threshold of sparse_glu, in standard deviations above the row's mean. `n_streams` > 1 is the
    number of altup's streams; a layer of altup has `input_size` floats of the token, and a learned residual
    of rank `laurel_rank`. `conv_width` is the number of rows that a short convolution sees (0: no layer has
    one). `max_distance` is the last distance with a relative position bias of its own; larger distances share
    that bias. `n_buckets` is the number of such biases. A decoder behind an encoder begins with the token
    `start_id`. `n_token_types` > 0 is the number of types of an embedding table by token type (BERT).
    With `rescale_every` n, the stream is halved after every nth layer (0: never), and the file's matrices are
    of halved streams.
    `sees_images` lets rows of one image attend to each other; the first `n_deepstack` layers add embeddings
    of images. A spec with `tensor_parallel` > 1 is one device's share (`parallel.py`): its heads, and its
    part of each MLP.
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
    conv_width: int = 0
    mla: MlaSpec | None = None
    rwkv: RwkvSpec | None = None
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    norms_values: bool = False
    norms_rotated: bool = False
    qkv_limit: float = 0.0
    unit_heads: bool = False
    is_chunked: bool = False
    nope_temperature: float = 0.0
    nope_temperature_length: int = 0
    max_alibi_bias: float = 0.0
    alibi_scale: float = 1.0
    ffn_cutoff: float = 0.0
    n_streams: int = 1
    input_size: int = 0
    laurel_rank: int = 0
    encoder: EncoderSpec | None = None
    n_token_types: int = 0
    rescale_every: int = 0
    max_distance: int = 0
    n_buckets: int = 0
    start_id: int = 0
    sees_images: bool = False
    n_deepstack: int = 0
    tensor_parallel: int = 1

    @property
    def file_layers(self) -> tuple[LayerSpec, ...]:
        """The layers of a model with one stack: the decoder's, or those of an encoder alone."""
        return self.layers or (self.encoder.layers if self.encoder else ())

    @property
    def is_encoder_decoder(self) -> bool:
        """True for a model whose decoder attends to the rows of its encoder."""
        return self.encoder is not None and bool(self.layers)

    @property
    def embeds(self) -> bool:
        """True for a model that encodes texts and generates none."""
        return not self.layers

    def of_layer(self, layer: LayerSpec) -> ModelSpec:
        """The model with the numbers that a layer has of its own."""
        own = {name: getattr(layer, name) for name in OWN_NUMBERS}
        return replace(self, **{name: n for name, n in own.items() if n}) if any(own.values()) else self

    @property
    def q_size(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.n_kv_heads * self.head_dim
