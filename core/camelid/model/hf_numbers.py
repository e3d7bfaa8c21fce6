"""Metadata that a directory stores as tensors of one number in each layer (xIELU's parameters)."""

from __future__ import annotations

from collections.abc import Iterator

from camelid.errors import TensorShapeError
from camelid.formats.hf_config import HfDirectory
from camelid.formats.hf_weights import NUMBER_BYTES, HfTensor, read_number
from camelid.model.hf_settings import HfSettings


def layer_numbers(directory: HfDirectory, settings: HfSettings) -> dict[str, list[float]]:
    """The numbers of each layer by metadata key.

    Raises TensorShapeError for a missing tensor or one of another size, ModelFormatError for a short file.
    """
    tensors = [*number_tensors(directory, settings)]
    n = settings.n_layers
    return {
        key: [read_number(directory.files[tensor.file], tensor) for tensor in tensors[i * n : (i + 1) * n]]
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
        if tensor is None or tensor.n_bytes != NUMBER_BYTES.get(tensor.type):
            got = f"{tensor.type} {tensor.shape}" if tensor else "nothing"
            raise TensorShapeError(
                f"{full}: found {got}, expected one number of type {', '.join(NUMBER_BYTES)}",
                name=full,
                got=got,
                want="one number",
            )
        yield tensor
