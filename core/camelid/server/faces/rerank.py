"""POST /v1/rerank and its other names: checked, then refused, since no reranker can be loaded yet."""

from __future__ import annotations

from camelid.server.faces.embeddings import no_pooling
from camelid.server.fields.embeddings import RERANK
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import Reply
from camelid.server.http.route import Route
from camelid.server.server import Server


async def rerank(server: Server, call: Call) -> Reply:
    """Raises ApiError: 400 or 404 for a wrong request, else 501."""
    own = RERANK.read(call.json(), call).own
    given = [name for name in ("documents", "texts") if name in own]
    if len(given) != 1:
        raise ApiError(
            400, f"{' and '.join(given) or 'neither documents nor texts'} are given, expected one of them",
            param="documents",
        )  # fmt: skip
    raise no_pooling((await server.entry(own.get("model"))).row.name, "rankings")


PATHS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")
ROUTES = tuple(Route("POST", path, rerank, RERANK) for path in PATHS)
