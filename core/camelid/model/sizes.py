"""How large a model is, from its weights or from its spec alone."""

from __future__ import annotations

from collections.abc import Iterable

from camelid.formats.quants import quant, row_bytes
from camelid.model.arch import ELEMENTWISE, Model
from camelid.model.archs import ARCHS
from camelid.model.spec import ModelSpec
from camelid.model.tensors import tensor_shapes
from camelid.plan.weights import Part, Weight

NOWHERE = "nowhere"  # the source of weights that have shapes and no bytes


def count_parameters(weights: Iterable[Weight]) -> int:
    """Numbers in all tensors, vectors included. A tied output is counted once, tables of angles never."""
    return sum(weight.rows * weight.cols for weight in weights)


def bytes_at(weights: Iterable[Weight], type_name: str) -> int:
    """Bytes of all tensors if every matrix, embeddings included, were of this type; see `type_at`."""
    return sum(w.rows * row_bytes(type_at(w.shape, type_name), w.cols) for w in weights)


def type_at(shape: tuple[int, ...], type_name: str) -> str:
    """The type that a tensor has in a file of `type_name`.

    Norms and biases are f32. A row that no block fills evenly stays f16. "4 bits" is q4_0 wherever Camelid
    names a size: blocks of 32 weights in 18 bytes, 4.5 bits a weight.
    """
    if len(shape) == 1:
        return "f32"
    return type_name if shape[-1] % quant(type_name).block == 0 else "f16"


def bare_model(spec: ModelSpec, type_name: str) -> Model:
    """A model whose weights have types and shapes, but no bytes anywhere: it lowers to plans and never loads.

    It has what its architecture's row requires, and no optional bias.
    """
    present = () if spec.is_tied else ("output.weight",)
    shapes = tensor_shapes(spec, ARCHS[spec.arch], present)
    weights = (_bare(name.removesuffix(".weight"), shape, type_name) for name, shape in shapes.items())
    return Model(spec, {weight.name: weight for weight in weights})


def _bare(name: str, shape: tuple[int, ...], type_name: str) -> Weight:
    kind = "f32" if name.rpartition(".")[2] in ELEMENTWISE else type_at(shape, type_name)
    weight = Weight(name=name, type=kind, shape=shape, parts=())
    return Weight(name=name, type=kind, shape=shape, parts=(Part(NOWHERE, 0, weight.n_bytes),))
