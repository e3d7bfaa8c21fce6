"""Files of adapters fetched, and opened for a model."""

from __future__ import annotations

from dataclasses import replace

from camelid.errors import FetchError
from camelid.formats.progress import Progress
from camelid.loading.lora import LoraFile
from camelid.loading.model_file import ModelFile, fetch_adapter_files
from camelid.model.adapter import Adapter


def opened_file(model: ModelFile, file: LoraFile) -> Adapter:
    """The adapter of a file, with its digest computed: a thread may open it beside the engine's."""
    from camelid.loading.adapters.open import open_adapter  # a model without adapters needs no reader

    adapter = replace(open_adapter(file.path, model), name=file.name)
    _ = adapter.digest
    return adapter


async def fetched_file(file: LoraFile, progress: Progress | None = None) -> LoraFile:
    """The file at its local path: that of a hub id is downloaded in a thread unless cached.

    Raises the errors of `formats.hub.fetch.fetch`, and RequestError in a browser.
    """
    try:
        return replace(file, path=str(await fetch_adapter_files(file.path, progress)))
    except FetchError as error:
        note = f"; there is no local file {file.path!r:.200} either"
        raise FetchError(error.message + note, **error.facts) from None
