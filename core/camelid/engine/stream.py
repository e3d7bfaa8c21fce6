"""A running request as its consumer sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, Protocol, TypeVar

from camelid.engine.results import Outbox
from camelid.errors import RequestError

E = TypeVar("E")  # an event of the request's output reader
C = TypeVar("C")  # its completion


class StreamSource(Protocol):
    """What a stream needs of its engine."""

    def cancel(self, id: int) -> None: ...  # noqa: A002
    async def serve(self, outbox: Outbox) -> None: ...
    async def settle(self, id: int) -> None: ...  # noqa: A002


class Stream(AsyncIterator[E], Generic[E, C]):
    """A request's events as they come. Dropping or closing it cancels the request."""

    def __init__(self, engine: StreamSource, id: int, outbox: Outbox) -> None:  # noqa: A002
        self.id = id
        self._engine = engine
        self._outbox = outbox

    @property
    def completion(self) -> C:
        """The whole answer, once the stream has ended; RequestError before."""
        if self._outbox.is_open:
            raise RequestError(f"request {self.id} has not finished; read its stream to the end", field="id")
        return self._outbox.completion

    @property
    def logits(self) -> list[memoryview[float]]:
        """A request's logits, [V] float32 a prompt row, if it asked for them."""
        return self._outbox.logits

    def __aiter__(self) -> Stream[E, C]:
        return self

    async def __anext__(self) -> E:
        """The next event. Raises what made the request fail, after the events that came before it."""
        await self._engine.serve(self._outbox)
        if self._outbox.events:
            return self._outbox.events.popleft()
        if self._outbox.error:
            raise self._outbox.error
        raise StopAsyncIteration

    def close(self) -> None:
        """Cancels the request if it still runs; its units are free once its last step has retired."""
        self._engine.cancel(self.id)

    async def aclose(self) -> None:
        """Cancels the request, and waits until its units are free."""
        self.close()
        await self._engine.settle(self.id)

    def __del__(self) -> None:
        self.close()
