"""Files of adapters opened for a model."""

from __future__ import annotations

from dataclasses import replace

from camelid.loading.lora import LoraFile
from camelid.loading.model_file import ModelFile
from camelid.model.adapter import Adapter


def opened_file(model: ModelFile, file: LoraFile) -> Adapter:
    """The adapter of a file, with its digest computed: a thread may open it beside the engine's."""
    from camelid.loading.adapters.open import open_adapter  # a model without adapters needs no reader

    adapter = replace(open_adapter(file.path, model), name=file.name)
    _ = adapter.digest
    return adapter
