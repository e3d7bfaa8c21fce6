"""One answer on its way to the client: events within a window, and cancellation at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from camelid.api.llm import Completion, Event

WINDOW = 64  # events that the client has not read yet; the engine computes for no one beyond them


class Answering(Protocol):
    """The part of a request's stream, or of a session's turn, that is used here."""

    @property
    def completion(self) -> Completion: ...
    def __aiter__(self) -> AsyncIterator[Event]: ...
    def close(self) -> None: ...
    async def aclose(self) -> None: ...


class Answer:
    """Sends the events of one answer. A client that does not read stops the engine after WINDOW events."""

    def __init__(self, send: Callable[[Event], object]) -> None:
        self._send = send
        self._stream: Answering | None = None
        self._is_cancelled = False
        self._n_unread = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def run(self, starting: Awaitable[Answering]) -> Completion:
        """Sends all events and returns the completion. Raises the request's error."""
        self._stream = stream = await starting
        if self._is_cancelled:  # cancelled while its programs were compiled
            stream.close()
        try:
            async for event in stream:
                await self._has_room.wait()
                self._count(1)
                self._send(event)
        finally:
            await stream.aclose()
        return stream.completion

    def read(self, n: int) -> None:
        """Notes that the client has read n more events."""
        self._count(-n)

    def cancel(self) -> None:
        """Ends the answer within one step."""
        self._is_cancelled = True
        self._has_room.set()
        if self._stream:
            self._stream.close()

    def _count(self, n: int) -> None:
        self._n_unread += n
        if self._n_unread < WINDOW or self._is_cancelled:
            self._has_room.set()
        else:
            self._has_room.clear()
