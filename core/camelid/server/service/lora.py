"""Adapters of a served model: loaded, unloaded and scaled while requests run.

The model's entry lists its adapters, so that one that is unloaded and loaded again has them, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from camelid.errors import ModelFormatError, TensorShapeError, UnsupportedModelError
from camelid.loading.lora import MOST_FILES, LoraFile
from camelid.loading.lora_files import opened_file
from camelid.server.http.errors import ApiError, without_folders
from camelid.server.service.entry import Entry
from camelid.server.service.models import Models
from camelid.server.service.service import Service


def path_in(folder: Path | None, given: str) -> Path:
    """The path of an adapter in the folder of --lora-dir, relative to it or absolute.

    Raises ApiError 501 without a folder, and 404 for a path outside it, whether it exists or not.
    """
    if folder is None:
        raise ApiError(501, "no adapter is loaded by a request: start the server with --lora-dir FOLDER")
    try:
        root = folder.resolve()
        path = (root / given).resolve()
        if path != root and path.is_relative_to(root) and path.exists():
            return path
    except (OSError, ValueError, RuntimeError):  # a loop of links, a zero character, a name that is too long
        pass
    raise ApiError(
        404, f"there is no adapter {given!r:.200} in the folder of --lora-dir", code="adapter_not_found",
        param="lora_path",
    )  # fmt: skip


def check_new(models: Models, entry: Entry, name: str, *, replaces: bool) -> None:
    """Raises ApiError 400 for a name that a model or an adapter has, and for too many adapters."""
    known = {each for other in models for each in (other.row.name, *other.row.aliases)}
    others = {file.name for other in models if other is not entry for file in other.lora}
    own = {file.name for file in entry.lora}
    if name in known | others or any(ord(c) < 32 or c == "," for c in name):
        raise ApiError(
            400, f"the name {name!r:.200} of an adapter is a model's, another model's adapter's, or has a "
            "comma or a control character; choose another", param="lora_name",
        )  # fmt: skip
    if name in own and not replaces:
        raise ApiError(
            400, f"the adapter {name!r:.200} is loaded already; set load_inplace to replace it",
            code="adapter_exists", param="lora_name",
        )  # fmt: skip
    if name not in own and len(own) >= MOST_FILES:
        raise ApiError(
            400, f"{len(own)} adapters are loaded, at most {MOST_FILES} are; unload one", param="lora_name"
        )


async def load(entry: Entry, service: Service, file: LoraFile) -> None:
    """Loads an adapter, in place of one of its name, whose requests run on. Its file is read in a thread.

    Raises ApiError 400 for a file that is no adapter of this model, RequestError as `AdapterPool.add`.
    """
    running = service.host.running
    try:
        adapter = await asyncio.to_thread(opened_file, running.file, file)
    except (ModelFormatError, TensorShapeError, UnsupportedModelError) as error:
        raise ApiError(400, without_folders(error), code="invalid_adapter", param="lora_path") from None
    work = running.add_adapter(adapter, scale=file.scale, applied=file.applied, path=file.path)
    await service.host.call(work)
    entry.lora = (*(each for each in entry.lora if each.name != file.name), file)


def unload(entry: Entry, name: str) -> None:
    """Unloads an adapter; requests that run with it run on. Raises ApiError 404 for an unknown name."""
    if not entry.adapter(name):
        known = ", ".join(file.name for file in entry.lora) or "none"
        raise ApiError(
            404, f"the adapter {name!r:.200} cannot be found; loaded: {known:.1000}",
            code="adapter_not_found", param="lora_name",
        )  # fmt: skip
    entry.lora = (file for file in entry.lora if file.name != name)
    if entry.service and any(each.name == name for each in entry.service.host.running.adapters.loaded):
        entry.service.host.running.adapters.remove(name)


def set_scales(entry: Entry, service: Service, scales: Iterable[tuple[int, float]]) -> None:
    """Makes these adapters apply to requests that name none, and no others. Raises RequestError."""
    pool = service.host.running.adapters
    applied: Mapping[str, float] = pool.names(scales)
    pool.set_scales(applied)
    entry.lora = (replace(file, applied=applied.get(file.name, 0.0)) for file in entry.lora)
