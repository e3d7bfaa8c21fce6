"""Layers of Gemma 3n and 4: sparse gates, keys and values that the last layers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from camelid.errors import UnsupportedModelError
from camelid.model.metadata_reader import MetadataReader
from camelid.model.spec import LayerSpec

N_SPARSE, CUTOFF = 10, 1.6448533535003662  # of files that state none: 5 % of the gates of the first layers


def sparsity(metadata: MetadataReader, n_layers: int) -> list[float]:
    """The threshold of each layer's gates, in standard deviations; at most 0 for gates that are not sparse.

    Raises UnsupportedModelError for several thresholds.
    """
    key = "activation_sparsity_scale"
    default = [CUTOFF] * N_SPARSE + [0.0] * (n_layers - N_SPARSE) if n_layers > N_SPARSE else [0.0] * n_layers
    stated = metadata.gguf.get(metadata.key(key), list[float], default=default)
    if len(stated) != n_layers:
        metadata.fail(key, f"has {len(stated)} items for {n_layers} layers; the file is damaged")
    cutoffs = {cutoff for cutoff in stated if cutoff > 0.0}
    if len(cutoffs) > 1:
        raise UnsupportedModelError(
            f"{metadata.key(key)} has the thresholds {sorted(cutoffs)}, expected one",
            kind=metadata.key(key),
            name=str(sorted(cutoffs)),
        )
    return stated


def share_kv(metadata: MetadataReader, layers: Sequence[LayerSpec], n_own: int) -> tuple[LayerSpec, ...]:
    """The layers; the last `shared_kv_layers` read the last layer of their kind with keys of its own.

    In files that state none, all layers but the first `n_own` do (0: no layer).
    """
    n = len(layers)
    n_shared = metadata.count("attention.shared_kv_layers", max(n - n_own, 0) if n_own else 0, least=0)
    first = n - n_shared
    owners = {layer.state_group: i for i, layer in enumerate(layers[: max(first, 0)])}
    missing = {layer.state_group for layer in layers} - {*owners}
    if missing:
        metadata.fail("attention.shared_kv_layers", f"is {n_shared}: no layer of {n} makes keys for others")
    shared = (replace(layer, kv_layer=owners[layer.state_group]) for layer in layers[first:])
    return (*layers[:first], *shared)
