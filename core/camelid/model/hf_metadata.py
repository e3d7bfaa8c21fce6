"""GGUF metadata from config.json: sizes, experts, sliding windows, rotation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from camelid.formats.mlx_quant import refuse_other_library
from camelid.model.hf_rotation import rotation
from camelid.model.hf_settings import CHUNKED, FULL, SLIDING, HfSettings, Metadata, Pairs, unsupported
from camelid.model.layer_specs import all_but

# Published activation -> ours. Only "gelu" is exact; the other GELUs are tanh approximations.
ACTS: Mapping[str, str] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu", "relu": "relu", "relu2": "relu2", "swiglu": "silu",
}  # fmt: skip


COUNTS = ("embedding_length", "block_count", "attention.head_count", "context_length")


REFUSED: Mapping[str, tuple[object, ...]] = {"clip_qkv": ()}


ATTENTION, RECURRENT = (
    ("attention", FULL),
    ("mamba", "linear_attention", "conv", "mlp", "moe"),
)  # values of layer_types


def hf_metadata(settings: HfSettings, *, name: str) -> Metadata:
    """GGUF metadata of the model, without the tokenizer.

    Raises UnsupportedModelError for a setting that would change the results, ModelFormatError for an
    impossible one.
    """
    _check_refused(settings)
    assert settings.n_layers, "bounded by the tensors before a row makes lists of so many numbers"
    arch = settings.row.arch
    own = {f"{arch}.{key}": value for part in PARTS for key, value in part(settings)}
    return {"general.architecture": arch, "general.name": name, **own}


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
    is_plain = settings.arch.plain_act and "ffn_gate" not in settings.names
    if name and acts[name] != (settings.arch.plain_act if is_plain else settings.arch.act):
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


def _window_key(settings: HfSettings) -> str:
    return settings.row.keys.get("attention.sliding_window", "sliding_window")


def _windows(settings: HfSettings) -> Pairs:
    config, key = settings.config, _window_key(settings)
    is_on = not settings.row.has_window_switch or config.flag("use_sliding_window", False)
    windowed = _windowed(settings) if is_on and config.has(key) else []
    if settings.arch.window and not any(windowed):  # an absent key means arch.window
        yield "attention.sliding_window", 0
    elif any(windowed):
        yield "attention.sliding_window", config.count(key)
        if windowed != _pattern(settings, settings.arch.window_pattern):
            yield "attention.sliding_window_pattern", windowed


def _windowed(settings: HfSettings) -> list[bool]:
    """True for layers with a sliding window."""
    config, n_layers = settings.config, settings.n_layers
    local = CHUNKED if settings.arch.is_chunked else SLIDING
    if config.has("layer_types") or (settings.row.layer_types and len(settings.arch.mixers) == 1):
        types = settings.layer_types
        unknown = {*types} - {local, FULL}
        if unknown or len(types) != n_layers:
            raise unsupported("layer_types", min(unknown, default=f"{len(types)} items"), (local, FULL))
        return [kind == local for kind in types]
    if settings.arch.is_chunked:
        return _rotated(settings)
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
    rotated, every = _rotated(settings), settings.arch.nope_every
    is_whole = settings.arch.is_chunked and not settings.config.has("attention_chunk_size")
    if rotated != all_but(0 if is_whole else every, settings.n_layers):
        yield "rope.layers", rotated


def _rotated(settings: HfSettings) -> list[bool]:
    """True for layers with rotation."""
    config, n_layers = settings.config, settings.n_layers
    has_window = config.has(_window_key(settings))
    if settings.arch.has_global_nope and not (has_window and any(_windowed(settings))):
        return [settings.row.rotates_windowless and not has_window] * n_layers
    if not config.has("no_rope_layers") and not config.has("no_rope_layer_interval"):
        return all_but(settings.arch.nope_every, n_layers)
    stated = config.counts("no_rope_layers", most=1)
    return [flag == 1 for flag in stated] or all_but(config.count("no_rope_layer_interval", 4), n_layers)


def _check_refused(settings: HfSettings) -> None:
    refuse_other_library(settings.config)
    read = {*settings.row.numbers.values()}
    for key, supported in {**REFUSED, **settings.row.refused}.items():
        value = settings.config.values.get(key)
        if value is not None and value not in supported and key not in read:
            raise unsupported(key, value, supported)


PARTS: tuple[Callable[[HfSettings], Pairs], ...] = (
    _sizes, _counts, _numbers, _act, _experts, _windows, _nope, rotation, _derived,
)  # fmt: skip
