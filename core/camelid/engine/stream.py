"""The consumer's end of a request's stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Generic, Protocol, TypeVar

from camelid.engine.results import Outbox
from camelid.errors import RequestError

E = TypeVar("E")  # event of the request's output reader
C = TypeVar("C")  # completion of the request's output reader


class StreamSource(Protocol):
    """The part of an engine that a stream uses."""

    def cancel(self, id: int) -> None: ...
    async def serve(self, outbox: Outbox) -> None: ...
    async def drain(self, id: int) -> None: ...


class Stream(AsyncIterator[E], Generic[E, C]):
    """An asynchronous iterator over a request's events. Closing or dropping it cancels the request."""

    def __init__(self, engine: StreamSource, id: int, outbox: Outbox) -> None:
        self.id = id
        self._engine = engine
        self._outbox = outbox

    @property
    def completion(self) -> C:
        """The result of a finished stream. Raises RequestError before its end."""
        if self._outbox.is_open:
            raise RequestError(f"request {self.id} has not finished; read its stream to the end", field="id")
        return self._outbox.completion

    @property
    def logits(self) -> list[Any]:
        """A request's logits, [V] float32 per prompt row, or their scores; empty without `all_logits`."""
        return self._outbox.logits

    @property
    def is_open(self) -> bool:
        """True until the request's end. Events may be left after it."""
        return self._outbox.is_open

    @property
    def has_events(self) -> bool:
        """True if an event is unread."""
        return bool(self._outbox.events)

    @property
    def error(self) -> Exception | None:
        """The error that ended the request, if any."""
        return self._outbox.error

    async def begin(self) -> None:
        """Steps until an event is unread, or the request has ended."""
        await self._engine.serve(self._outbox)

    def take(self) -> list[E]:
        """The events since the last call, without a step: for a caller that runs the steps itself."""
        events = list(self._outbox.events)
        self._outbox.events.clear()
        return events

    def __aiter__(self) -> Stream[E, C]:
        return self

    async def __anext__(self) -> E:
        """The next event. Raises the request's error after the events that preceded it."""
        await self._engine.serve(self._outbox)
        if self._outbox.events:
            return self._outbox.events.popleft()
        if self._outbox.error:
            raise self._outbox.error
        raise StopAsyncIteration

    def close(self) -> None:
        """Cancels the request. Its units are free once its last step has retired."""
        self._engine.cancel(self.id)

    async def aclose(self) -> None:
        """Cancels the request and waits until its units are free."""
        self.close()
        await self._engine.drain(self.id)

    def __del__(self) -> None:
        self.close()
