"""Row type of the architecture table: tensors with symbolic shapes, and defaults for absent metadata.

A shape is a string of one letter per dimension, `tensors._sizes` gives each letter its number:
A query heads, C hidden, D head_dim, E experts, F ffn, K key/value heads x head_dim, P context length, Q query
heads x head_dim, S ffn of the shared expert, V vocabulary, X ffn of one expert, k key/value heads, 1 one.
Experts that neighbours share: h their number, x their ffn. e latent of experts, o width of their inputs.
Encoders: J width between two dense maps, L labels of the ranking head, T token types.
Recurrent mixers: B key heads, G groups, H heads, I heads x head_dim, N width of a norm's group, U channels of
the convolution, W width of the convolution, Z rows of the input projection; Mamba 1: r rank of time steps, s
columns of a state, x rows of the projection to time steps, B and C. RWKV: H heads, N head_dim, d key heads x
head_dim, f mixed inputs; ranks w of decays, i of in-context learning rates, v of values, g of gates, m of
mixes, y of all mixes together.
Relative positions: t buckets of distances.
Latent attention: J query heads x head_dim without a low rank (else 0), M width of a cached row, O heads x
value floats, R rank of keys and values, Y floats of a head's values, n unrotated floats of a query head,
q low rank of queries.
Streams of altup: a streams, b streams but the first, c pairs of streams, l layers x p, p floats of the token
for a layer, m hidden of a model with such floats, r rank of the learned residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from camelid.model.spec import LayerSpec, ModelSpec
from camelid.plan.weights import Weight

Shapes: TypeAlias = Mapping[str, str]

MIXED = "wkvrg"  # letters of RWKV-6's mixed inputs, in GGUF's order
ATTENTION: Shapes = {"attn_q": "QC", "attn_k": "KC", "attn_v": "KC", "attn_output": "CQ"}
OUTER: Shapes = {"token_embd": "VC", "output_norm": "C"}
BERT_OUTER: Shapes = {"token_embd": "VC", "token_embd_norm": "C"}
DENSE: Shapes = {"dense_2": "JC", "dense_3": "CJ"}
RANKING: Shapes = {"cls": "CC", "cls.output": "LC"}
PRE_NORMS: Shapes = {"attn_norm": "C", "ffn_norm": "C"}
BERT_NORMS: Shapes = {"attn_output_norm": "C", "layer_output_norm": "C"}
POST_NORMS: Shapes = {"post_attention_norm": "C", "post_ffw_norm": "C"}
ROUTER_BIAS: Shapes = {"exp_probs_b.bias": "E"}
HEAD_NORMS: Shapes = {"attn_q_norm": "D", "attn_k_norm": "D"}
WIDE_NORMS: Shapes = {"attn_q_norm": "Q", "attn_k_norm": "K"}
# Multi-head latent attention; a file has either attn_q or the two matrices of low rank.
MLA: Shapes = {
    "attn_q": "JC", "attn_q_a": "qC", "attn_q_a_norm": "q", "attn_q_b": "Qq", "attn_kv_a_mqa": "MC",
    "attn_kv_a_norm": "R", "attn_k_b": "ARn", "attn_v_b": "AYR", "attn_output": "CO",
}  # fmt: skip
CROSS: Shapes = {
    "cross_attn_norm": "C", "cross_attn_q": "QC", "cross_attn_k": "KC", "cross_attn_v": "KC",
    "cross_attn_o": "CQ",
}  # fmt: skip
SCAN: Shapes = {
    "ssm_in": "ZC", "ssm_conv1d": "UW", "ssm_dt.bias": "H", "ssm_a": "H1", "ssm_d": "H1", "ssm_out": "CI",
}  # fmt: skip
RWKV6: Shapes = {
    "time_mix_lerp_x": "C", "time_mix_w1": "yC",
    **{f"time_mix_lerp_{letter}": "C" for letter in MIXED},
    **{f"time_mix_w2_{letter}": "Cm" for letter in MIXED},
    "time_mix_decay": "C", "time_mix_decay_w1": "wC", "time_mix_decay_w2": "Cw",
    "time_mix_receptance": "CC", "time_mix_key": "dC", "time_mix_value": "dC", "time_mix_gate": "CC",
    "time_mix_output": "CC",
}  # fmt: skip
RWKV7: Shapes = {
    "time_mix_lerp_fused": "f11C", "time_mix_receptance": "CC", "time_mix_key": "CC", "time_mix_value": "CC",
    "time_mix_w0": "C", "time_mix_w1": "wC", "time_mix_w2": "Cw",
    "time_mix_a0": "C", "time_mix_a1": "iC", "time_mix_a2": "Ci", "time_mix_g1": "gC", "time_mix_g2": "Cg",
    "time_mix_k_k": "C", "time_mix_k_a": "C", "time_mix_r_k": "C",
    "time_mix_output": "CC", "time_mix_v0": "C",
}  # fmt: skip
CHANNEL_MIX: Shapes = {"channel_mix_lerp_k": "C", "channel_mix_key": "FC", "channel_mix_value": "CF"}
# Mixer -> its tensors. A name gets the ending `.weight`, except biases and those in NO_ENDING.
MIXER_TENSORS: Mapping[str, Shapes] = {
    "attention": ATTENTION,
    "bidirectional": ATTENTION,
    "mla": MLA,
    "mamba2": {**SCAN, "ssm_norm": "GN"},
    "attention_mamba2": {**ATTENTION, **SCAN},
    "mamba": {
        "ssm_in": "ZC",
        "ssm_conv1d": "UW",
        "ssm_x": "xI",
        "ssm_dt": "Ir",
        "ssm_a": "Is",
        "ssm_d": "I",
        "ssm_out": "CI",
    },
    # Mamba 1's inputs of the scan for Mamba 2's heads; the file repeats z and x once per head in `ssm_in`.
    "mamba_heads": {
        "ssm_z": "IC",
        "ssm_in": "IC",
        "ssm_conv1d": "UW",
        "ssm_x": "xI",
        "ssm_dt": "Hr",
        "ssm_dt_norm": "r",
        "ssm_b_norm": "s",
        "ssm_c_norm": "s",
        "ssm_a": "H",
        "ssm_d": "H",
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
    "shortconv": {"shortconv.in_proj": "ZC", "shortconv.conv": "UW", "shortconv.out_proj": "CU"},
    "rwkv6": {**RWKV6, "time_mix_first": "HN", "time_mix_ln": "C"},
    "gated_rwkv6": RWKV6,
    # Files give the first layer tensors of its rates in place of those of values, which it does not read.
    "rwkv7_first": {**RWKV7, "time_mix_v1": "iC", "time_mix_v2": "Ci"},
    "rwkv7": {**RWKV7, "time_mix_v1": "vC", "time_mix_v2": "Cv"},
    "linear": {"attn_output": "CC"},  # in place of attention
    "": {},
}
# Mixers whose layers have no KV cache.
RECURRENT_MIXERS = (
    *("mamba", "mamba2", "mamba_heads", "delta", "shortconv"),
    *("rwkv6", "gated_rwkv6", "rwkv7_first", "rwkv7"),
)
ROW_MIXERS = ("bidirectional", "causal")  # attention among the rows of a step, without a KV cache
NO_ENDING = ("ssm_a", "ssm_d")
# No matrix product reads these matrices: float32 on every backend and in every file, like vectors.
ELEMENTWISE = (
    *(*NO_ENDING, "ssm_conv1d", "ssm_norm", "conv", "attn_q_norm", "attn_k_norm", "attn_rel_b"),
    *("time_mix_lerp_fused", "time_mix_first"),
)
MLP_TENSORS: Mapping[str, Shapes] = {
    "glu": {"ffn_gate": "FC", "ffn_up": "FC", "ffn_down": "CF"},
    "sparse_glu": {"ffn_gate": "FC", "ffn_up": "FC", "ffn_down": "CF"},
    "mlp": {"ffn_up": "FC", "ffn_down": "CF"},
    "channel_mix": CHANNEL_MIX,
    "channel_mix6": {**CHANNEL_MIX, "channel_mix_lerp_r": "C", "channel_mix_receptance": "CC"},
    "experts": {
        "ffn_gate_inp": "EC",
        "ffn_gate_exps": "EXC",
        "ffn_up_exps": "EXC",
        "ffn_down_exps": "ECX",
        "ffn_gate_shexp": "SC",
        "ffn_up_shexp": "SC",
        "ffn_down_shexp": "CS",
    },
    "": {},
}
EXPERT_GATES = ("ffn_gate_exps", "ffn_gate_shexp")  # absent beside plain MLPs
KV_TENSORS = ("attn_k", "attn_v", "attn_k_norm")  # of no use in a layer that reads another layer's
ABSENT = "JSeglmpq"  # letters that are 0 in a model without the tensors that have them
QKV = ("attn_q", "attn_k", "attn_v")
PLAIN_MLP = ("ffn_up", "ffn_down")
GLU_NAMES = ("ffn_gate", "ffn_up", "ffn_down")
# Fused tensor of a file -> the weights cut from its rows. An entry with a single part renames the tensor.
FUSED_QKV = {"attn_qkv": (("attn_q", "Q"), ("attn_k", "K"), ("attn_v", "K"))}
GATED_Q = {"attn_q": (("attn_q", "Q"), ("attn_gate", "Q"))}
LATE_FFN_NORM = {"post_attention_norm": (("ffn_norm", "C"),)}  # of files that name it by its place
BETA_ALPHA = {"ssm_ba": (("ssm_beta", "H"), ("ssm_alpha", "H"))}
FUSED_EXPERTS = {"ffn_gate_up_exps": (("ffn_gate_exps", "X"), ("ffn_up_exps", "X"))}
FUSED_GATE_UP = {"ffn_up": (("ffn_gate", "F"), ("ffn_up", "F"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture: tensors of its layers, and defaults for metadata that a file leaves out.

    Layers. `mixers` is one mixer for all layers, "bidirectional" for an encoder, or for a hybrid the
    mixer of layers with a KV cache and the recurrent mixer. Layers whose `attention.head_count_kv` is 0
    are recurrent; with `full_attention_interval` n, all but every nth are. With `opens`, the first layer has
    the first mixer, the others have the second. With `tiles_key_heads`, delta head h reads key head h modulo
    their number, else neighbouring heads share one. With the residual `single`, a layer whose
    `feed_forward_length` is not 0 has an MLP alone, the others a mixer alone.
    Tensors. `tensors` are the layer's tensors outside mixer and MLP; `added` extends MIXER_TENSORS and
    MLP_TENSORS by kind; `outer` are the tensors outside layers. Layers may have those in `optional`,
    files those in `optional_outer`. Tensors in `no_ending` lack the ending `.weight`. Tensors in `biases`
    have a bias, those in `optional_biases` may have one. `ones` are vectors of 1, which no file stores: the
    gains of norms that have none, and the lerp by which `token_shift` returns the row before. `splits` cuts
    fused tensors: their rows, the rows of each matrix of a stack, or a stack into its matrices. A tensor in
    `interleaved` repeats its parts once per head, counted by that letter. `stacks` are the prefixes of a
    model's stacks of layers in names: of an encoder and a decoder, if there are two. The first layer of a
    stack has the tensors in `first`, others may. Files without a gate have MLPs of the activation
    `plain_act`, if it is named.
    Experts. `gate` is the router's gate, `normalizes` its normalization of probs, `n_shared` the shared
    experts, in files that state none. With `weighs_input`, probs multiply what experts read.
    Residual. `parallel` models are sequential where `use_parallel_residual` is false, or in files that have
    the layer tensor `sequential_by`, if it is named.
    Windows. `window_pattern` n: every nth layer attends to all rows, the others to a window (0: all layers
    use the window); with `is_full_first` the first of every n layers is that layer. `window` and
    `softcaps` (scores, logits) apply to files that state none.
    Chunks. With `is_chunked`, a row of a window layer attends to the rows of its own chunk, of the window's
    size; a model whose window is stated as 0 rotates in all layers.
    Rotation. Window layers rotate by `local_theta` if it is set; `scales_local` False frees them of RoPE
    scaling, `rounds_ramp` False keeps the ends of YaRN's ramp between pairs. With `nope_every` n, every nth
    layer has no rotation. `has_rope_switch`: `rope.scaling.finetuned` = false turns rotation off in all
    layers. `has_global_nope`: in a file with windows, layers without a window have no rotation.
    `rotates_heads`: a `rope.dimension_count` of 0, as published files state, means whole heads.
    `has_temperature`: queries grow with their position by `attention.temperature_scale`.
    `nope_temperature` (scale, length) is that of layers without rotation, in files that state none.
    `max_alibi_bias` (ALiBi) applies to files that state none, and with `alibi_layers` only to models of that
    many layers; with `scales_alibi` the attention scale multiplies the bias too.
    Images. With `sees_images`, rows of an image attend to all rows of that image. `axes` is the order in
    which pairs of a head turn by time, height and width: in "sections", or "interleaved".
    Scales. `scales_embeddings` multiplies embeddings by sqrt(hidden_size). The attention scale is
    (hidden_size / n_heads)^-0.5 in a model of `wide_layers` layers (Gemma 2 and 3, 27B), else head_dim to the
    power of `scale_power`, or `attention_scale`. The file's scale divides logits, or multiplies them with
    `multiplies_logits`; files that state none have `logit_scale`, or with `scales_tied` and a tied head the
    scale hidden_size^-0.5.
    Heads. `norms_rotated` norms queries and keys after their rotation, `norms_values` the values, without a
    gain. `unit_heads` norms rotated queries and keys without a gain, except in models of `plain_experts`
    experts. With `shares_kv`, the file's last layers read keys and values of earlier layers; in files
    that state no number, all but the first `n_own_kv` do (0: none). Keys are the values of a layer without
    `attn_v`. Layers differ in
    heads and widths where the model `varies`.
    Keys. `feed_forward_length` counts the rows of `ffn_matrices` matrices. `depth_scales` e, d, w are for
    files that state no scales: e multiplies embeddings, d / sqrt(layers) blocks, w / hidden_size logits.
    `latent_eps` is the epsilon of norms of latents, which no file states (0: that of other norms).
    Relative positions. Distances from `max_distance` on share a bias.
    `refused` maps keys to their supported values; any other value raises UnsupportedModelError. `reads` are
    keys that most architectures refuse.
    Embeddings. A ranking head reads the row of `rank_pooling`; `head_act` is its activation.
    """

    rope_style: str = "norm"
    rotates_heads: bool = False
    norm_kind: str = "rms"
    mlp: str = "glu"
    act: str = "silu"
    tensors: Shapes = field(default_factory=lambda: PRE_NORMS)
    outer: Shapes = field(default_factory=lambda: OUTER)
    optional_outer: Shapes = field(default_factory=dict[str, str])
    mixers: tuple[str, ...] = ("attention",)
    added: Mapping[str, Shapes] = field(default_factory=dict[str, Shapes])
    optional: Shapes = field(default_factory=dict[str, str])
    ones: tuple[str, ...] = ()
    interleaved: Mapping[str, str] = field(default_factory=dict[str, str])
    full_attention_interval: int = 0
    opens: bool = False
    tiles_key_heads: bool = False
    biases: tuple[str, ...] = ()
    optional_biases: tuple[str, ...] = ()
    no_ending: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ("",)
    first: Shapes = field(default_factory=dict[str, str])
    plain_act: str = ""
    max_distance: int = 0
    has_positions: bool = False
    splits: Mapping[str, tuple[tuple[str, str], ...]] = field(
        default_factory=dict[str, tuple[tuple[str, str], ...]]
    )
    gate: str = "softmax"
    normalizes: bool = True
    n_shared: int = 0
    weighs_input: bool = False
    shares_kv: bool = False
    n_own_kv: int = 0
    norms_values: bool = False
    unit_heads: bool = False
    plain_experts: int = 0
    attention_scale: float = 0.0
    window_pattern: int = 0
    is_full_first: bool = False
    window: int = 0
    is_chunked: bool = False
    softcaps: tuple[float, float] = (0.0, 0.0)
    local_theta: float = 0.0
    scales_local: bool = True
    rounds_ramp: bool = True
    nope_every: int = 0
    has_rope_switch: bool = False
    has_global_nope: bool = False
    has_temperature: bool = False
    nope_temperature: tuple[float, int] = (0.0, 0)
    max_alibi_bias: float = 0.0
    alibi_layers: int = 0
    scales_alibi: bool = False
    norms_rotated: bool = False
    scales_embeddings: bool = False
    multiplies_logits: bool = False
    logit_scale: float = 1.0
    scales_tied: bool = False
    wide_layers: int = 0
    scale_power: float = -0.5
    sees_images: bool = False
    axes: str = ""
    residual: str = "sequential"
    sequential_by: str = ""
    ffn_matrices: int = 1
    varies: bool = False
    depth_scales: tuple[float, ...] = ()
    reads: tuple[str, ...] = ()
    latent_eps: float = 0.0
    refused: Mapping[str, tuple[object, ...]] = field(default_factory=dict[str, tuple[object, ...]])
    rank_pooling: str = "cls"
    head_act: str = "tanh"

    def alibi_bias(self, n_layers: int) -> float:
        """ALiBi's largest bias in a file that states none."""
        return self.max_alibi_bias if self.alibi_layers in (0, n_layers) else 0.0

    def embedding_scale(self, hidden_size: int) -> float:
        """The scale of embeddings in a file that states none."""
        default = self.depth_scales[0] if self.depth_scales else 1.0
        return hidden_size**0.5 if self.scales_embeddings else default

    def residual_scale(self, n_layers: int) -> float:
        """The scale of each block's output in a file that states none."""
        return self.depth_scales[1] / n_layers**0.5 if self.depth_scales else 1.0

    @property
    def is_encoder(self) -> bool:
        """True for a model whose rows attend to both sides, and that generates no text."""
        return self.mixers == ("bidirectional",)

    @property
    def is_encoder_decoder(self) -> bool:
        """True for a model whose decoder attends to the rows of its encoder."""
        return len(self.stacks) > 1

    @property
    def has_attention(self) -> bool:
        """True if layers may have a KV cache."""
        return not {*self.mixers} <= {*RECURRENT_MIXERS}

    @property
    def has_local_rope(self) -> bool:
        """True if window layers use a rotation of their own."""
        return self.local_theta > 0.0 or not self.scales_local

    def layer_tensors(self, layer: LayerSpec) -> Shapes:
        """Shapes of one layer's tensors by name, without biases; tensors with a dimension of 0 are absent."""
        kind = self.mixers[0] if layer.mixer in ROW_MIXERS else layer.mixer
        mixer = {**MIXER_TENSORS[kind], **self.added.get(kind, {})}
        gates = EXPERT_GATES if self.mlp == "mlp" else ()
        own = {**MLP_TENSORS[layer.mlp], **self.added.get(layer.mlp, {})}
        mlp = {name: shape for name, shape in own.items() if name not in gates}
        blocks = {"attn_norm": layer.mixer, "ffn_norm": layer.mlp}
        norms = {n: shape for n, shape in self.tensors.items() if not self.varies or blocks.get(n, n)}
        shared = KV_TENSORS if layer.kv_layer >= 0 else ()
        cross: Shapes = CROSS if layer.residual == "cross" else {}
        return {name: s for name, s in {**norms, **mixer, **cross, **mlp}.items() if name not in shared}


# GPT-2's layer without its positions: norms with biases, a plain MLP, and a bias beside each matrix.
GPT = Arch(
    rope_style="", norm_kind="layer", mlp="mlp", act="gelu",
    biases=(*PRE_NORMS, *ATTENTION, *PLAIN_MLP, "output_norm"), splits=FUSED_QKV,
)  # fmt: skip
# The same, where matrices may have no bias.
BARE_GPT = replace(
    GPT, biases=(*PRE_NORMS, "output_norm"), optional_biases=(*ATTENTION, *PLAIN_MLP), splits={}
)
# Experts chosen by sigmoids and a bias that training balances (arXiv 2408.15664), beside norms of heads.
BALANCED = Arch(
    rope_style="neox", added={"attention": HEAD_NORMS}, optional=ROUTER_BIAS, gate="sigmoid", normalizes=False
)


@dataclass(frozen=True, slots=True)
class Model:
    """A spec with its weights by GGUF name; the ending `.weight` is dropped.

    A model with a vision tower takes images: of `image_rows` rows each, or of any number (0); else None.
    """

    spec: ModelSpec
    weights: Mapping[str, Weight]
    image_rows: int | None = None

    @property
    def weight_bytes(self) -> int:
        return sum(w.n_bytes for w in self.weights.values())
