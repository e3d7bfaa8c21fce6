"""/embedding and /lora-adapters: checked, and refused until such models can be loaded."""

from __future__ import annotations

from camelid.server.faces.embeddings import no_pooling
from camelid.server.faces.native_prompts import split_prompts
from camelid.server.fields.native import EMBEDDING
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server


async def embedding(server: Server, call: Call) -> Reply:
    """Raises ApiError 400 for a malformed request, else 501."""
    own = EMBEDDING.read(call.json(), call).own
    entry = await server.entry(own.get("model"))
    content = own.get("content", own.get("input"))
    if content is None:
        raise ApiError(400, "the field 'content' is missing", param="content")
    split_prompts(content)
    raise no_pooling(entry.row.name, "embeddings")


async def list_adapters(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """No adapter is loaded."""
    return JsonReply([])


async def set_adapters(server: Server, call: Call) -> Reply:  # noqa: ARG001
    """Raises ApiError 501."""
    raise ApiError(501, "no adapter can be loaded yet; merge the adapter into the model's file")


ROUTES = (
    Route("POST", "/embedding", embedding, EMBEDDING),
    Route("POST", "/embeddings", embedding, EMBEDDING),
    Route("GET", "/lora-adapters", list_adapters),
    Route("POST", "/lora-adapters", set_adapters, scope="admin"),
)
