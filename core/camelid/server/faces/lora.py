"""Adapters: llama.cpp's list of scales, and vLLM's loading and unloading."""

from __future__ import annotations

import asyncio
from pathlib import PurePath

from camelid.loading.adapter_pool import LoadedAdapter
from camelid.loading.lora import LoraFile
from camelid.server.faces.common import Body
from camelid.server.fields.lora import LOAD, SCALES, UNLOAD
from camelid.server.http.call import Call
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.entry import Entry
from camelid.server.service.lora import check_new, load, path_in, set_scales, unload
from camelid.server.service.service import Service

MODEL = {"model": {"type": "string"}}


async def list_adapters(server: Server, call: Call) -> Reply:
    """The adapters of a model by number, with the scales of requests that name none."""
    entry = await server.shown(call.query.get("model"))
    if entry.service is None:
        return JsonReply([sleeping_adapter(i, file) for i, file in enumerate(entry.lora)])
    service = entry.service
    loaded = sorted(service.host.running.adapters.loaded, key=lambda each: each.id)
    return JsonReply([adapter_body(each, service) for each in loaded])


def sleeping_adapter(id: int, file: LoraFile) -> Body:
    """llama.cpp's object of an adapter of a model that is not loaded."""
    return {
        "id": id, "path": PurePath(file.path).name, "name": file.name, "scale": file.applied,
        "task_name": "", "prompt_prefix": "",
    }  # fmt: skip


def adapter_body(loaded: LoadedAdapter, service: Service) -> Body:
    """llama.cpp's object of an adapter, and its name. Of its path it shows the last part."""
    words, facts = loaded.adapter.invocation, loaded.adapter.facts
    body: Body = {
        "id": loaded.id, "path": PurePath(loaded.path).name, "name": loaded.name, "scale": loaded.applied,
        "task_name": facts.get("task", ""), "prompt_prefix": facts.get("prompt prefix", ""),
    }  # fmt: skip
    if not words:
        return body
    text = service.builder.tokenizer.decode(words, special=True)
    return {**body, "alora_invocation_string": text, "alora_invocation_tokens": list(words)}


async def scale_adapters(server: Server, call: Call) -> Reply:
    """Sets the scales of requests that name no adapter; an adapter that is not listed gets 0."""
    scales = SCALES.read(call.json_list(), "body")
    name = call.query.get("model")
    entry = await server.shown(name)
    service = await server.models.service(entry.row.name)
    set_scales(entry, service, [(each["id"], each["scale"]) for each in scales])
    return JsonReply({"success": True})


async def load_adapter(server: Server, call: Call) -> Reply:
    """Loads an adapter from the folder of --lora-dir under a name, which requests give as their model."""
    own = LOAD.read(call.json(), call).own
    name, replaces = own["lora_name"], own.get("load_inplace", False)
    path = path_in(server.settings.lora_dir, own["lora_path"])
    entry = await server.shown(own.get("model"))
    async with entry.lora_lock:
        check_new(server.models, entry, name, replaces=replaces)
        service = await server.models.service(entry.row.name)
        # in a task of its own, so that a client that leaves does not leave an adapter half known
        await asyncio.shield(server.models.spawn(load(entry, service, LoraFile(path=str(path), name=name))))
    return success(name, "added")


async def unload_adapter(server: Server, call: Call) -> Reply:
    """Unloads an adapter; requests that run with it run on."""
    own = UNLOAD.read(call.json(), call).own
    unload(await adapter_entry(server, own.get("model"), own["lora_name"]), own["lora_name"])
    return success(own["lora_name"], "removed")


async def adapter_entry(server: Server, model: str | None, name: str) -> Entry:
    """The model named by a request, else the one that has the adapter, else the first."""
    found = next((entry for entry in server.models if entry.adapter(name)), None)
    return await server.shown(model) if model or not found else found


def success(name: str, done: str) -> Reply:
    """vLLM's line of text."""
    text = f"Success: LoRA adapter {name!r} {done} successfully."
    return JsonReply(text.encode(), media_type="text/plain; charset=utf-8")


ROUTES = (
    Route("GET", "/lora-adapters", list_adapters, query=MODEL),
    Route("POST", "/lora-adapters", scale_adapters, scope="admin", query=MODEL),
    Route("POST", "/v1/load_lora_adapter", load_adapter, LOAD, "admin", media="text/plain"),
    Route("POST", "/v1/unload_lora_adapter", unload_adapter, UNLOAD, "admin", media="text/plain"),
)
