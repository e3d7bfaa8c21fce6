"""Ollama's endpoints about models: version, tags, show, ps, pull; changes of models are refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from functools import partial

from camelid.server.faces.embeddings import encoder
from camelid.server.faces.ollama import failed_line
from camelid.server.faces.ollama_details import (
    capabilities,
    card,
    details,
    file_of,
    held_bytes,
    parameters,
    template_of,
)
from camelid.server.faces.ollama_names import entry_of, expiry, served_name
from camelid.server.fields.ollama import ANY, EMBED, EMBEDDINGS, PULL, SHOW
from camelid.server.fields.table import Values
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import LINES_TYPE, JsonReply, Reply, StreamReply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.encoding import embeddings

API_VERSION = "0.12.0"  # of Ollama, whose API this is: clients compare it with the version that they need
HIDDEN = (
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores",
)


async def version(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """The version of the API."""
    return JsonReply({"version": API_VERSION})


async def tags(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """All models, loaded or not; a folder's as it is now."""
    await server.models.rescan()
    return JsonReply({"models": [card(server, entry) for entry in server.models]})


async def running(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """The loaded models with their memory."""
    return JsonReply({
        "models": [
            {
                **card(server, entry),
                **await asyncio.to_thread(held_bytes, service),
                "expires_at": expiry(entry),
                "context_length": service.context,
            }
            for entry in list(server.models)
            if (service := entry.service)
        ]
    })  # fmt: skip


async def show(server: Server, call: Call) -> Reply:
    """One model: template, sampling defaults, metadata and capabilities."""
    values = SHOW.read(call.json(), call)
    entry = await entry_of(server, named(values))
    file = await file_of(server, entry)
    is_whole = values.own.get("verbose")
    metadata = file.gguf.metadata
    return JsonReply({
        "license": str(metadata.get("general.license", "")),
        "modelfile": f"FROM {entry.row.name}\n",
        "parameters": parameters(entry, file),
        "template": template_of(entry, file),
        "details": details(file),
        "model_info": {
            name: value if is_whole or name not in HIDDEN else None for name, value in metadata.items()
        },
        "capabilities": capabilities(entry, file),
        "modified_at": card(server, entry)["modified_at"],
    })  # fmt: skip


def named(values: Values) -> str | None:
    """The name in `model`, or in `name`, the older field."""
    return values.own.get("model") or values.own.get("name")


async def pull(server: Server, call: Call) -> Reply:
    """Success for a model that is here. Raises ApiError 501 for another: no request fetches anything."""
    values = PULL.read(call.json(), call)
    name = named(values)
    try:
        await entry_of(server, name)
    except ApiError as error:
        raise ApiError(
            501, f"{error.message}; no model is fetched on a request's behalf: start the server with it"
        ) from None
    if values.own.get("stream", True):
        return StreamReply(pull_lines(), failed_line, media_type=LINES_TYPE)
    return JsonReply({"status": "success"})


async def pull_lines() -> AsyncIterator[bytes]:
    for status in ("pulling manifest", "success"):
        yield json.dumps({"status": status}).encode() + b"\n"


async def refuse(what: str, server: Server, call: Call) -> Reply:  # noqa: ARG001
    """Refuses to change the server's models."""
    raise ApiError(501, f"models cannot be {what} by a request; the server's operator names them")


async def embed(server: Server, call: Call) -> Reply:
    """The embedding of each text, of length 1; long texts are cut unless `truncate` is false."""
    began, values = time.perf_counter_ns(), EMBED.read(call.json(), call)
    name = values.own.get("model")
    service = await encoder(server, served_name(await entry_of(server, name), name), "embeddings")
    loaded, given = time.perf_counter_ns(), values.own["input"]
    texts = [given] if isinstance(given, str) else given
    size, truncate = values.own.get("dimensions"), values.own.get("truncate", True)
    done = await embeddings(service, call, texts, normalize=True, dimensions=size, truncate=truncate)
    return JsonReply({
        "model": service.shown_name,
        "embeddings": done.rows,
        "total_duration": time.perf_counter_ns() - began,
        "load_duration": loaded - began,
        "prompt_eval_count": done.n_tokens,
    })  # fmt: skip


async def embed_one(server: Server, call: Call) -> Reply:
    """The embedding of one text as the model makes it, not scaled: Ollama's older endpoint."""
    values = EMBEDDINGS.read(call.json(), call)
    name = values.own.get("model")
    service = await encoder(server, served_name(await entry_of(server, name), name), "embeddings")
    done = await embeddings(service, call, [values.own["prompt"]], normalize=False, truncate=True)
    return JsonReply({"embedding": done.rows[0]})


REFUSED: tuple[tuple[str, str, str], ...] = (
    ("POST", "/api/push", "pushed"),
    ("POST", "/api/create", "created"),
    ("POST", "/api/copy", "copied"),
    ("DELETE", "/api/delete", "deleted"),
    ("POST", "/api/blobs/{digest}", "uploaded"),
)
ROUTES = (
    Route("GET", "/api/version", version),
    Route("GET", "/api/tags", tags),
    Route("GET", "/api/ps", running),
    Route("POST", "/api/show", show, SHOW),
    Route("POST", "/api/pull", pull, PULL),
    Route("POST", "/api/embed", embed, EMBED),
    Route("POST", "/api/embeddings", embed_one, EMBEDDINGS),
    *(Route(method, path, partial(refuse, what), ANY, "admin") for method, path, what in REFUSED),
)
