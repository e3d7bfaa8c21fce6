"""POST /v1/embeddings: checked, then refused, since no model with embeddings can be loaded yet."""

from __future__ import annotations

from camelid.server.fields.embeddings import EMBEDDINGS
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import Reply
from camelid.server.http.route import Route
from camelid.server.server import Server


async def embeddings(server: Server, call: Call) -> Reply:
    """Raises ApiError: 400 or 404 for a wrong request, else 501."""
    own = EMBEDDINGS.read(call.json(), call).own
    raise no_pooling((await server.entry(own.get("model"))).row.name, "embeddings")


def no_pooling(model: str, what: str) -> ApiError:
    """The refusal of a request that needs a model of another kind."""
    return ApiError(
        501, f"the model {model!r:.200} gives no {what}: it generates text, and models for {what} cannot be "
        "loaded yet", code="not_supported", param="model",
    )  # fmt: skip


ROUTES = (Route("POST", "/v1/embeddings", embeddings, EMBEDDINGS),)
