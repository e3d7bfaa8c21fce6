"""GET and POST /props: facts of the server and its model."""

from __future__ import annotations

from pathlib import PurePath

from camelid.server.faces.common import Body
from camelid.server.faces.native_settings import generation_settings
from camelid.server.faces.ollama_details import main_type
from camelid.server.fields.sampling import RANDOM_SEED
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.entry import Entry
from camelid.server.service.job import Job
from camelid.server.service.service import Service
from camelid.text.templates.named import named_templates
from camelid.version import __version__

# Capability in llama.cpp's name -> the words of a template that show it.
TEMPLATE_CAPS = {
    "supports_tools": ("tools",),
    "supports_tool_calls": ("tool_calls",),
    "supports_parallel_tool_calls": ("tool_calls",),
    "supports_system_role": ("system", "messages"),
    "supports_preserve_reasoning": ("reasoning_content",),
}


async def props(server: Server, call: Call) -> Reply:
    """Facts of the model named by the query, by default of the first. A model that sleeps is not loaded."""
    entry = await server.shown(call.query.get("model"))
    own = await loaded_props(entry.service) if entry.service else sleeping_props(entry)
    return JsonReply({**own, **server_props(server)})


def server_props(server: Server) -> Body:
    """The properties of this server."""
    return {
        "ui": server.settings.page,
        "cors_proxy_enabled": False,
        "endpoint_slots": server.slots.shows_slots,
        "endpoint_props": server.slots.allows_props,
        "endpoint_metrics": server.operations.exposition is not None,
    }


def sleeping_props(entry: Entry) -> Body:
    """The part of llama.cpp's object that is known without the model's file."""
    options = entry.row.options
    return {
        "default_generation_settings": {"params": {}, "n_ctx": entry.context or options.context or 0},
        "total_slots": options.parallel,
        "model_alias": entry.row.name,
        "model_path": PurePath(entry.row.file).name,
        "build_info": f"b{__version__}",
        "is_sleeping": True,
    }


async def loaded_props(service: Service) -> Body:
    """llama.cpp's object. The model's path is its file's name alone: folders are nobody's business."""
    file = service.host.running.file
    template = service.template or file.template or ""
    request = await service.request(Job(prompt=(0,)))
    is_seeded = service.default_options().get("seed") is not None
    settings = generation_settings(request, service.default_options(), {})
    if not is_seeded:
        settings["seed"] = RANDOM_SEED
    return {
        "default_generation_settings": {"params": settings, "n_ctx": service.context},
        "total_slots": len(service.slots),
        "model_alias": service.name,
        "model_path": PurePath(file.name).name,
        "modalities": {"vision": file.tower is not None, "audio": False, "video": False},
        "model_ftype": main_type(file).upper(),
        "chat_template": template,
        "chat_templates": sorted(named_templates(file.gguf.metadata)),
        "chat_template_caps": {
            name: bool(template) and all(word in template for word in words)
            for name, words in TEMPLATE_CAPS.items()
        },
        "bos_token": token_text(service, "bos"),
        "eos_token": token_text(service, "eos"),
        "build_info": service.fingerprint,
        "is_sleeping": False,
    }


def token_text(service: Service, name: str) -> str:
    """The text of the token that opens or closes a text; "" without one."""
    gguf = service.host.running.file.gguf
    token_id = gguf.get(f"tokenizer.ggml.{name}_token_id", int, default=None)
    tokens = gguf.get("tokenizer.ggml.tokens", list[str], default=list[str]())
    return tokens[token_id] if token_id is not None and 0 <= token_id < len(tokens) else ""


async def set_props(server: Server, call: Call) -> Reply:
    """Nothing can be changed yet, as in llama.cpp; Raises ApiError 501 without --props."""
    call.json()
    if not server.slots.allows_props:
        raise ApiError(501, "properties cannot be changed: start the server with --props")
    return JsonReply({"success": True})


ROUTES = (
    Route("GET", "/props", props, query={"model": {"type": "string"}}),
    Route("POST", "/props", set_props, scope="admin"),
)
