"""POST /v1/embeddings, as OpenAI's."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence

from camelid.requests.build import ranks
from camelid.server.faces.common import Body
from camelid.server.faces.ollama_details import file_of
from camelid.server.fields.embeddings import EMBEDDINGS
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.encoding import embeddings as embed
from camelid.server.service.service import Service


async def embeddings(server: Server, call: Call) -> Reply:
    """The embedding of each text, of length 1."""
    own = EMBEDDINGS.read(call.json(), call).own
    service = await encoder(server, own.get("model"), "embeddings")
    done = await embed(service, call, own["input"], normalize=True, dimensions=own.get("dimensions"))
    is_packed = own.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": i, "embedding": packed(row) if is_packed else row}
        for i, row in enumerate(done.rows)
    ]
    counts = usage(done.n_tokens)
    return JsonReply({"object": "list", "data": data, "model": service.shown_name, "usage": counts})


async def encoder(server: Server, name: str | None, what: str) -> Service:
    """The loaded service of a model for embeddings or rankings, or of an adapter of one. A model of another
    kind is not loaded for the refusal: ApiError 501.
    """
    entry = await server.entry(name)
    spec = (await file_of(server, entry)).spec
    if not spec.embeds or ranks(spec) != (what == "rankings"):
        does = "generates text" if not spec.embeds else "ranks texts" if ranks(spec) else "makes embeddings"
        raise ApiError(
            501, f"the model {entry.row.name!r:.200} gives no {what}: it {does}; serve a model for {what}",
            code="not_supported", param="model",
        )  # fmt: skip
    return await server.service(name)


def packed(row: Sequence[float]) -> str:
    """Floats as base64 of little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()


def usage(n_tokens: int) -> Body:
    """OpenAI's counts of tokens."""
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens}


ROUTES = (Route("POST", "/v1/embeddings", embeddings, EMBEDDINGS),)
