"""Facts of a model as Ollama's clients show them: size, family, quantization, capabilities."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from datetime import UTC, datetime
from math import prod

from camelid.loading.model_file import ModelFile, find_hub_id, open_model
from camelid.requests.file_defaults import file_defaults
from camelid.server.faces.common import Body
from camelid.server.faces.ollama_names import tagged, time_text
from camelid.server.server import Server
from camelid.server.service.entry import Entry
from camelid.server.service.file_mark import mark_of
from camelid.server.service.service import Service
from camelid.text.toolcalls.families import detect

SCALES = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3))


async def file_of(server: Server, entry: Entry) -> ModelFile:
    """The header of a model. A local file's is read without loading the model."""
    if entry.service or find_hub_id(entry.row.file):
        return (await server.service(entry.row.name)).host.running.file
    return await asyncio.to_thread(lambda: asyncio.run(open_model(entry.row.file)))


def card(server: Server, entry: Entry) -> Body:
    """A model in a list. A model that is not loaded has no details, since they are in its header."""
    file = entry.service.host.running.file if entry.service else None
    mark = mark_of(entry.row.file)  # empty for cria and hub ids
    changed = max((changed for _, changed, _, _ in mark), default=int(server.started * 1e9))
    size = file.n_bytes if file else sum(n_bytes for _, _, n_bytes, _ in mark)
    # Clients tell versions apart by the digest; hashing gigabytes of weights for a list would take minutes.
    identity = f"{entry.row.name}\n{mark or changed}".encode()
    name = tagged(entry.row.name)
    return {
        "name": name,
        "model": name,
        "modified_at": time_text(datetime.fromtimestamp(changed / 1e9, UTC)),
        "size": size,
        "digest": hashlib.sha256(identity).hexdigest(),
        "details": details(file),
    }


def details(file: ModelFile | None) -> Body:
    """Ollama's details of a model; empty texts without a header."""
    family = file.spec.arch if file else ""
    return {
        "parent_model": "",
        "format": "" if not file else "safetensors" if file.directory else "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": short_count(sum(prod(w.shape) for w in file.model.weights.values()))
        if file
        else "",
        "quantization_level": main_type(file).upper() if file else "",
    }


def short_count(n: int) -> str:
    """A number of parameters, such as 3.5M."""
    return next((f"{n / scale:.1f}{letter}" for letter, scale in SCALES if n >= scale), str(n))


def main_type(file: ModelFile) -> str:
    """The type that holds most of the weights' bytes."""
    sizes = Counter[str]()
    for weight in file.model.weights.values():
        sizes[weight.stored_type] += weight.n_bytes
    return sizes.most_common(1)[0][0]


def held_bytes(service: Service) -> Body:
    """The memory of a loaded model, and the part of it on a GPU."""
    memory = service.host.running.backend.memory()
    size = memory.weight_bytes + memory.state_bytes + memory.arena_bytes
    return {
        "size": size,
        "size_vram": 0 if service.host.running.backend.capabilities().name == "cpu" else size,
    }


def parameters(entry: Entry, file: ModelFile) -> str:
    """The defaults of requests, by the file and by the server's settings, as lines of a Modelfile."""
    defaults = {**file_defaults(file.gguf), **entry.row.defaults}
    return "\n".join(f"{name} {value}" for name, value in defaults.items())


def template_of(entry: Entry, file: ModelFile) -> str:
    """The chat template; empty for a model without one."""
    own = file.gguf.metadata.get("tokenizer.chat_template", "")
    return str(own if entry.row.template is None else entry.row.template)


def capabilities(entry: Entry, file: ModelFile) -> list[str]:
    """The capabilities of a model: completion, tools, thinking, vision."""
    template = template_of(entry, file)
    has = {"tools": "tools" in template, "thinking": bool(template) and bool(detect(template).thinking)}
    has["vision"] = file.tower is not None
    first = "embedding" if file.spec.embeds else "completion"
    return [first, *(name for name, is_there in has.items() if is_there)]
