"""An engine on a thread of its own, so that a face stays responsive while a step runs.

Not in a page: there is no thread in Pyodide, and the page's worker is one already.

All that touches an LLM goes through one `EngineThread`: its event loop is the engine's. Other threads hand it
coroutines and read what comes through queues; an event loop of another thread awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

from camelid.errors import RequestError

T = TypeVar("T")
POLL_S = 0.05  # Windows delivers Ctrl-C only between waits, so none is longer


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Nothing follows; the error if there was one."""

    error: BaseException | None = None


Put = Callable[[Any], object]  # takes events, then an StreamEnd
Stop = Callable[[], object]


class StreamPump(Generic[T]):
    """Reads an asynchronous iterator to its end, or until told to stop; closes it either way."""

    def __init__(self, events: AsyncIterator[T], put: Put) -> None:
        self._events = events
        self._put = put
        self._reading: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def run(self) -> None:
        """Raises what the iterator raised."""
        if not self._is_stopped:
            self._reading = asyncio.create_task(self._read())
        try:
            if self._reading:
                await asyncio.wait([self._reading])
        finally:
            await self._close()
        if self._reading and not self._reading.cancelled():
            self._reading.result()

    def stop(self) -> None:
        """For the iterator's own loop."""
        self._is_stopped = True
        if self._reading:
            self._reading.cancel()

    async def _read(self) -> None:
        async for event in self._events:
            self._put(event)

    async def _close(self) -> None:
        if self._reading and not self._reading.done():  # the thread ends; nobody may close what still runs
            if not self._reading.cancelling():  # twice would break off what it does at its end
                self._reading.cancel()
            await asyncio.wait([self._reading])
        aclose = getattr(self._events, "aclose", None)
        if aclose:
            await aclose()


class EngineThread:
    """A thread with an event loop. Close it, or use it as a context manager."""

    def __init__(self, name: str = "camelid engine") -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._thread = Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine there. Its future may be waited for on any thread, or awaited when wrapped by
        `asyncio.wrap_future`; cancelling it cancels the coroutine. RequestError once the thread is closed."""
        if self._is_closed:
            work.close()
            raise RequestError("this engine thread was closed; make another one", field="thread")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """A coroutine's result. Ctrl-C while it is awaited cancels it."""
        future = self.submit(work)
        try:
            _join(future)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def stream(self, events: AsyncIterator[T]) -> EventQueue[T]:
        """What an asynchronous iterator gives, for a thread without an event loop."""
        queue = SimpleQueue[Any]()
        return EventQueue(queue, *self._pump(events, queue.put))

    async def astream(self, events: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """The same for the caller's own event loop. Leaving the loop over it ends the iterator."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def put(item: object) -> None:
            with suppress(RuntimeError):  # the caller's loop is gone, and nobody listens
                loop.call_soon_threadsafe(queue.put_nowait, item)

        stop, ended = self._pump(events, put)
        try:
            while not isinstance(item := await queue.get(), StreamEnd):
                yield item
            if item.error:
                raise item.error
        finally:
            stop()
            await asyncio.wait([asyncio.wrap_future(ended)])

    def _pump(self, events: AsyncIterator[T], put: Put) -> tuple[Stop, Future[None]]:
        pump = StreamPump(events, put)
        ended = self.submit(pump.run())
        ended.add_done_callback(lambda done: put(StreamEnd(_error(done))))

        def stop() -> None:
            with suppress(RuntimeError):  # the thread was closed, and its tasks with it
                self._loop.call_soon_threadsafe(pump.stop)

        return stop, ended

    def close(self) -> None:
        """Cancels what still runs there, and ends the thread."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_cancel_rest())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def __enter__(self) -> EngineThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EventQueue(Iterator[T], Generic[T]):
    """Events of an engine thread on another thread, in order."""

    def __init__(self, queue: SimpleQueue[Any], stop: Stop, ended: Future[None]) -> None:
        self._queue = queue
        self._stop = stop
        self._ended = ended
        self._is_over = False

    def __next__(self) -> T:
        """Waits for the next event; raises what made the source fail, after the events before it."""
        while True:
            with suppress(Empty):
                return self.get(POLL_S)

    def get(self, timeout_s: float) -> T:
        """The next event. `queue.Empty` if none comes in that time, StopIteration after the last."""
        if self._is_over:
            raise StopIteration
        item = self._queue.get(timeout=timeout_s)
        if not isinstance(item, StreamEnd):
            return item
        self._is_over = True
        raise item.error or StopIteration

    def close(self) -> None:
        """Ends the source, and waits until it has: what it held is free. Unread events may still be read."""
        self._stop()
        _join(self._ended)


def _join(future: Future[Any]) -> None:
    while not wait([future], timeout=POLL_S).done:
        pass


def _error(done: Future[None]) -> BaseException | None:
    if done.cancelled():
        return RequestError("the engine thread was closed before the stream had ended", field="thread")
    return done.exception()


async def _cancel_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
