"""`camelid adapter merge`: a model whose weights have the terms of adapters added, as a GGUF of any type.

Tensors are read, changed and encoded in tiles, as in a quantization, so memory is bounded by the factors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TypeAlias

import numpy as np

from camelid.errors import RequestError, UnsupportedModelError
from camelid.formats.progress import Progress
from camelid.loading.adapters.modules import F32, Factors, modules_of, naming_of_file
from camelid.loading.adapters.open import open_adapter
from camelid.loading.convert import Conversion
from camelid.loading.model_file import ModelFile, fetch_model, open_model
from camelid.loading.quantize.run import QuantizeOptions, quantize
from camelid.model.adapter import Adapter

NO_BOUND = 1 << 30  # of ranks: a merged model has none
Rows: TypeAlias = Callable[[int, int], F32]  # (first row, number of rows) -> [rows, cols]
Scaled: TypeAlias = tuple[str | PathLike[str], float]  # an adapter's path and the scale of its terms


def merge(
    model: str | PathLike[str],
    adapters: Sequence[Scaled],
    target: str | PathLike[str],
    options: QuantizeOptions,
    *,
    progress: Progress | None = None,
) -> Conversion:
    """Writes `model` with the adapters added to its weights; without `options.to`, each keeps its type.

    Raises the errors of `open_adapter` and `quantize`, and UnsupportedModelError for an activated adapter.
    """
    path = asyncio.run(fetch_model(model))
    file = asyncio.run(open_model(path))
    opened = [(open_adapter(each, file, most_rank=NO_BOUND), scale) for each, scale in adapters]
    if not opened:
        raise RequestError("there is no adapter to merge; give at least one", field="adapter")
    added = added_rows(opened, file)
    return quantize(file.name, target, replace(options, added=added), progress=progress)


def added_rows(
    adapters: Iterable[tuple[Adapter, float]], file: ModelFile
) -> Mapping[str, Callable[[int, int], F32]]:
    """Functions from rows of a file's tensors to what the adapters add to them, by tensor.

    Raises UnsupportedModelError for an activated adapter, which acts on some rows of a text alone.
    """
    found: dict[str, list[tuple[list[Factors], float]]] = {}
    naming = naming_of_file(file)
    for adapter, scale in adapters:
        if adapter.invocation:
            raise UnsupportedModelError(
                f"{adapter.name} is an activated adapter: it acts from its invocation tokens on, which "
                "merged weights cannot; load it beside the model",
                kind="adapter",
                name=adapter.name,
            )
        for tensor, factors in modules_of(adapter, naming, file).items():
            found.setdefault(tensor, []).append((factors, scale))
    return {tensor: _rows(terms) for tensor, terms in found.items()}


def _rows(terms: list[tuple[list[Factors], float]]) -> Rows:
    """The sum of terms in rows of one tensor; the rows are of one matrix."""

    def rows(start: int, n: int) -> F32:
        height = len(terms[0][0][0].b)
        number, first = divmod(start, height)
        total = 0.0
        for factors, scale in terms:
            own = factors[number]
            product = own.b[first : first + n].astype(np.float64) @ own.a.astype(np.float64)
            total = total + scale * own.scale * product
        return np.asarray(total, np.float32)

    return rows
