"""GGUF in several files: `name-00001-of-00003.gguf` and its siblings, joined to one checkpoint.

The first file has all metadata; `split.no`, `split.count` and `split.tensors.count` identify the parts
(llama.cpp, tools/gguf-split). Names of files are derived from the name of the opened file, never from a
file's contents.
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
    """Number of files of the model, 1 for most models."""
    return max(header.get("split.count", int, default=1), 1)


def shard_names(name: str, count: int) -> list[str]:
    """Names of all files of the model that `name` belongs to, in order.

    Raises ModelFormatError if the name does not match the pattern or the count.
    """
    match = NAME.fullmatch(name)
    if match is None or int(match["count"]) != count:
        raise ModelFormatError(
            f"{name}: this is one of {count} files of a model, which are found by their names; "
            f"expected a name like name-00001-of-{count:05d}.gguf",
            path=name,
        )
    return [f"{match['stem']}{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]


def merge_shards(shards: Mapping[str, Gguf]) -> Checkpoint:
    """Merges the headers of all files, in order and by source name, to one checkpoint.

    Raises ModelFormatError with the file's name if the files do not belong together or repeat a tensor.
    """
    first = next(iter(shards.values()))
    tensors: dict[str, Weight] = {}
    for i, (source, header) in enumerate(shards.items()):
        _check_place(header, i, len(shards))
        own = checkpoint_of_gguf(header, source=source).tensors
        repeated = sorted(tensors.keys() & own.keys())
        if repeated:
            raise ModelFormatError(
                f"{header.path}: the tensor {repeated[0]} is in an earlier file too", path=header.path
            )
        tensors |= own
    want = first.get("split.tensors.count", int, default=len(tensors))
    if want != len(tensors):
        raise ModelFormatError(
            f"{first.path}: its files have {len(tensors)} tensors, but {want} are expected", path=first.path
        )
    metadata = {key: value for key, value in first.metadata.items() if not key.startswith("split.")}
    kinds = {key: first.kinds[key] for key in metadata}
    return Checkpoint(replace(first, metadata=metadata, kinds=kinds), tensors)


def _check_place(header: Gguf, i: int, count: int) -> None:
    got = header.get("split.no", int, default=i), n_shards(header)
    if got != (i, count):
        raise ModelFormatError(
            f"{header.path}: the header states file {got[0] + 1} of {got[1]}, expected {i + 1} of {count}",
            path=header.path,
        )
