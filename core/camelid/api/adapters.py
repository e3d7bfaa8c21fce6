"""Adapters of a loaded model, from their files or as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import TypeAlias, TypedDict, Unpack

from camelid.api.runner import Runner
from camelid.loading.adapter_pool import LoadedAdapter
from camelid.loading.lora import LoraFile, path_of, stem
from camelid.loading.lora_files import fetched_file, opened_file
from camelid.loading.start import RunningModel
from camelid.model.adapter import Adapter

AdapterName: TypeAlias = Adapter | str | PathLike[str]


class AdapterOptions(TypedDict, total=False):
    """Options of loading an adapter.

    `name` is its name in requests (None: that of its file); an adapter of the same name is replaced. `scale`
    multiplies its terms where a request states no scale. With `applies` it acts on requests that name none.
    """

    name: str | None
    scale: float
    applies: bool


async def load_adapter(
    running: RunningModel,
    adapter: AdapterName,
    *,
    name: str | None = None,
    scale: float = 1.0,
    applies: bool = False,
) -> str:
    """As `LLM.aload_adapter`."""
    applied = scale if applies else 0.0
    if isinstance(adapter, Adapter):
        found = replace(adapter, name=name or adapter.name)
        await running.add_adapter(found, scale=scale, applied=applied)
        return found.name
    path = path_of(adapter)
    file = await fetched_file(LoraFile(path=path, name=name or stem(path), scale=scale, applied=applied))
    await running.add_adapter(opened_file(running.file, file), scale=scale, applied=applied, path=file.path)
    return file.name


class AdapterMethods:
    """Methods of `LLM` for adapters."""

    _running: RunningModel
    _runner: Runner
    _check_open: Callable[[], None]

    async def aload_adapter(self, adapter: AdapterName, **options: Unpack[AdapterOptions]) -> str:
        """Loads a LoRA adapter: a PEFT or mlx-lm directory, a GGUF file, or a hub id of one. Requests name it
        by the result.
        """
        self._check_open()
        return await load_adapter(self._running, adapter, **options)

    def unload_adapter(self, name: str) -> None:
        """Unloads an adapter; requests that run with it run on."""
        self._running.adapters.remove(name)

    @property
    def adapters(self) -> tuple[LoadedAdapter, ...]:
        """The loaded adapters, the least recently requested first."""
        return self._running.adapters.loaded

    def load_adapter(self, adapter: AdapterName, **options: Unpack[AdapterOptions]) -> str:
        """As `aload_adapter`, without an event loop."""
        return self._runner.run(self.aload_adapter(adapter, **options))
