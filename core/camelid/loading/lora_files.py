"""Files of adapters fetched, and opened for a model."""

from __future__ import annotations

from dataclasses import replace

from camelid.loading.lora import LoraFile
from camelid.loading.model_file import ModelFile, find_hub_id
from camelid.model.adapter import Adapter


def opened_file(model: ModelFile, file: LoraFile) -> Adapter:
    """The adapter of a file, with its digest computed: a thread may open it beside the engine's."""
    from camelid.loading.adapters.open import open_adapter  # a model without adapters needs no reader

    adapter = replace(open_adapter(file.path, model), name=file.name)
    _ = adapter.digest
    return adapter


async def fetched_file(file: LoraFile) -> LoraFile:
    """The file at its local path: that of a hub id is downloaded in a thread unless cached.

    Raises the errors of `formats.hub.fetch.fetch`.
    """
    hub_id = find_hub_id(file.path)
    if hub_id is None:
        return file
    from camelid.formats.hub.fetch import afetch

    return replace(file, path=str((await afetch(hub_id, is_adapter=True)).path))
