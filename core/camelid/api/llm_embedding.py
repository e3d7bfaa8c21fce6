"""Methods of `LLM` for embeddings and rankings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from camelid.api.runner import Runner
from camelid.loading.start import RunningModel
from camelid.requests.build import RequestBuilder

if TYPE_CHECKING:
    from camelid.api.embed import Embedder
    from camelid.requests.embedding import EmbedOptions, RerankOptions, Text


class EmbeddingMethods:
    """Embeddings of texts, and relevances of documents."""

    _running: RunningModel
    _builder: RequestBuilder
    _runner: Runner
    _check_open: Callable[[], None]

    async def aembed(self, texts: str | Iterable[Text], **options: Unpack[EmbedOptions]) -> list[list[float]]:
        """The embedding of each text, which is a string or token ids.

        Raises ContextOverflowError for a text longer than the context; RequestError for a model that makes no
        embeddings.
        """
        self._check_open()
        return await self._embedder.embed(texts, **options)

    async def arerank(
        self, query: str, documents: Iterable[str], **options: Unpack[RerankOptions]
    ) -> list[float]:
        """The relevance of each document to the query, from 0 to 1.

        Raises ContextOverflowError for a document too long for the context beside the query; RequestError for
        a model without a ranking head.
        """
        self._check_open()
        return await self._embedder.rerank(query, documents, **options)

    @cached_property
    def _embedder(self) -> Embedder:
        from camelid.api.embed import Embedder  # a model that generates needs none

        return Embedder(self._running, self._builder)

    def embed(self, texts: str | Iterable[Text], **options: Unpack[EmbedOptions]) -> list[list[float]]:
        """As `aembed`, without an event loop."""
        return self._runner.run(self.aembed(texts, **options))

    def rerank(self, query: str, documents: Iterable[str], **options: Unpack[RerankOptions]) -> list[float]:
        """As `arerank`, without an event loop."""
        return self._runner.run(self.arerank(query, documents, **options))
