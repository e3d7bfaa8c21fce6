"""Embeddings and rankings of one loaded model: many texts at once, in the order given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from camelid.engine.request import Request
from camelid.loading.start import RunningModel
from camelid.model.adapter import Selection
from camelid.requests.build import RequestBuilder
from camelid.requests.embedding import Encoder, Text, check_dimensions, embedding, score, texts_of

AT_ONCE = 1024  # texts queued in the engine at a time


class Embedder:
    """Encodes texts through the engine, which fills its steps with as many whole texts as fit."""

    def __init__(self, running: RunningModel, builder: RequestBuilder) -> None:
        self._engine = running.engine
        self._spec = running.file.model.spec
        self._builder, self._running = builder, running
        self.encoder = Encoder(running.file, running.engine.context)

    async def embed(
        self,
        texts: str | Iterable[Text],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        prompt: str | None = None,
        truncate: bool = False,
        adapter: Selection | None = None,
    ) -> list[list[float]]:
        """As `LLM.aembed`."""
        given = texts_of(texts, "input")
        tokenizer = self._builder.tokenizer if any(isinstance(text, str) for text in given) else None
        requests = self.encoder.embeddings(given, tokenizer, prompt=prompt, truncate=truncate)
        check_dimensions(dimensions, self._spec.hidden_size)
        rows = await self.run(self.adapted(requests, adapter))
        return [embedding(row, normalize=normalize, dimensions=dimensions) for (row,) in rows]

    async def rerank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        normalize: bool = True,
        truncate: bool = False,
        adapter: Selection | None = None,
    ) -> list[float]:
        """As `LLM.arerank`."""
        given = texts_of(documents, "documents")
        requests = self.encoder.pairs(query, given, self._builder.tokenizer, truncate=truncate)
        rows = await self.run(self.adapted(requests, adapter))
        return [score(row, normalize=normalize) for (row,) in rows]

    def adapted(self, requests: Iterable[Request], adapter: Selection | None) -> list[Request]:
        """The requests with their adapters; None: those that apply by themselves. Raises RequestError."""
        select = self._running.adapters.select
        return [replace(each, adapter=select(adapter, each.prompt_ids)) for each in requests]

    async def run(self, requests: Sequence[Request]) -> list[Any]:
        """The rows of floats of each request. An error of one request ends all."""
        rows: list[Any] = []
        for start in range(0, len(requests), AT_ONCE):
            async with AsyncExitStack() as opened:
                streams = [self._engine.submit(request) for request in requests[start : start + AT_ONCE]]
                for stream in streams:
                    opened.push_async_callback(stream.aclose)
                for stream in streams:
                    async for _ in stream:
                        pass
                rows += [stream.logits for stream in streams]
        return rows
