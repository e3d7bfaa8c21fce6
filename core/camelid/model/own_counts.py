"""Numbers that differ from layer to layer: heads, KV heads and widths of MLPs (OpenELM, DeciLM, Gemma 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import LayerSpec

HEADS, KV_HEADS, WIDTH = "attention.head_count", "attention.head_count_kv", "feed_forward_length"


def most(metadata: MetadataReader, name: str, n_layers: int, default: int = 1) -> int:
    """The largest number of a key that has one number, or one per layer."""
    return max(max(metadata.counts(name, n_layers, default)), 1)


def with_own_counts(metadata: MetadataReader, layers: Sequence[LayerSpec]) -> tuple[LayerSpec, ...]:
    """The layers with their own heads and widths.

    A layer without heads has no attention, one with heads but without KV heads has a matrix in its place, and
    one of width 0 has no MLP. Layers of one state group with equal KV heads share a group.
    """
    n = len(layers)
    heads = metadata.counts(HEADS, n, 1)
    kv_heads = metadata.counts(KV_HEADS, n, most(metadata, HEADS, n))
    widths = metadata.counts(WIDTH, n, 0)
    _check(metadata, heads, kv_heads)
    _check_layers(metadata, layers, kv_heads, widths)
    keys = list(zip(layers, heads, kv_heads, widths, strict=True))
    groups = {layer.state_group for layer in layers}
    most_kv = {g: max(key[2] for key in keys if key[0].state_group == g) for g in groups}
    made = {key: _varied(*key, most_kv[key[0].state_group]) for key in {*keys}}
    return tuple(made[key] for key in keys)


def _check(metadata: MetadataReader, heads: Sequence[int], kv_heads: Sequence[int]) -> None:
    for n_heads, n_kv_heads in zip(heads, kv_heads, strict=True):
        if n_kv_heads and (n_heads % n_kv_heads or not n_heads):
            metadata.fail(HEADS, f"is {n_heads} in a layer with {n_kv_heads} KV heads, expected a multiple")


def _check_layers(
    metadata: MetadataReader, layers: Sequence[LayerSpec], kv_heads: Sequence[int], widths: Sequence[int]
) -> None:
    """Raises ModelFormatError for numbers that the residual, the window or the KV cache excludes."""
    most_in_window = max((n for layer, n in zip(layers, kv_heads, strict=True) if layer.window), default=0)
    for layer, n, width in zip(layers, kv_heads, widths, strict=True):
        if layer.residual != "sequential" and not (n and width):
            metadata.fail(WIDTH if n else KV_HEADS, "is 0 in a layer, expected at least 1")
        if layer.window and n != most_in_window:
            metadata.fail(KV_HEADS, f"is {n} in a layer with a window, expected {most_in_window} in each")
        if layer.kv_layer >= 0 and n != kv_heads[layer.kv_layer]:
            owner = f"{kv_heads[layer.kv_layer]} as in layer {layer.kv_layer}, whose keys and values it reads"
            metadata.fail(KV_HEADS, f"is {n} in a layer, expected {owner}")


def _varied(layer: LayerSpec, n_heads: int, n_kv_heads: int, width: int, most_kv: int) -> LayerSpec:
    mlp = layer.mlp if width else ""
    if not n_kv_heads:
        mixer = "linear" if n_heads else ""
        return replace(layer, mixer=mixer, mlp=mlp, state_group="", rope="", ffn_size=width)
    group = layer.state_group if n_kv_heads == most_kv else f"{layer.state_group}_{n_kv_heads}"
    counts = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "ffn_size": width}
    return replace(layer, mlp=mlp, state_group=group, **counts)
