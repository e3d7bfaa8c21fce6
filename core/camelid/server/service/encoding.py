"""Embeddings and rankings of a served model: texts to requests, and through the engine to floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from camelid.api.embed import Embedder
from camelid.engine.request import Request
from camelid.requests.embedding import Encoder, Text, check_dimensions, embedding, score
from camelid.server.http.call import Call
from camelid.server.service.service import Service

Make: TypeAlias = Callable[[Encoder], list[Request]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows of floats, one list for each text, and the number of tokens of all texts."""

    rows: Sequence[Any]
    n_tokens: int


async def embeddings(
    service: Service, call: Call, texts: Sequence[Text], *, normalize: bool, dimensions: int | None = None,
    truncate: bool = False,
) -> Encoded:  # fmt: skip
    """The embedding of each text. Raises RequestError, ContextOverflowError, ApiError 503."""
    check_dimensions(dimensions, service.host.running.file.spec.hidden_size)

    def make(encoder: Encoder) -> list[Request]:
        return encoder.embeddings(texts, service.builder.tokenizer, prompt=None, truncate=truncate)

    done = await _encoded(service, call, texts, make)

    def shown() -> list[list[float]]:
        return [embedding(row, normalize=normalize, dimensions=dimensions) for (row,) in done.rows]

    return Encoded(await service.in_pool(texts, shown), done.n_tokens)


async def token_rows(service: Service, call: Call, texts: Sequence[Text]) -> Encoded:
    """The hidden state of each token of each text, of a model without a pooling."""

    def make(encoder: Encoder) -> list[Request]:
        return [encoder.token_rows(text, service.builder.tokenizer) for text in texts]

    return await _encoded(service, call, texts, make)


async def scores(
    service: Service, call: Call, query: str, documents: Sequence[str], *, normalize: bool, truncate: bool
) -> Encoded:
    """The relevance of each document. Raises RequestError, ContextOverflowError, ApiError 503."""

    def make(encoder: Encoder) -> list[Request]:
        return encoder.pairs(query, documents, service.builder.tokenizer, truncate=truncate)

    done = await _encoded(service, call, (query, documents), make)
    return Encoded([score(row, normalize=normalize) for (row,) in done.rows], done.n_tokens)


async def _encoded(service: Service, call: Call, texts: object, make: Make) -> Encoded:
    """Runs the requests of texts, which take one place together, and spends their tokens' budget."""
    running = service.host.running
    embedder = Embedder(running, service.builder)
    place = service.admission.enter(1)
    try:
        requests: list[Request] = await service.in_pool(texts, lambda: _checked(service, make, embedder))
        n_tokens = sum(request.n_prompt for request in requests)
        call.spend(n_tokens)
        service.host.check()
        return Encoded(await service.host.call(embedder.run(requests)), n_tokens)
    finally:
        place.leave()


def _checked(service: Service, make: Make, embedder: Embedder) -> list[Request]:
    requests = embedder.adapted(make(embedder.encoder), service.adapter or None)
    for request in requests:
        service.check(request)
    return requests
