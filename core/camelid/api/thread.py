"""An engine on a thread of its own, so that a caller stays responsive while a step runs.

One `EngineThread` makes all calls to an LLM: its event loop is the engine's. Other threads submit coroutines
to it and read events through queues; another thread's event loop awaits them. Pyodide has no threads; a page
runs the engine in a worker instead.
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
POLL_S = 0.05  # longest wait: Windows delivers Ctrl-C only between waits


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream of events, with the error that ended it, if any."""

    error: BaseException | None = None


Put = Callable[[Any], object]  # called with each event, then with a StreamEnd
Stop = Callable[[], object]


class StreamPump(Generic[T]):
    """Reads an asynchronous iterator until its end or `stop`, and closes it."""

    def __init__(self, events: AsyncIterator[T], put: Put) -> None:
        self._events = events
        self._put = put
        self._reading: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def run(self) -> None:
        """Reads to the end. Raises the iterator's exception."""
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
        """Stops reading. Call it from the iterator's own event loop."""
        self._is_stopped = True
        if self._reading:
            self._reading.cancel()

    async def _read(self) -> None:
        async for event in self._events:
            self._put(event)

    async def _close(self) -> None:
        if self._reading and not self._reading.done():  # the thread ends: a running iterator cannot be closed
            if not self._reading.cancelling():  # a second cancel would interrupt its cleanup
                self._reading.cancel()
            await asyncio.wait([self._reading])
        aclose = getattr(self._events, "aclose", None)
        if aclose:
            await aclose()


class EngineThread:
    """A thread with an event loop, to be closed or used as a context manager."""

    def __init__(self, name: str = "camelid engine") -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._thread = Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine on the thread and returns its future.

        Any thread may wait for the future, or await it through `asyncio.wrap_future`; cancelling the future
        cancels the coroutine. Raises RequestError after `close`.
        """
        if self._is_closed:
            work.close()
            raise RequestError("this engine thread was closed; create a new EngineThread", field="thread")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, call: Callable[[], object]) -> None:
        """Runs a function on the thread's event loop; does nothing after `close`."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the thread and returns its result. Ctrl-C cancels the coroutine."""
        future = self.submit(work)
        try:
            _join(future)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def stream(self, events: AsyncIterator[T]) -> EventQueue[T]:
        """Events of an asynchronous iterator, for a thread without an event loop."""
        queue = SimpleQueue[Any]()
        return EventQueue(queue, *self._pump(events, queue.put))

    async def astream(self, events: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """As `stream`, for the caller's own event loop. Leaving the `async for` ends the iterator."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def put(item: object) -> None:
            with suppress(RuntimeError):  # the caller's event loop was closed
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
            with suppress(RuntimeError):  # the thread was closed, which cancelled its tasks
                self._loop.call_soon_threadsafe(pump.stop)

        return stop, ended

    def close(self) -> None:
        """Cancels running tasks and ends the thread."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_cancel_tasks())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def __enter__(self) -> EngineThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EventQueue(Iterator[T], Generic[T]):
    """Iterator over events of an engine thread, for another thread."""

    def __init__(self, queue: SimpleQueue[Any], stop: Stop, ended: Future[None]) -> None:
        self._queue = queue
        self._stop = stop
        self._ended = ended
        self._is_over = False

    def __next__(self) -> T:
        """Waits for the next event. Raises the source's exception after all earlier events."""
        while True:
            with suppress(Empty):
                return self.get(POLL_S)

    def get(self, timeout_s: float) -> T:
        """The next event. Raises `queue.Empty` on timeout, StopIteration after the last event."""
        if self._is_over:
            raise StopIteration
        item = self._queue.get(timeout=timeout_s)
        if not isinstance(item, StreamEnd):
            return item
        self._is_over = True
        raise item.error or StopIteration

    def close(self) -> None:
        """Stops the source and waits for its end, so that its state is freed. Unread events stay readable."""
        self._stop()
        _join(self._ended)


def _join(future: Future[Any]) -> None:
    while not wait([future], timeout=POLL_S).done:
        pass


def _error(done: Future[None]) -> BaseException | None:
    if done.cancelled():
        return RequestError("the engine thread was closed before the stream's end", field="thread")
    return done.exception()


async def _cancel_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
