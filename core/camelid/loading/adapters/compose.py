"""`camelid adapter compose`: one adapter from several, by the names of their own files, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from camelid.errors import RequestError
from camelid.formats.adapters.pairs import AdapterFile
from camelid.formats.progress import Progress
from camelid.formats.source import Ask, read_file
from camelid.loading.adapters.combine import Recipe, Weighted, check_recipe, combine
from camelid.loading.adapters.modules import Factors, all_equal
from camelid.loading.adapters.open import open_header
from camelid.loading.adapters.write import Facts, write_modules
from camelid.model.adapters.values import read_values

Scaled = tuple[str | PathLike[str], float]


@dataclass(frozen=True, slots=True)
class Modules:
    """An adapter's file, and the factors of each matrix of its modules."""

    file: AdapterFile
    factors: Mapping[str, list[Factors]]


def compose(
    adapters: Sequence[Scaled],
    target: str | PathLike[str],
    recipe: Recipe,
    *,
    progress: Progress | None = None,
) -> int:
    """Writes the combination of weighted adapters in the format of their names; returns its largest rank.

    A module that some adapters do not change is combined of the others. Raises the errors of `open_header`,
    and RequestError for adapters of different names, invocation tokens or shapes.
    """
    weights = [weight for _, weight in adapters]
    check_recipe(recipe, weights)
    if recipe.method == "slerp":  # weights state a share
        weights = [weight / sum(weights) for weight in weights]
    opened = [read_modules(path) for path, _ in adapters]
    check_alike(opened)
    names = list(dict.fromkeys(name for each in opened for name in each.factors))
    result: dict[str, list[Factors]] = {}
    for i, name in enumerate(names):
        weighted = [
            (each.factors[name], weight, number)
            for number, (each, weight) in enumerate(zip(opened, weights, strict=True))
            if name in each.factors
        ]
        result[name] = _combined(name, weighted, recipe)
        if progress:
            progress(name, i + 1, len(names))
    first = opened[0].file
    facts = Facts.of(first, Path(fspath(target)).name.removesuffix(".gguf"))
    write_modules(target, result, "gguf" if first.format == "gguf" else "peft", facts)
    return max(found[0].rank for found in result.values())


def read_modules(path: str | PathLike[str]) -> Modules:
    """An adapter with its numbers, by the names of its own file. Raises the errors of `open_header`."""
    header, weights = open_header(path)

    def parser(_: int, __: str) -> Ask[dict[str, list[Factors]]]:
        found: dict[str, list[Factors]] = {}
        for name, pair in header.pairs.items():
            values = yield from read_values(pair, header.path)
            n = max(pair.experts, 1)
            a = np.asarray(values.a, np.float32).reshape(n, pair.rank, pair.n_in)
            b = np.asarray(values.b, np.float32).reshape(n, pair.n_out, pair.rank)
            found[name] = [Factors(a[i], b[i], pair.scale) for i in range(n)]
        return found

    return Modules(header, read_file(weights, parser))


def check_alike(opened: Sequence[Modules]) -> None:
    """Raises RequestError for adapters whose names or activation differ."""
    if len(opened) < 2:
        raise RequestError("compose takes at least two adapters", field="adapter")
    first = opened[0].file
    for other in (each.file for each in opened[1:]):
        if (other.format == "gguf") != (first.format == "gguf"):
            raise RequestError(
                f"{other.path} is of format {other.format}, {first.path} of {first.format}, whose modules "
                "have other names; convert one of them first (camelid adapter convert)",
                field="adapter",
            )
        if other.invocation != first.invocation:
            raise RequestError(
                f"{other.path} has the invocation tokens {list(other.invocation)}, {first.path} "
                f"{list(first.invocation)}; only adapters that act on the same rows can be combined",
                field="adapter",
            )


def _combined(name: str, terms: list[tuple[list[Factors], float, int]], recipe: Recipe) -> list[Factors]:
    shapes = {(len(each), len(each[0].b), each[0].a.shape[1]) for each, _, _ in terms}
    if len(shapes) > 1:
        raise RequestError(
            f"{name}: matrices of shapes {sorted(shapes)}; adapters of one base are expected", field="adapter"
        )
    matrices = [
        [Weighted(each[i], weight, number) for each, weight, number in terms] for i in range(len(terms[0][0]))
    ]
    return all_equal([combine(found, recipe, f"{name}/{i}") for i, found in enumerate(matrices)])
