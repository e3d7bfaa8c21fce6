"""POST /v1/rerank and its other names: documents (Jina, Cohere) or texts (text-embeddings-inference)."""

from __future__ import annotations

from typing import Any

from camelid.server.faces.common import Body
from camelid.server.faces.embeddings import encoder, usage
from camelid.server.fields.embeddings import RERANK
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError
from camelid.server.http.reply import JsonReply, Reply
from camelid.server.http.route import Route
from camelid.server.server import Server
from camelid.server.service.encoding import scores


async def rerank(server: Server, call: Call) -> Reply:
    """The documents by relevance, the most relevant first."""
    own = RERANK.read(call.json(), call).own
    given = [name for name in ("documents", "texts") if name in own]
    if len(given) != 1:
        raise ApiError(
            400, f"{' and '.join(given) or 'neither documents nor texts'} are given, expected one of them",
            param="documents",
        )  # fmt: skip
    if own.get("truncation_direction", "right").lower() == "left":
        raise ApiError(400, "a text is cut at its end, not on the left", param="truncation_direction")
    service = await encoder(server, own.get("model"), "rankings")
    texts = [text_of(item) for item in own[given[0]]]
    how = {"normalize": not own.get("raw_scores", False), "truncate": own.get("truncate", False)}
    done = await scores(service, call, text_of(own["query"]), texts, **how)
    order = sorted(range(len(texts)), key=lambda i: -done.rows[i])[: own.get("top_n")]
    if given == ["texts"]:
        shows, name = own.get("return_text", False), "score"
        return JsonReply([result(i, name, done.rows[i], {"text": texts[i]} if shows else {}) for i in order])
    shows, name = own.get("return_documents", False), "relevance_score"
    results = [
        result(i, name, done.rows[i], {"document": {"text": texts[i]}} if shows else {}) for i in order
    ]
    return JsonReply({
        "object": "list", "model": service.shown_name, "results": results, "usage": usage(done.n_tokens),
    })  # fmt: skip


def result(i: int, name: str, score: float, text: Body) -> Body:
    """One document's place in the request, its score by the API's name, and its text if asked."""
    return {"index": i, name: score, **text}


def text_of(item: Any) -> str:
    """The text of a document, which may be in an object."""
    return item if isinstance(item, str) else item["text"]


PATHS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")
ROUTES = tuple(Route("POST", path, rerank, RERANK) for path in PATHS)
