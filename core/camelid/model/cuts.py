"""Cuts of a model: between CPU and GPU by `gpu_layers`, counted as in llama.cpp, or in stages of equal bytes.

The count starts at the end: the head (last norm, output matrix and sampling) is the first part on the GPU,
then the layers from the last to the first. The embedding is on the GPU if all layers are.
"""

from __future__ import annotations

from itertools import accumulate

from camelid.errors import RequestError
from camelid.model.arch import Model
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


def even_cuts(model: Model, n_stages: int, option: str = "stages") -> tuple[int, ...]:
    """The cuts into `n_stages` stages whose weights have about equal bytes; the last stage has the head too.

    Raises RequestError for a model with fewer places to cut.
    """
    spec, n_layers = model.spec, len(model.spec.layers)
    places = [cut for cut in range(1, n_layers) if can_cut(spec, cut)]
    if not 1 <= n_stages <= len(places) + 1:
        reason = _reason(spec) if spec.encoder else f"{spec.name} has {len(places)} places to cut"
        raise RequestError(
            f"{option} is {n_stages}, but {reason}; expected 1 to {len(places) + 1}", field=option
        )
    sums = list(accumulate(_layer_bytes(model, layer) for layer in range(n_layers)))
    whole = sums[-1] + _head_bytes(model)
    cuts: list[int] = []
    for i in range(1, n_stages):
        left = [cut for cut in places if cut > max(cuts, default=0)]
        left = left[: len(left) - (n_stages - 1 - i)]  # one place for each later cut
        cuts.append(min(left, key=lambda cut: abs(sums[cut - 1] - whole * i / n_stages)))
    return tuple(cuts)


def _layer_bytes(model: Model, layer: int) -> int:
    return sum(w.n_bytes for name, w in model.weights.items() if name.startswith(f"blk.{layer}."))


def _head_bytes(model: Model) -> int:
    head = model.weights.get("output") or model.weights.get("token_embd")
    return head.n_bytes if head else 0


def can_cut(spec: ModelSpec, cut: int) -> bool:
    """True if the layers before `cut` can be on another device than the later layers."""
    if not 0 < cut <= len(spec.layers):
        return True
    return not spec.encoder and all(not 0 <= layer.kv_layer < cut for layer in spec.layers[cut:])


def _reason(spec: ModelSpec) -> str:
    if spec.encoder:
        return "a model with an encoder runs on one device"
    return "layers that share keys and values must be on one device"
