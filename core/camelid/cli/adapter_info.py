"""The facts of `camelid adapter info`."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import Any, cast

import click

from camelid.cli.format import printable
from camelid.formats.adapters.pairs import AdapterFile, Pair
from camelid.loading.adapters.merge import NO_BOUND
from camelid.loading.adapters.open import open_adapter, open_header
from camelid.loading.model_file import open_model

SHOWN = 8  # targets; -v shows all


def describe(path: str, model: str | None) -> dict[str, Any]:
    """Facts of an adapter, as JSON has them; with a model also its terms by weight."""
    header, weights = open_header(path)
    pairs = [*header.pairs.values()]
    facts: dict[str, Any] = {
        "path": path,
        "format": header.format,
        **header.facts,
        "ranks": sorted({pair.rank for pair in pairs}),
        "scales": sorted({pair.scale for pair in pairs}),
        "types": sorted({pair.a.type for pair in pairs} | {pair.b.type for pair in pairs}),
        "modules": len(pairs),
        "targets": dict(_targets(header)),
        "parameters": sum(_parameters(pair) for pair in pairs),
        "bytes": weights.stat().st_size,
        "invocation_tokens": list(header.invocation),
    }
    if model is None:
        with weights.open("rb") as file:
            return facts | {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    opened = open_adapter(path, asyncio.run(open_model(model)), most_rank=NO_BOUND)
    return facts | {"weights": len(opened.terms), "digest": opened.digest}


def _targets(header: AdapterFile) -> list[tuple[str, int]]:
    """The last names of modules, with their numbers."""
    short = (name.removesuffix(".weight").rpartition(".")[2] for name in header.pairs)
    return Counter(short).most_common()


def _parameters(pair: Pair) -> int:
    return max(pair.experts, 1) * pair.rank * (pair.n_in + pair.n_out)


def print_table(facts: dict[str, Any], verbose: bool) -> None:
    """Prints a line per fact."""
    for name, value in facts.items():
        if value not in ([], ""):
            click.echo(f"{name.replace('_', ' '):<18} {printable(_line(value, verbose))}")


def _line(value: Any, verbose: bool) -> str:
    if isinstance(value, dict):
        items = [f"{name} x {n}" for name, n in cast(dict[str, int], value).items()]
    elif isinstance(value, list):
        listed = cast(list[object], value)
        items = [f"{item:g}" if isinstance(item, float) else str(item) for item in listed]
    else:
        return f"{value:,}" if isinstance(value, int) else str(value)
    shown = items if verbose else items[:SHOWN]
    more = f" and {len(items) - len(shown)} others" if len(items) > len(shown) else ""
    return ", ".join(shown) + more
