"""GGUF in several files (shards): `name-00001-of-00003.gguf` and its siblings, merged to one checkpoint.

The first shard has all metadata. `split.no`, `split.count` and `split.tensors.count` are the shard's number,
the number of shards and of all tensors (llama.cpp, tools/gguf-split). File names are derived from the name of
the loaded shard, never from a file's content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from camelid.errors import ModelFormatError
from camelid.formats.gguf import Gguf
from camelid.model.checkpoint import Checkpoint, checkpoint_of_gguf
from camelid.plan.weights import Weight

NAME = re.compile(r"(?P<stem>.*-)(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def n_shards(header: Gguf) -> int:
    """The number of the model's files, 1 without `split.count`."""
    return max(header.get("split.count", int, default=1), 1)


def shard_names(name: str, count: int) -> list[str]:
    """The names of all shards in order, from the name of any one of them.

    Raises ModelFormatError for a name without a shard number or with another count.
    """
    match = NAME.fullmatch(name)
    if match is None or int(match["count"]) != count:
        raise ModelFormatError(
            f"{name}: the model has {count} files, which are found by their names; expected a name like "
            f"name-00001-of-{count:05d}.gguf",
            path=name,
        )
    return [f"{match['stem']}{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]


def merge_shards(shards: Mapping[str, Gguf]) -> Checkpoint:
    """One checkpoint of all shards: headers in order, by the name of their source.

    Raises ModelFormatError, with the file's name, for a wrong shard number or count, for a duplicate tensor
    and for a wrong number of tensors.
    """
    first = next(iter(shards.values()))
    tensors: dict[str, Weight] = {}
    for i, (source, header) in enumerate(shards.items()):
        _check_number(header, i, len(shards))
        own = checkpoint_of_gguf(header, source=source).tensors
        duplicates = sorted(tensors.keys() & own.keys())
        if duplicates:
            raise ModelFormatError(
                f"{header.path}: tensor {duplicates[0]} is in an earlier shard too", path=header.path
            )
        tensors |= own
    want = first.get("split.tensors.count", int, default=len(tensors))
    if want != len(tensors):
        raise ModelFormatError(
            f"{first.path}: all shards have {len(tensors)} tensors, expected {want}", path=first.path
        )
    metadata = {key: value for key, value in first.metadata.items() if not key.startswith("split.")}
    kinds = {key: first.kinds[key] for key in metadata}
    return Checkpoint(replace(first, metadata=metadata, kinds=kinds), tensors)


def _check_number(header: Gguf, i: int, count: int) -> None:
    got = header.get("split.no", int, default=i), n_shards(header)
    if got != (i, count):
        raise ModelFormatError(
            f"{header.path}: found shard {got[0] + 1} of {got[1]}, expected {i + 1} of {count}",
            path=header.path,
        )
