"""GGUF metadata from config.json: sizes, experts, sliding windows, rotation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

from camelid.errors import UnsupportedModelError
from camelid.formats.gguf_header import MetadataValue
from camelid.formats.hf_config import Config
from camelid.formats.mlx_quant import refuse_other_library
from camelid.model.arch import Arch
from camelid.model.archs import ARCHS
from camelid.model.hf_rows import HfRow
from camelid.model.layer_specs import all_but
from camelid.model.rope import yarn_magnitude
from camelid.model.spec import MAX_HEAD_DIM

Metadata: TypeAlias = dict[str, MetadataValue]

# Published activation -> ours. Only "gelu" is exact; the other GELUs are tanh approximations.
ACTS: Mapping[str, str] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu", "relu": "relu", "relu2": "relu2", "swiglu": "silu",
}  # fmt: skip
COUNTS = ("embedding_length", "block_count", "attention.head_count", "context_length")
REFUSED: Mapping[str, tuple[object, ...]] = {"clip_qkv": (), "is_decoder": (True,)}
SLIDING, FULL = "sliding_attention", "full_attention"
ATTENTION, RECURRENT = (
    ("attention", FULL),
    ("mamba", "linear_attention", "conv", "mlp"),
)  # values of layer_types
# One of these keys is the number of experts.
EXPERTS = (
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "moe_num_primary_experts",
)  # fmt: skip
MAX_STREAMS = 64
MAX_EXPERTS = 1 << 12  # published models have at most 512


@dataclass(frozen=True)
class HfSettings:
    """config.json with its `HfRow`, and the numbers that several parts need. No slots: cached properties."""

    config: Config
    row: HfRow
    n_tensors: int  # bound of n_layers and n_experts: a false count is refused before it costs memory

    @property
    def arch(self) -> Arch:
        return ARCHS[self.row.arch]

    def count(self, key: str, default: int | None = None) -> int:
        """An integer by its GGUF key, of a list of numbers the largest.

        Raises ModelFormatError if it is absent and has no default.
        """
        if key in self.row.derived:
            value = self.row.derived[key](self.config)
            return max(cast(list[int], value if isinstance(value, list) else [value]), default=1)
        name = self.row.keys[key]
        return self.config.count(name) if default is None else self.config.count(name, default)

    @cached_property
    def n_layers(self) -> int:
        return self.config.count(self.row.keys["block_count"], most=self.n_tensors)

    @cached_property
    def n_heads(self) -> int:
        return self.count("attention.head_count")

    @cached_property
    def n_kv_heads(self) -> int:
        shares_all = self.config.flag("multi_query", False)
        if shares_all and not self.config.flag("new_decoder_architecture", False):
            return 1
        return self.count("attention.head_count_kv", self.n_heads)

    @cached_property
    def head_dim(self) -> int:
        default = max(self.count("embedding_length") // self.n_heads, 1)
        name = self.row.keys.get("attention.key_length", "head_dim")
        return self.config.count(name, min(default, MAX_HEAD_DIM), most=MAX_HEAD_DIM)

    @cached_property
    def n_experts(self) -> int:
        most = max(self.n_tensors // self.n_layers, 1) if self.counts_experts else MAX_EXPERTS
        stated = (self.config.count(name, least=0, most=most) for name in EXPERTS if self.config.has(name))
        return next(stated, 0)

    @property
    def n_streams(self) -> int:
        """Streams of altup; 1 in other models."""
        return self.config.count("altup_num_inputs", 1, most=MAX_STREAMS)

    @property
    def counts_experts(self) -> bool:
        """True if the published tensors are one per expert, not stacks of experts."""
        return any("{e}" in name for name in self.row.names.values())

    @cached_property
    def names(self) -> Mapping[str, str]:
        """GGUF name -> published name of a layer's tensors, MLP included."""
        mlp, row = "experts" if self.n_experts else self.arch.mlp, self.row
        own: Mapping[str, str] = row.named_by(self.config) if row.named_by else {}
        return {**row.names, **own, **row.mlp_names.get(mlp, {})}

    @cached_property
    def layer_types(self) -> list[str]:
        """The kind of each layer; [] if config.json states none."""
        kinds = self.row.layer_types
        return kinds(self.config, self.n_layers) if kinds else self.config.texts("layer_types")

    @cached_property
    def is_ranking(self) -> bool:
        """True for a published class with a head that scores a text or a pair of texts."""
        return any(name.endswith("ForSequenceClassification") for name in self.config.texts("architectures"))

    @property
    def outer(self) -> Mapping[str, str]:
        """GGUF name -> published name of the tensors outside layers."""
        return {**self.row.outer, **(self.row.ranking if self.is_ranking else {})}

    @cached_property
    def n_skipped(self) -> int:
        """Rows of the position table before a text's first position."""
        return self.config.count("pad_token_id", least=0) + 1 if self.row.counts_padding else 0

    @cached_property
    def is_tied(self) -> bool:
        return self.config.flag("tie_word_embeddings", self.row.is_tied)

    @cached_property
    def rope(self) -> Config:
        """The rotation of full attention: rope_parameters, or rope_scaling before transformers 5."""
        parameters = self.config.section("rope_parameters")
        parameters = parameters.section(FULL) if parameters.has(FULL) else parameters
        return parameters if parameters.values else self.config.section("rope_scaling")

    @cached_property
    def theta(self) -> float:
        name = self.row.keys.get("rope.freq_base", "rope_theta")
        default = self.config.number(name, 10000.0, above=1.0) * self.config.number(
            "rope_ratio", 1.0, above=0.0
        )
        return self.rope.number("rope_theta", default, above=1.0) * self._ntk_stretch

    @property
    def _ntk_stretch(self) -> float:
        """Factor of theta by a fixed NTK alpha (Hunyuan)."""
        key = self.row.keys.get("rope.scaling.alpha", "")
        dim = self.rope_dim
        has_alpha = self.rope.has(key) and dim > 2
        return self.rope.number(key, above=0.0) ** (dim / (dim - 2)) if has_alpha else 1.0

    @cached_property
    def rope_dim(self) -> int:
        if self.config.has("rotary_dim"):
            return self.config.count("rotary_dim")
        share = self.config.number("partial_rotary_factor", 1.0, above=0.0, most=1.0)
        return int(self.head_dim * self.rope.number("partial_rotary_factor", share, above=0.0, most=1.0))


def hf_metadata(settings: HfSettings, *, name: str) -> Metadata:
    """GGUF metadata of the model, without the tokenizer.

    Raises UnsupportedModelError for a setting that would change the results, ModelFormatError for an
    impossible one.
    """
    _check_refused(settings)
    arch = settings.row.arch
    own = {f"{arch}.{key}": value for part in PARTS for key, value in part(settings)}
    return {"general.architecture": arch, "general.name": name, **own}


Pairs: TypeAlias = Iterator[tuple[str, MetadataValue]]


def _sizes(settings: HfSettings) -> Pairs:
    yield from ((key, settings.count(key)) for key in COUNTS if key not in settings.row.derived)
    if settings.n_skipped:
        yield "context_length", max(settings.count("context_length") - settings.n_skipped, 1)
    if settings.arch.is_encoder:
        yield "attention.causal", False
    yield "feed_forward_length", _ffn_size(settings)
    if settings.arch.has_attention:
        yield from _kv_heads(settings)
        yield "attention.key_length", settings.head_dim
        yield "attention.value_length", settings.head_dim
    kind = "rms_" if settings.arch.norm_kind == "rms" else ""
    default = 1e-6 if kind else 1e-5
    yield (
        f"attention.layer_norm_{kind}epsilon",
        settings.config.number(settings.row.keys["norm_eps"], default),
    )


def _ffn_size(settings: HfSettings) -> int:
    """The width of the dense MLP; a dense model with `mlp_names` states it as the shared expert's width."""
    shared = settings.row.counts.get("expert_shared_feed_forward_length")
    if shared and settings.row.mlp_names and not settings.n_experts:
        return settings.config.count(shared)
    return _one(settings, settings.row.keys["feed_forward_length"], 4 * settings.count("embedding_length"))


def _one(settings: HfSettings, key: str, default: int | None = None) -> int:
    """A number that is stated once, or for each layer alike."""
    stated = {*settings.config.counts(key)}
    if len(stated) > 1:
        raise unsupported(key, sorted(stated), ("one number for all layers",))
    if default is None and not stated:
        return settings.config.count(key)
    return next(iter(stated), default or 0)


def _kv_heads(settings: HfSettings) -> Pairs:
    """KV heads; in a hybrid one number per layer (0: recurrent), or a number and an attention interval."""
    if len(settings.arch.mixers) == 1:
        yield "attention.head_count_kv", settings.n_kv_heads
        return
    has_kv, every = _has_kv(settings), settings.arch.full_attention_interval
    if not every:
        yield "attention.head_count_kv", [settings.n_kv_heads if has else 0 for has in has_kv]
        return
    every = has_kv.index(True) + 1 if True in has_kv else settings.n_layers + 1
    if has_kv != [not is_recurrent for is_recurrent in all_but(every, settings.n_layers)]:
        raise unsupported("layer_types", "irregular", (f"{FULL} in every nth layer",))
    yield "attention.head_count_kv", settings.n_kv_heads
    yield "full_attention_interval", every


def _has_kv(settings: HfSettings) -> list[bool]:
    """True for layers with a KV cache: by layer_types, else every nth layer, else none."""
    config, every = settings.config, settings.arch.full_attention_interval
    if every and not config.has("layer_types"):
        every = config.count("full_attention_interval", every)
        return [not is_recurrent for is_recurrent in all_but(every, settings.n_layers)]
    types = settings.layer_types or [RECURRENT[0]] * settings.n_layers
    unknown = {*types} - {*ATTENTION, *RECURRENT}
    if unknown or len(types) != settings.n_layers:
        found = min(unknown, default=f"{len(types)} items")
        raise unsupported("layer_types", found, (*ATTENTION, *RECURRENT))
    return [kind in ATTENTION for kind in types]


def _counts(settings: HfSettings) -> Pairs:
    yield from ((key, settings.config.count(name, least=0)) for key, name in settings.row.counts.items())
    for key, names in settings.row.products.items():
        yield key, math.prod(settings.config.count(name) for name in names)


def _derived(settings: HfSettings) -> Pairs:
    yield from ((key, value(settings.config)) for key, value in settings.row.derived.items())


def _numbers(settings: HfSettings) -> Pairs:
    for key, name in settings.row.numbers.items():
        if settings.config.has(name):
            yield key, settings.config.number(name)
        elif name in settings.row.defaults:  # null turns the number off; an absent key means the default
            yield key, 0.0
    if settings.config.has("query_pre_attn_scalar"):
        yield "attention.scale", settings.config.number("query_pre_attn_scalar", above=0.0) ** -0.5


def _act(settings: HfSettings) -> Pairs:
    if settings.arch.act not in ACTS.values():  # config.json does not name it
        return
    key = settings.row.keys["hidden_activation"]
    name = settings.config.text(key, "") or settings.config.text("hidden_act", "")
    acts = {**ACTS, **settings.row.acts}
    if name and name not in acts:
        raise unsupported(key, name, acts)
    if name and acts[name] != settings.arch.act:
        yield "hidden_activation", acts[name]


def _experts(settings: HfSettings) -> Pairs:
    """Sizes of experts and their router; keys that equal the row's defaults are left out."""
    config, arch = settings.config, settings.arch
    if not settings.n_experts:
        return
    yield "expert_count", settings.n_experts
    for key in ("expert_used_count", "expert_feed_forward_length"):
        name = settings.row.keys[key]
        if key == "expert_used_count" or config.has(name):
            yield key, _one(settings, name)
    normalizes = config.flag("norm_topk_prob", arch.normalizes)
    if normalizes != arch.normalizes:
        yield "expert_weights_norm", normalizes


def _windows(settings: HfSettings) -> Pairs:
    config = settings.config
    is_on = not settings.row.has_window_switch or config.flag("use_sliding_window", False)
    windowed = _windowed(settings) if is_on and config.has("sliding_window") else []
    if settings.arch.window and not any(windowed):  # an absent key means arch.window
        yield "attention.sliding_window", 0
    elif any(windowed):
        yield "attention.sliding_window", config.count("sliding_window")
        if windowed != _pattern(settings, settings.arch.window_pattern):
            yield "attention.sliding_window_pattern", windowed


def _windowed(settings: HfSettings) -> list[bool]:
    """True for layers with a sliding window."""
    config, n_layers = settings.config, settings.n_layers
    if config.has("layer_types"):
        types = config.texts("layer_types")
        unknown = {*types} - {SLIDING, FULL}
        if unknown or len(types) != n_layers:
            raise unsupported("layer_types", min(unknown, default=f"{len(types)} items"), (SLIDING, FULL))
        return [kind == SLIDING for kind in types]
    if settings.row.has_window_switch:
        first = config.count("max_window_layers", 0, least=0)
        return [i >= first for i in range(n_layers)]
    return _pattern(settings, config.count("sliding_window_pattern", settings.arch.window_pattern, least=0))


def _pattern(settings: HfSettings, every: int) -> list[bool]:
    return all_but(every, settings.n_layers, is_first=settings.arch.is_full_first)


def _nope(settings: HfSettings) -> Pairs:
    """Layers without rotation (NoPE). config.json's no_rope_layers holds 1 for layers with rotation."""
    if "position_embedding_type" in settings.row.defaults:
        yield "rope.scaling.finetuned", settings.config.text("position_embedding_type", "") == "rope"
    if not settings.config.has("no_rope_layers") and not settings.config.has("no_rope_layer_interval"):
        return
    every = settings.config.count("no_rope_layer_interval", 4)
    stated = settings.config.counts("no_rope_layers", most=1)
    rotated = [flag == 1 for flag in stated] or all_but(every, settings.n_layers)
    if rotated != all_but(settings.arch.nope_every, settings.n_layers):
        yield "rope.layers", rotated


def _rotation(settings: HfSettings) -> Pairs:
    if not settings.arch.rope_style:
        return
    yield "rope.freq_base", settings.theta
    yield "rope.dimension_count", settings.rope_dim
    if settings.arch.has_local_rope:
        yield "rope.freq_base_swa", _local_theta(settings)
    yield from _scaling(settings)


def _local_theta(settings: HfSettings) -> float:
    """The rotation base of window layers, which no supported model scales."""
    local = settings.config.section("rope_parameters").section(SLIDING)
    kind = local.text("rope_type", "default")
    if kind != "default":
        raise unsupported(f"rope_parameters.{SLIDING}.rope_type", kind, ("default",))
    stated = settings.config.number(
        "rope_local_base_freq", settings.arch.local_theta or settings.theta, above=0.0
    )
    return local.number("rope_theta", stated, above=0.0)


def _rope_type(settings: HfSettings) -> str:
    kind = settings.rope.text("rope_type", "") or settings.rope.text("type", "default")
    known = ("default", "mrope", "dynamic", "linear", "yarn", "longrope", "su", "llama3")
    if kind not in known:
        raise unsupported("rope_type", kind, known)
    # Without alpha, dynamic scales beyond context_length alone, the longest context of a loaded model.
    if kind == "dynamic" and settings.rope.has("alpha") and "rope.scaling.alpha" not in settings.row.keys:
        raise unsupported("alpha", settings.rope.number("alpha"), ())
    return {"su": "longrope", "dynamic": "default", "mrope": "default"}.get(kind, kind)


def _scaling(settings: HfSettings) -> Pairs:
    kind, rope = _rope_type(settings), settings.rope
    if kind in ("default", "llama3"):
        return
    yield "rope.scaling.type", kind
    if kind == "longrope":
        yield "rope.scaling.original_context_length", _original_context(settings)
        yield "rope.scaling.attn_factor", _longrope_magnitude(settings)
        return
    factor = rope.number("factor", above=0.0)
    yield "rope.scaling.factor", factor
    if kind == "yarn":
        yield from _yarn(settings, factor)


def _yarn(settings: HfSettings, factor: float) -> Pairs:
    rope = settings.rope
    if rope.flag("truncate", True) != settings.arch.rounds_ramp:
        raise unsupported("truncate", rope.flag("truncate", True), (settings.arch.rounds_ramp,))
    yield "rope.scaling.original_context_length", _original_context(settings)
    yield "rope.scaling.yarn_beta_fast", rope.number("beta_fast", 32.0, above=0.0)
    yield "rope.scaling.yarn_beta_slow", rope.number("beta_slow", 1.0, above=0.0)
    base, attention_factor = yarn_magnitude(factor), _attention_factor(rope, factor)
    if "mla" in settings.arch.mixers and rope.number("mscale_all_dim", 0.0):
        yield "rope.scaling.yarn_log_multiplier", 0.1 * rope.number("mscale_all_dim")
        base = 1.0
    if attention_factor != base:  # GGUF's attn_factor multiplies YaRN's magnitude
        yield "rope.scaling.attn_factor", attention_factor / base


def _attention_factor(rope: Config, factor: float) -> float:
    """The stated multiplier of cos and sin, a ratio of two magnitudes (DeepSeek), or YaRN's magnitude."""
    mscales = [rope.number(key, 0.0) for key in ("mscale", "mscale_all_dim")]
    own, all_dim = (yarn_magnitude(factor, mscale) for mscale in mscales)
    default = own / all_dim if all(mscales) else yarn_magnitude(factor)
    return rope.number("attention_factor", default)


def _original_context(settings: HfSettings) -> int:
    key = "original_max_position_embeddings"
    stated = settings.rope.count(key, settings.count("context_length"))
    return settings.config.count(key, stated)


def _longrope_magnitude(settings: HfSettings) -> float:
    """sqrt(1 + ln(factor) / ln(original context)) (arXiv 2402.13753)."""
    original = _original_context(settings)
    factor = settings.rope.number("factor", settings.count("context_length") / original, above=0.0)
    is_scaled = factor > 1.0 and original > 1
    default = math.sqrt(1.0 + math.log(factor) / math.log(original)) if is_scaled else 1.0
    return settings.rope.number("attention_factor", default)


def rope_factors(settings: HfSettings) -> dict[str, Sequence[float]]:
    """RoPE factors by tensor name: GGUF stores them as tensors, config.json as settings."""
    if not settings.arch.rope_style:
        return {}
    kind = _rope_type(settings)
    if kind == "llama3":
        return {"rope_freqs.weight": _llama3_factors(settings)}
    if kind == "longrope":
        names = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
        return {name: settings.rope.numbers(key) or [0.0] for name, key in names.items()}
    return {}


def _llama3_factors(settings: HfSettings) -> list[float]:
    """Divisors of the frequencies: `factor` for slow pairs, 1 for fast ones, a blend between (Llama 3.1)."""
    rope, original = settings.rope, _original_context(settings)
    factor = rope.number("factor", above=0.0)
    low, high = rope.number("low_freq_factor", above=0.0), rope.number("high_freq_factor", above=0.0)
    turns = [
        original * settings.theta ** (-2.0 * i / settings.rope_dim) / (2.0 * math.pi)
        for i in range(settings.rope_dim // 2)
    ]
    shares = [min(max((n - low) / max(high - low, 1e-9), 0.0), 1.0) for n in turns]  # 1: unscaled
    return [1.0 / ((1.0 - share) / factor + share) for share in shares]


def _check_refused(settings: HfSettings) -> None:
    refuse_other_library(settings.config)
    read = {*settings.row.numbers.values()}
    for key, supported in {**REFUSED, **settings.row.refused}.items():
        value = settings.config.values.get(key)
        if value is not None and value not in supported and key not in read:
            raise unsupported(key, value, supported)


def unsupported(key: str, value: object, supported: Iterable[object]) -> UnsupportedModelError:
    shown = ", ".join(map(str, supported))
    return UnsupportedModelError(
        f"config.json: {key} is {value!r}, which is not supported; supported: {shown or 'null'}",
        kind=key,
        name=str(value),
    )


PARTS: tuple[Callable[[HfSettings], Pairs], ...] = (
    _sizes, _counts, _numbers, _act, _experts, _windows, _nope, _rotation, _derived,
)  # fmt: skip
