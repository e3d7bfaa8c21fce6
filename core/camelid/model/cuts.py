"""Cuts of a model between CPU and GPU by `gpu_layers`, counted as in llama.cpp.

The count starts at the end: the head (last norm, output matrix and sampling) is the first part on the GPU,
then the layers from the last to the first. The embedding is on the GPU if all layers are.
"""

from __future__ import annotations

from camelid.errors import RequestError
from camelid.model.spec import ModelSpec

ALL = -1


def cut_for(spec: ModelSpec, gpu_layers: int) -> int:
    """The first layer on the GPU: 0 for the whole model, n_layers for the head alone, n_layers + 1 for no
    part.

    Raises RequestError for `gpu_layers` below -1, for a model with an encoder, and for a cut between layers
    that share keys and values.
    """
    n_layers = len(spec.layers)
    if gpu_layers < ALL:
        raise RequestError(
            f"gpu_layers is {gpu_layers}, expected a number of layers, or {ALL} for all {n_layers} and the "
            "head",
            field="gpu_layers",
        )
    cut = 0 if gpu_layers == ALL else max(n_layers + 1 - gpu_layers, 0)
    if not can_cut(spec, cut):
        fitting = [n_layers + 1 - i for i in range(n_layers + 1, -1, -1) if can_cut(spec, i)]
        raise RequestError(
            f"gpu_layers is {gpu_layers}, but {_reason(spec)}; possible numbers for {spec.name}: "
            f"{', '.join(map(str, fitting))}",
            field="gpu_layers",
        )
    return cut


def can_cut(spec: ModelSpec, cut: int) -> bool:
    """True if the layers before `cut` can be on another device than the later layers."""
    if not 0 < cut <= len(spec.layers):
        return True
    return not spec.encoder and all(not 0 <= layer.kv_layer < cut for layer in spec.layers[cut:])


def _reason(spec: ModelSpec) -> str:
    if spec.encoder:
        return "a model with an encoder runs on one device"
    return "layers that share keys and values must be on one device"
