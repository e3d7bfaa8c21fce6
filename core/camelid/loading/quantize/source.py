"""The source of a quantization: headers of GGUF files of any architecture, or a model's directory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from camelid.formats.gguf import Gguf
from camelid.formats.gguf_header import MetadataValue
from camelid.loading.convert import directory_metadata, stored_as
from camelid.loading.model_file import (
    ModelSource,
    fetch_model,
    find_directory,
    find_source,
    open_model,
    read_header,
)
from camelid.loading.quantize.choice import Named, is_70b
from camelid.loading.quantize.rules import Facts
from camelid.model.checkpoint import checkpoint_of_gguf
from camelid.model.shards import merge_shards, n_shards, shard_names
from camelid.plan.weights import Weight


@dataclass(frozen=True, slots=True)
class QuantizeSource:
    """Weights with the types that they keep unless quantized, by name; files by the name that parts have;
    metadata; the names of the files of a model in several, in order; losses of a directory's conversion."""

    name: str
    n_bytes: int
    header: Gguf
    weights: Mapping[str, Weight]
    kept: Mapping[str, str]
    files: Mapping[str, Any]
    metadata: Mapping[str, MetadataValue]
    shards: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()

    @property
    def named(self) -> list[Named]:
        """Names, types and shapes for the choice of types."""
        return [Named(w.name, self.kept[w.name], w.shape) for w in self.weights.values()]

    def facts(self, *, imatrix: bool) -> Facts:
        """Facts of the model that mixes read."""
        arch = self.header.get("general.architecture", str)
        layers = self._count(f"{arch}.block_count", 0)
        heads = self._count(f"{arch}.attention.head_count", 0)
        kv_heads = self._count(f"{arch}.attention.head_count_kv", heads)
        return Facts(
            arch=arch,
            gqa=heads // kv_heads if kv_heads else 0,
            experts=self._count(f"{arch}.expert_count", 0),
            layers=layers,
            is_70b=is_70b(arch, layers, heads, kv_heads),
            imatrix=imatrix,
        )

    def _count(self, key: str, default: int) -> int:
        """A number, or the first layer's of a list."""
        value = self.metadata.get(key, default)
        first = value[0] if isinstance(value, list) and value else value
        return first if isinstance(first, int) else default


def open_source(model: str | PathLike[str]) -> QuantizeSource:
    """Opens a GGUF of any architecture, in one file or several, or a model's directory; reads no weights.

    Raises ModelFormatError for a malformed file, and the errors of `open_model` for a directory.
    """
    return asyncio.run(_open(model))


async def _open(model: str | PathLike[str]) -> QuantizeSource:
    fetched = await fetch_model(model)
    if find_directory(fetched) is not None:
        return await _open_directory(fetched)
    source = find_source(fetched)
    header = await read_header(source)
    if n_shards(header) > 1:
        return await _open_shards(source, n_shards(header))
    weights = checkpoint_of_gguf(header).tensors
    files, n_bytes = {"model": source.handle}, source.size
    return QuantizeSource(source.name, n_bytes, header, weights, _types(weights), files, header.metadata)


def _types(weights: Mapping[str, Weight]) -> dict[str, str]:
    return {name: weight.type for name, weight in weights.items()}


async def _open_shards(source: ModelSource, count: int) -> QuantizeSource:
    names = shard_names(Path(source.name).name, count)
    sources = {name: await source.beside(name) for name in names}
    merged = merge_shards({name: await read_header(each) for name, each in sources.items()})
    return QuantizeSource(
        source.name,
        sum(each.size for each in sources.values()),
        merged.header,
        merged.tensors,
        _types(merged.tensors),
        {name: each.handle for name, each in sources.items()},
        merged.header.metadata,
        tuple(names),
    )


async def _open_directory(model: Any) -> QuantizeSource:
    file = await open_model(model)
    weights = file.checkpoint.tensors
    return QuantizeSource(
        file.name,
        file.n_bytes,
        file.gguf,
        weights,
        {name: stored_as(weight) for name, weight in weights.items()},
        file.sources,
        directory_metadata(file),
        losses=file.checkpoint.losses,
    )
