"""Adapters of a page's files: a GGUF, or the safetensors of PEFT or mlx-lm beside their settings.

A source is read by byte ranges; no file system is needed.
"""

from __future__ import annotations

from dataclasses import replace

from camelid.errors import RequestError
from camelid.formats.adapters.gguf_lora import read_gguf_adapter
from camelid.formats.adapters.mlx_lm import read_mlx_lm
from camelid.formats.adapters.pairs import AdapterFile
from camelid.formats.adapters.peft import MAX_CONFIG_BYTES, read_peft
from camelid.formats.gguf import fetch_gguf
from camelid.formats.json_text import parse_object
from camelid.formats.safetensors import read_safetensors
from camelid.formats.source import drive_async, format_error
from camelid.loading.model_file import ModelFile, ModelSource
from camelid.model.adapter import Adapter
from camelid.model.adapters.origins import namings_of_gguf
from camelid.model.adapters.terms import read_adapter

MLX_SETTING = "lora_parameters"


async def fetch_adapter(source: ModelSource, model: ModelFile, *, name: str, config: str = "") -> Adapter:
    """The adapter of a source with the terms of a GGUF model's weights; `config` is adapter_config.json.

    Raises the errors of `open_adapter`, and RequestError for a model that is a directory.
    """
    if model.directory:
        raise RequestError(
            "an adapter of a page is for a GGUF model; load_adapter takes its path", field="adapter"
        )
    header = await (_with_config(source, config) if config else _gguf(source))
    check_architecture(header, model)
    steps = read_adapter(header, name, model.model, namings_of_gguf(model.gguf, model.spec))
    adapter = await drive_async(steps, source.read)
    return replace(adapter, name=name)


async def _gguf(source: ModelSource) -> AdapterFile:
    return read_gguf_adapter(await fetch_gguf(source.read, source.size, source.name))


async def _with_config(source: ModelSource, config: str) -> AdapterFile:
    data = config.encode()
    if len(data) > MAX_CONFIG_BYTES:
        raise format_error(source.name, f"adapter_config.json has {len(data)} bytes, expected settings")
    weights = await drive_async(read_safetensors(source.size, source.name), source.read)
    settings = parse_object(data, path=source.name, what="adapter_config.json")
    return (read_mlx_lm if MLX_SETTING in settings else read_peft)(data, weights, source.name)


def check_architecture(header: AdapterFile, model: ModelFile) -> None:
    """Raises ModelFormatError for a GGUF adapter of another architecture."""
    arch = header.facts.get("architecture")
    if header.format == "gguf" and arch not in (None, model.spec.arch):
        raise format_error(
            header.path, f"the adapter is of architecture {arch}, but the model of {model.spec.arch}"
        )
