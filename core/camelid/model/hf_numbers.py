"""Metadata that a directory stores as tensors of one number in each layer (xIELU's parameters)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from camelid.errors import ModelFormatError, TensorShapeError
from camelid.formats.hf_config import HfDirectory, HfTensor
from camelid.model.hf_settings import HfSettings

SIZES = {"f32": 4, "f16": 2, "bf16": 2}


def layer_numbers(directory: HfDirectory, settings: HfSettings) -> dict[str, list[float]]:
    """The numbers of each layer by metadata key.

    Raises TensorShapeError for a missing tensor or one of another size, ModelFormatError for a short file.
    """
    tensors = [*number_tensors(directory, settings)]
    n = settings.n_layers
    return {
        key: [_read(directory, tensor) for tensor in tensors[i * n : (i + 1) * n]]
        for i, key in enumerate(settings.row.values)
    }


def number_tensors(directory: HfDirectory, settings: HfSettings) -> Iterator[HfTensor]:
    """The tensors of these numbers, key by key, each with those of all layers."""
    for name in settings.row.values.values():
        yield from _of_layers(directory, settings, name)


def _of_layers(directory: HfDirectory, settings: HfSettings, name: str) -> Iterator[HfTensor]:
    for i in range(settings.n_layers):
        full = settings.row.layer.format(i=i) + name
        tensor = directory.tensors.get(full)
        if tensor is None or tensor.n_bytes != SIZES.get(tensor.type):
            got = f"{tensor.type} {tensor.shape}" if tensor else "nothing"
            raise TensorShapeError(
                f"{full}: found {got}, expected one number of type {', '.join(SIZES)}",
                name=full,
                got=got,
                want="one number",
            )
        yield tensor


def _read(directory: HfDirectory, tensor: HfTensor) -> float:
    with directory.files[tensor.file].open("rb") as file:
        file.seek(tensor.offset)
        raw = file.read(tensor.n_bytes)
    if len(raw) != tensor.n_bytes:
        raise ModelFormatError(f"{tensor.name}: found {len(raw)} bytes, expected {tensor.n_bytes}")
    padded = b"\0\0" + raw if tensor.type == "bf16" else raw  # bf16 is the upper half of f32
    return struct.unpack("<e" if tensor.type == "f16" else "<f", padded)[0]
