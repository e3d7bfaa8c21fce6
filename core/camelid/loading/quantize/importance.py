"""Importance of the columns of a matrix, as quantizers take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from camelid.errors import ModelFormatError
from camelid.formats.imatrix import Imatrix
from camelid.loading.quantize.choice import EMBEDDING
from camelid.plan.weights import Weight


def check_shapes(imatrix: Imatrix, weights: Sequence[Weight]) -> None:
    """Raises ModelFormatError if an entry does not fit its tensor, or no entry names a tensor."""
    path = str(imatrix.path)
    for weight in weights:
        entry = imatrix.entries.get(weight.name)
        if entry and entry.n != n_values(weight) and weight.name != EMBEDDING:
            raise ModelFormatError(
                f"{path}: {weight.name} has {entry.n:,} values, expected {n_values(weight):,}; was "
                "the importance matrix collected from another model?",
                path=path, tensor=weight.name, got=entry.n, want=n_values(weight),
            )  # fmt: skip
    if weights and not any(weight.name in imatrix.entries for weight in weights):
        first = next(iter(imatrix.entries))
        message = f"{path}: no tensor of the model has an entry; the first is {first}. Is it another model's?"
        raise ModelFormatError(message, path=path)


def n_values(weight: Weight) -> int:
    """Importances of a tensor: its columns, of each matrix of a stack of experts."""
    stack = weight.shape[-3] if len(weight.shape) > 2 else 1
    return stack * weight.cols


def importance_of(imatrix: Imatrix | None, weight: Weight) -> Callable[[int], Any] | None:
    """A function from a row to the importance of its matrix's columns, float32 [cols], with mean 1; None
    without an entry that fits."""
    entry = imatrix.entries.get(weight.name) if imatrix else None
    if imatrix is None or entry is None or entry.n != n_values(weight):
        return None
    from camelid.backends.common.quantizers.rows import relative_importance

    rows = relative_importance(imatrix.means(weight.name), weight.cols)
    height = weight.shape[-2]
    return lambda row: rows[row // height]
