"""Where a model can be cut: which of its layers go to a GPU, as llama.cpp counts them.

Counted from the end: the head (the last norm, the output matrix and the draw) is the first that goes, then
come the layers from the last to the first. With all of them goes the embedding.
"""

from __future__ import annotations

from camelid.errors import RequestError
from camelid.model.spec import ModelSpec

ALL = -1


def cut_for(spec: ModelSpec, gpu_layers: int) -> int:
    """The first layer on the GPU, if so many of the model's layers and its head are to be there: 0 for all
    of the model; the number of layers for the head alone; one more for nothing.

    RequestError for a number below -1, and where layers on both sides would share keys and values.
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
            f"gpu_layers is {gpu_layers}, but {_reason(spec)}; of {spec.name}, these can be on a GPU: "
            f"{', '.join(map(str, fitting))}",
            field="gpu_layers",
        )
    return cut


def can_cut(spec: ModelSpec, cut: int) -> bool:
    """Whether the layers before `cut` can be on one device and the others on another."""
    if not 0 < cut <= len(spec.layers):
        return True
    return not spec.encoder and all(not 0 <= layer.kv_layer < cut for layer in spec.layers[cut:])


def _reason(spec: ModelSpec) -> str:
    if spec.encoder:
        return "a model with an encoder runs on one device"
    return "layers that share keys and values must be on one device"
