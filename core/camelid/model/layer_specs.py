"""Layer specs from metadata: mixer, MLP, sliding window and rotation of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from camelid.model.arch import RECURRENT_MIXERS, Arch
from camelid.model.lowering import RECURRENT
from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import LayerSpec
from camelid.model.stream_specs import share_kv, sparsity

LOCAL, GLOBAL = "rope_local", "rope"
ACTS = ("silu", "gelu", "gelu_erf", "relu", "relu2", "swiglu_oai", "xielu")
Kind: TypeAlias = tuple[str, str, bool, bool]  # mixer, mlp, is_local, is_rotated


def read_layers(
    metadata: MetadataReader, arch: Arch, n_layers: int, routed: Sequence[bool]
) -> tuple[LayerSpec, ...]:
    """The specs of all layers; `routed` has True for layers with a router, and no item in a dense model.

    Each list of the file is read once, not once per layer (quadratic).
    """
    window = metadata.count("attention.sliding_window", arch.window, least=0)
    windowed = _windowed(metadata, arch, n_layers) if window else [False] * n_layers
    mlps = _mlps(metadata, arch, n_layers, routed)
    mixers, rotated = _mixers(metadata, arch, n_layers), _rotated(metadata, arch, n_layers)
    if arch.residual == "single":
        widths = metadata.counts("feed_forward_length", n_layers, 0)
        mixers = ["" if width else mixer for width, mixer in zip(widths, mixers, strict=True)]
        mlps = [mlp if width else "" for width, mlp in zip(widths, mlps, strict=True)]
    if arch.has_global_nope and window and not metadata.has("rope.layers"):
        rotated = windowed
    kinds = list(zip(mixers, mlps, windowed, rotated, strict=True))
    act = _act(metadata, arch)
    layers = {kind: _layer(arch, kind, act, window) for kind in {*kinds}}  # equal layers share one object
    head_dim = metadata.count("attention.key_length_swa", 0, least=0)  # of heads in window layers
    layers = {kind: replace(it, head_dim=head_dim if it.window else 0) for kind, it in layers.items()}
    made = tuple(layers[kind] for kind in kinds)
    return share_kv(metadata, made, arch.n_own_kv) if arch.shares_kv else made


def _layer(arch: Arch, kind: Kind, act: str, window: int) -> LayerSpec:
    mixer, mlp, is_local, is_rotated = kind
    if mixer in RECURRENT_MIXERS or not mixer:
        group = RECURRENT if mixer else ""
        return LayerSpec(mixer=mixer, mlp=mlp, act=act, residual=arch.residual, state_group=group, rope="")
    return LayerSpec(
        mixer=mixer,
        mlp=mlp,
        act=act,
        residual=arch.residual,
        state_group="window" if is_local else "kv",
        window=window if is_local else 0,
        rope=_rope_name(arch, is_local) if is_rotated else "",
    )


def _mixers(metadata: MetadataReader, arch: Arch, n_layers: int) -> list[str]:
    """The mixer of each layer: the row's first for layers with a KV cache, its second for recurrent ones."""
    first, *recurrent = arch.mixers
    if not recurrent:
        return [first] * n_layers
    if arch.opens:
        return [first, *recurrent * (n_layers - 1)]
    every = metadata.count("full_attention_interval", arch.full_attention_interval, least=0)
    if every:
        return [recurrent[0] if is_recurrent else first for is_recurrent in all_but(every, n_layers)]
    counts = metadata.counts("attention.head_count_kv", n_layers, 1)
    return [first if n_kv_heads else recurrent[0] for n_kv_heads in counts]


def _mlps(metadata: MetadataReader, arch: Arch, n_layers: int, routed: Sequence[bool]) -> list[str]:
    """The MLP of each layer: experts where the file states them, else where a layer has a router."""
    if arch.mlp == "sparse_glu":
        return ["sparse_glu" if cutoff > 0.0 else "glu" for cutoff in sparsity(metadata, n_layers)]
    if not routed:
        return [arch.mlp] * n_layers
    first = metadata.count("leading_dense_block_count", 0, least=0)
    every = metadata.count(
        "interleave_moe_layer_step", metadata.count("moe_every_n_layers", 0, least=0), least=0
    )
    if metadata.has("leading_dense_block_count") or every:
        routed = [i >= first and (i + 1) % max(every, 1) == 0 for i in range(n_layers)]
    return ["experts" if has_router else arch.mlp for has_router in routed]


def _act(metadata: MetadataReader, arch: Arch) -> str:
    act = metadata.gguf.get(metadata.key("hidden_activation"), str, default=arch.act)
    if act not in ACTS:
        metadata.fail("hidden_activation", f"is {act!r}; known: {', '.join(ACTS)}")
    return act


def _windowed(metadata: MetadataReader, arch: Arch, n_layers: int) -> list[bool]:
    """True for layers with a sliding window."""
    if metadata.is_list("attention.sliding_window_pattern"):
        return metadata.flags("attention.sliding_window_pattern", n_layers)
    every = metadata.count("attention.sliding_window_pattern", arch.window_pattern, least=0)
    return all_but(every, n_layers, is_first=arch.is_full_first)


def _rotated(metadata: MetadataReader, arch: Arch, n_layers: int) -> list[bool]:
    """True for layers with a rotation, in an architecture that has one."""
    if metadata.number("attention.max_alibi_bias", arch.alibi_bias(n_layers)):
        return [False] * n_layers  # ALiBi replaces rotation
    if arch.has_rope_switch and not metadata.flag("rope.scaling.finetuned", default=True):
        return [False] * n_layers
    if metadata.has("rope.layers"):
        return metadata.flags("rope.layers", n_layers)
    if arch.is_chunked and not metadata.count("attention.sliding_window", arch.window, least=0):
        return [True] * n_layers
    return all_but(arch.nope_every, n_layers)


def all_but(every: int, n_layers: int, *, is_first: bool = False) -> list[bool]:
    """False for one of every n layers, the last or the first of them; `every` 0 is True for all layers."""
    return [not every or (i + (not is_first)) % every != 0 for i in range(n_layers)]


def _rope_name(arch: Arch, is_local: bool) -> str:
    if not arch.rope_style:
        return ""
    return LOCAL if is_local and arch.has_local_rope else GLOBAL
