"""Local adapters: a PEFT directory, one of mlx-lm, or a GGUF adapter, opened for a model."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

from camelid.errors import ModelFormatError, UnsupportedModelError
from camelid.formats.adapters.gguf_lora import read_gguf_adapter
from camelid.formats.adapters.mlx_lm import WEIGHTS as MLX_WEIGHTS
from camelid.formats.adapters.mlx_lm import read_mlx_lm
from camelid.formats.adapters.pairs import AdapterFile
from camelid.formats.adapters.peft import CONFIG, MAX_CONFIG_BYTES, read_peft
from camelid.formats.adapters.peft import WEIGHTS as PEFT_WEIGHTS
from camelid.formats.gguf import open_gguf
from camelid.formats.safetensors import open_safetensors
from camelid.formats.source import Ask, format_error, located, read_file, read_small
from camelid.loading.lora_source import check_architecture
from camelid.loading.model_file import ModelFile
from camelid.model.adapter import MOST_RANK, Adapter
from camelid.model.adapters.origins import Naming, namings_of_directory, namings_of_gguf
from camelid.model.adapters.terms import read_adapter
from camelid.model.hf import read_settings

PICKLE = "adapter_model.bin"


def open_adapter(
    path: str | PathLike[str], model: ModelFile, *, name: str = "", most_rank: int = MOST_RANK
) -> Adapter:
    """The adapter at a path with the terms of a model's weights; `name` is that of its file by default.

    Raises ModelFormatError for a broken file, UnsupportedModelError for a method, module or rank that is not
    supported, TensorShapeError for an adapter of another model. Each error names the file.
    """
    header, weights = open_header(path)
    check_architecture(header, model)
    named = name or Path(fspath(path)).name.removesuffix(".gguf")

    def parser(_: int, path: str) -> Ask[Adapter]:
        return read_adapter(
            replace(header, path=path), named, model.model, namings_of(model), most_rank=most_rank
        )

    try:
        return read_file(weights, parser)
    except (ModelFormatError, UnsupportedModelError) as error:
        if "path" in error.facts:
            raise
        facts = {**error.facts, "path": header.path}
        raise type(error)(located(header.path, error.message), **facts) from None


def namings_of(model: ModelFile) -> list[Naming]:
    """The possible names of a model's modules."""
    if model.directory:
        return namings_of_directory(read_settings(model.directory))
    return namings_of_gguf(model.gguf, model.spec)


def open_header(path: str | PathLike[str]) -> tuple[AdapterFile, Path]:
    """The header of an adapter of any format, and the file of its numbers. No model is needed.

    Raises ModelFormatError for a path without an adapter and for a broken file, UnsupportedModelError for
    what is not supported.
    """
    place = Path(fspath(path))
    try:
        is_directory, is_file = place.is_dir(), place.is_file()
    except OSError as error:
        raise format_error(str(place), f"cannot be read: {error.strerror or error}") from error
    if is_directory:
        return _open_directory(place)
    if not is_file:
        raise format_error(
            str(place), "there is no such file; expected a directory of PEFT or mlx-lm, or a GGUF"
        )
    if place.name in (CONFIG, PEFT_WEIGHTS, MLX_WEIGHTS):
        return _open_directory(place.parent)
    return read_gguf_adapter(open_gguf(place)), place


def _open_directory(path: Path) -> tuple[AdapterFile, Path]:
    config = path / CONFIG
    for name, read in ((PEFT_WEIGHTS, read_peft), (MLX_WEIGHTS, read_mlx_lm)):
        if (path / name).is_file():
            header = open_safetensors(path / name)
            return read(read_small(config, MAX_CONFIG_BYTES), header, str(path)), path / name
    if (path / PICKLE).exists():
        message = (
            f"{PICKLE} is a pickle, which can run code, and is never read; save the adapter as safetensors"
        )
        raise UnsupportedModelError(located(str(path), message), kind="format", name=PICKLE, path=str(path))
    raise format_error(str(path), f"there is neither {PEFT_WEIGHTS} nor {MLX_WEIGHTS}; is this an adapter?")
