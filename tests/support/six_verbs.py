"""A facade with the classic six verbs of an inference engine, for comparing engines under one contract."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Unpack

from camelid.api.llm import LLM
from camelid.api.load import load
from camelid.errors import RequestError, UnsupportedModelError
from camelid.loading.model_file import ModelName
from camelid.requests.options import Options
from camelid.requests.output_text import Completion, Event


class Engine:
    """The classic six verbs, over one sequence at a time."""

    def __init__(self) -> None:
        self._llm: LLM | None = None
        self._events: Generator[Event, None, Completion] | None = None
        self._first: int | None = None  # drawn by the prefill

    @property
    def llm(self) -> LLM:
        """The loaded model. Raises RequestError before `load_model`."""
        if self._llm is None:
            raise RequestError("no model is loaded; call load_model first", field="model")
        return self._llm

    def load_model(self, model: ModelName, **options: Any) -> None:
        """Loads a model, in place of one loaded before."""
        self.close()
        self._llm = load(model, **options)

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Token ids of a text."""
        return self.llm.tokenize(text, special)

    def detokenize(self, token_ids: Iterable[int]) -> str:
        """The text of token ids."""
        return self.llm.detokenize(token_ids)

    def prefill(self, token_ids: Sequence[int], **options: Unpack[Options]) -> None:
        """Runs a prompt and ends the previous sequence; `decode` returns the following tokens."""
        self._end()
        self._events = self.llm.stream(token_ids, **options)
        self._first = self._next(self._events)

    def decode(self) -> int | None:
        """The sequence's next token id, or None after its end. Raises RequestError before `prefill`."""
        if self._events is None:
            raise RequestError("no sequence was begun; call prefill first", field="token_ids")
        first, self._first = self._first, None
        return self._next(self._events) if first is None else first

    @staticmethod
    def _next(events: Iterable[Event]) -> int | None:
        return next((event.token_id for event in events if event.token_id is not None), None)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Raises UnsupportedModelError: this version has no embedding models."""
        raise UnsupportedModelError(
            f"{len(texts)} texts cannot be embedded: this version has no embedding models", kind="embed"
        )

    def close(self) -> None:
        """Ends the sequence and closes the model."""
        self._end()
        if self._llm:
            self._llm.close()
        self._llm = None

    def _end(self) -> None:
        if self._events:
            self._events.close()
        self._events = None
