"""Models: their list for everyone, loading and unloading for administrators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import prod
from pathlib import PurePath
from typing import Any

from camelid.errors import CamelidError
from camelid.loading.lora import LoraFile
from camelid.server.faces.ollama_details import card, main_type
from camelid.server.fields.kinds import Flag, Text
from camelid.server.fields.table import Field, Table
from camelid.server.http.call import Call
from camelid.server.http.errors import without_folders
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.entry import Entry

# Name of a tokenizer -> llama.cpp's number of it.
VOCABULARIES = {"llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5}
LOAD = Table.of(Field("model", Text(512, 1), is_required=True), Field("reload", Flag()))
UNLOAD = Table.of(Field("model", Text(512, 1), is_required=True))


async def list_models(server: Server, call: Call) -> Reply:
    """All models, loaded or not; a folder's as it is now."""
    await server.models.rescan()
    entries = list(server.models)
    if is_anthropic(call):
        return JsonReply(anthropic_list(server, entries))
    return JsonReply({
        "object": "list",
        "data": [each for entry in entries for each in model_objects(server, entry)],
        "models": [llama_card(server, entry) for entry in entries],
    })  # fmt: skip


async def one_model(server: Server, call: Call) -> Reply:
    """One model by name or alias, or one adapter."""
    entry = await server.models.known(call.params["model"])
    if is_anthropic(call):
        return JsonReply(anthropic_object(server, entry))
    adapter = next((file for file in entry.lora if file.name == call.params["model"]), None)
    return JsonReply(adapter_object(server, entry, adapter) if adapter else model_object(server, entry))


async def load_model(server: Server, call: Call) -> Reply:
    """Loads a model; with `reload` also one that is loaded and whose file changed."""
    values = LOAD.read(call.json(), call).own
    entry = await server.models.known(values["model"])
    is_new = entry.service is None
    if is_new or not values.get("reload"):
        await server.models.load(entry)
    else:
        is_new = await server.models.reload(entry)
    return JsonReply({"success": True, "changed": is_new, "model": model_object(server, entry)})


async def unload_model(server: Server, call: Call) -> Reply:
    """Unloads a model; requests under way end first."""
    entry = await server.models.known(UNLOAD.read(call.json(), call).own["model"])
    was_loaded = entry.state in ("loaded", "loading")
    await server.models.unload(entry)
    return JsonReply({"success": True, "changed": was_loaded, "model": model_object(server, entry)})


def is_anthropic(call: Call) -> bool:
    """True for Anthropic's clients, whose list of models has OpenAI's path and a shape of its own."""
    return "anthropic-version" in call.headers


def anthropic_list(server: Server, entries: Sequence[Entry]) -> dict[str, Any]:
    """Anthropic's list of models, as one page."""
    rows = [anthropic_object(server, entry) for entry in entries]
    ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]} if rows else {}
    return {"data": rows, "has_more": False, "first_id": None, "last_id": None, **ends}


def anthropic_object(server: Server, entry: Entry) -> dict[str, Any]:
    """Anthropic's model object."""
    created = datetime.fromtimestamp(int(server.started), UTC).isoformat().replace("+00:00", "Z")
    return {"type": "model", "id": entry.row.name, "display_name": entry.row.name, "created_at": created}


def model_object(server: Server, entry: Entry) -> dict[str, Any]:
    """OpenAI's model object, with the state, the context length and the memory."""
    status: dict[str, Any] = {"value": entry.state}
    if entry.state == "failed":
        error = entry.error
        text = without_folders(error) if isinstance(error, CamelidError) else str(error)
        status |= {"failed": True, "error": text}
    return {
        "id": entry.row.name,
        "object": "model",
        "created": int(server.started),
        "owned_by": "camelid",
        "aliases": list(dict.fromkeys((entry.row.name, *entry.row.aliases))),
        "tags": list(entry.row.tags),
        "status": status,
        "meta": {"n_ctx": entry.context, "n_bytes": entry.n_bytes, **facts(entry)} if entry.context else None,
    }


def model_objects(server: Server, entry: Entry) -> list[dict[str, Any]]:
    """A model's object, and those of its adapters."""
    return [model_object(server, entry), *(adapter_object(server, entry, file) for file in entry.lora)]


def adapter_object(server: Server, entry: Entry, file: LoraFile) -> dict[str, Any]:
    """vLLM's object of an adapter, whose name a request may give as its model."""
    return {
        "id": file.name,
        "object": "model",
        "created": int(server.started),
        "owned_by": "camelid",
        "root": PurePath(file.path).name,
        "parent": entry.row.name,
    }


def facts(entry: Entry) -> dict[str, Any]:
    """llama.cpp's facts of a loaded model's file."""
    if entry.service is None:
        return {}
    file = entry.service.host.running.file
    tokenizer = file.gguf.get("tokenizer.ggml.model", str, default="")
    return {
        "vocab_type": VOCABULARIES.get(tokenizer, 0),
        "n_vocab": file.spec.vocab_size,
        "n_ctx_train": file.gguf.get(
            f"{file.spec.arch}.context_length", int, default=file.spec.context_length
        ),
        "n_embd": file.spec.hidden_size,
        "n_params": sum(prod(weight.shape) for weight in file.model.weights.values()),
        "size": sum(weight.n_bytes for weight in file.model.weights.values()),
        "ftype": main_type(file).upper(),
    }


def llama_card(server: Server, entry: Entry) -> dict[str, Any]:
    """A model in the second list of llama-server's reply, which is like Ollama's."""
    name = entry.row.name
    more = {"name": name, "model": name, "type": "model", "tags": list(entry.row.tags)}
    can = ["completion", *(["multimodal"] if takes_images(entry) else [])]  # llama-server's words
    return {
        **card(server, entry), **more, "description": "", "capabilities": can, "parameters": "",
    }  # fmt: skip


def takes_images(entry: Entry) -> bool:
    """True for a loaded model with a vision tower."""
    return entry.service is not None and entry.service.host.running.tower is not None


ROUTES = (
    Route("GET", "/v1/models", list_models),
    Route("GET", "/models", list_models),
    *(Route("POST", f"{base}/models/load", load_model, LOAD, "admin") for base in ("/v1", "")),
    *(Route("POST", f"{base}/models/unload", unload_model, UNLOAD, "admin") for base in ("/v1", "")),
    Route("GET", "/v1/models/{model:path}", one_model),
)
