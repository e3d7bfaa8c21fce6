"""Tensors of a Hugging Face directory: one model.safetensors, or shards listed by an index."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from camelid.formats.json_text import parse_object, shown
from camelid.formats.safetensors import open_safetensors
from camelid.formats.source import format_error, read_small

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 << 20
MAX_SHARDS = 4096
ENDING = ".safetensors"
NUMBER_BYTES = {"f32": 4, "f16": 2, "bf16": 2}  # of the float types of `read_number`


@dataclass(frozen=True, slots=True)
class HfTensor:
    """A tensor. `file` is the name of its file in the directory, `offset` is from that file's start.

    A matrix that MLX quantized is one tensor of its values' shape, in the type that its groups become:
    `planes` are its words, scales and biases, and `groups` the arguments of their load op (mlx_quant.py).
    """

    name: str
    type: str
    shape: tuple[int, ...]
    file: str
    offset: int
    n_bytes: int
    planes: tuple[HfTensor, ...] = ()
    groups: tuple[int | str, ...] = ()


def is_plain(name: str) -> bool:
    """True for a plain file name on every system: no path, no drive, no leading dot."""
    return name.isprintable() and name[:1] not in {"", "."} and not set(name) & set('/\\:*?"<>|')


def list_tensors(directory: Path, files: Mapping[str, Path]) -> dict[str, HfTensor]:
    """Lists tensors by name; {} without weights. model.safetensors takes precedence over an index.

    Raises ModelFormatError for a malformed header, a missing shard, and shards that disagree with the index.
    """
    if SINGLE in files:
        return _read_shards(directory, {SINGLE: files[SINGLE]})
    if INDEX not in files:
        return {}
    index = files[INDEX]
    weight_map = _weight_map(index)
    tensors = _read_shards(directory, _find_shards(index, weight_map, files))
    _compare(index, weight_map, tensors)
    return tensors


def read_number(file: Path, tensor: HfTensor) -> float:
    """The value of a tensor of one float. Raises ModelFormatError if the file ends before it."""
    with file.open("rb") as opened:
        opened.seek(tensor.offset)
        raw = opened.read(NUMBER_BYTES[tensor.type])
    if len(raw) != tensor.n_bytes:
        _fail(file, f"{tensor.name} has {len(raw)} bytes, expected {tensor.n_bytes}")
    padded = b"\0\0" + raw if tensor.type == "bf16" else raw  # bf16 is the upper half of f32
    return struct.unpack("<e" if tensor.type == "f16" else "<f", padded)[0]


def _weight_map(index: Path) -> dict[str, str]:
    """Reads the file name of each tensor. Names with a path are refused before any file is looked up."""
    header = parse_object(read_small(index, MAX_INDEX_BYTES), path=str(index), what="the index")
    value = header.get("weight_map")
    if not isinstance(value, dict) or not value:
        _fail(index, f"weight_map must be an object with entries, found {shown(cast(object, value))}")
    for name, file in cast(dict[str, object], value).items():
        _check_file(index, name, file)
    return cast(dict[str, str], value)


def _check_file(index: Path, name: str, file: object) -> None:
    if not isinstance(file, str):
        _fail(index, f"{shown(name)}: a file's name is expected, found {shown(file)}")
    if not is_plain(file):
        _fail(index, f"{shown(name)}: {shown(file)} is no plain file name; shards must be beside their index")
    if not file.endswith(ENDING):
        _fail(index, f"{shown(name)}: {shown(file)} is not a {ENDING} file")


def _find_shards(index: Path, weight_map: dict[str, str], files: Mapping[str, Path]) -> dict[str, Path]:
    names = sorted(set(weight_map.values()))
    if len(names) > MAX_SHARDS:
        _fail(index, f"{len(names)} shards; at most {MAX_SHARDS} are allowed")
    missing = [name for name in names if name not in files]
    if missing:
        n = f"{len(missing)} of {len(names)} shards"
        _fail(index, f"{shown(missing[0])} is missing ({n} are); was the download interrupted?")
    return {name: files[name] for name in names}


def _read_shards(directory: Path, shards: Mapping[str, Path]) -> dict[str, HfTensor]:
    found: dict[str, HfTensor] = {}
    for file, path in shards.items():
        for tensor in open_safetensors(path).tensors.values():
            if tensor.name in found:
                message = f"{tensor.name}: this tensor is both in {found[tensor.name].file} and in {file}"
                _fail(directory, message)
            made = HfTensor(tensor.name, tensor.type, tensor.shape, file, tensor.offset, tensor.n_bytes)
            found[tensor.name] = made
    return found


def _compare(index: Path, weight_map: dict[str, str], tensors: dict[str, HfTensor]) -> None:
    for name, tensor in tensors.items():
        if name not in weight_map:
            _fail(index, f"{name}: the tensor is in {tensor.file}, but not in the index")
        if weight_map[name] != tensor.file:
            _fail(index, f"{name}: the index states {weight_map[name]}, but the tensor is in {tensor.file}")
    for name, file in weight_map.items():
        if name not in tensors:
            _fail(index, f"{shown(name)}: the index states {file}, but that file has no such tensor")


def _fail(path: Path, message: str) -> NoReturn:
    raise format_error(str(path), message)
