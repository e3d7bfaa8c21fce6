"""The engine's thread: no other thread waits for a step, and work that ends early frees its resources.

Nothing here measures time. A fake step lasts until another thread has acted, so that a thread waiting for the
step would wait forever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from tests.support.gated_engine import PATIENCE_S, gated
from tests.support.gguf_files import write_tiny_llama

from camelid.api import thread as engine_thread
from camelid.api.llm import LLM
from camelid.api.thread import EngineThread
from camelid.errors import RequestError


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    with EngineThread() as made:
        yield made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=3, hidden=64, head_dim=16, ffn=96, context=1024)
    return place


class Source:
    """Counts up to `n`, then raises its error if it has one; records its closing."""

    def __init__(self, n: int | None, error: Exception | None = None) -> None:
        self.n, self.error, self.given = n, error, 0
        self.is_closed = threading.Event()

    def __aiter__(self) -> Source:
        return self

    async def __anext__(self) -> int:
        await asyncio.sleep(0)
        if self.given == self.n:
            raise self.error or StopAsyncIteration
        self.given += 1
        return self.given

    async def aclose(self) -> None:
        self.is_closed.set()


def words(n: int) -> dict[str, Any]:
    return {"max_tokens": n, "temperature": 0.0, "ignore_eos": True}


def test_work_runs_on_one_other_thread(thread: EngineThread) -> None:
    async def where() -> int:
        return threading.get_ident()

    places = {thread.run(where()), thread.submit(where()).result(PATIENCE_S), thread.run(where())}
    assert len(places) == 1
    assert places != {threading.get_ident()}


def test_errors_reach_the_caller(thread: EngineThread) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        thread.run(fail())
    feed = thread.stream(Source(2, ValueError("no third")))
    assert [next(feed), next(feed)] == [1, 2]
    with pytest.raises(ValueError, match="no third"):
        next(feed)
    assert list(feed) == [], "the feed did not end after its error"


def test_ctrl_c_cancels_the_work_that_is_awaited(
    thread: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupted(future: object) -> None:
        assert begun.wait(PATIENCE_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_thread, "_join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        thread.run(work())
    assert ended.wait(PATIENCE_S)


def test_events_arrive_in_order(thread: EngineThread) -> None:
    source = Source(500)
    assert list(thread.stream(source)) == list(range(1, 501))
    assert source.is_closed.wait(PATIENCE_S)


def test_closing_a_feed_ends_its_source(thread: EngineThread) -> None:
    source = Source(None)
    feed = thread.stream(source)
    assert next(feed) == 1
    feed.close()
    assert source.is_closed.is_set(), "close returned before the source ended"
    n = source.given
    assert list(feed) == list(range(2, n + 1)), "values before the closing cannot be read"
    assert source.given == n
    feed.close()


def test_a_source_closed_before_its_first_read(thread: EngineThread) -> None:
    for _ in range(50):
        source = Source(None)
        thread.stream(source).close()
        assert source.is_closed.is_set()


def test_waiting_is_bounded(thread: EngineThread) -> None:
    class Never(Source):
        async def __anext__(self) -> int:
            await asyncio.Event().wait()
            return 0

    feed = thread.stream(Never(None))
    with pytest.raises(Empty):
        feed.get(0.001)
    feed.close()
    with pytest.raises(StopIteration):
        feed.get(0.001)


def test_own_loop_awaits_events(thread: EngineThread) -> None:
    async def main() -> list[int]:
        return [event async for event in thread.astream(Source(200))]

    assert asyncio.run(main()) == list(range(1, 201))


def test_leaving_an_own_loop_ends_the_source(thread: EngineThread) -> None:
    source = Source(None)

    async def main() -> None:
        events = thread.astream(source)
        async for event in events:
            if event == 3:
                break
        await events.aclose()
        assert source.is_closed.is_set()

    asyncio.run(main())


def test_an_own_loop_receives_the_error(thread: EngineThread) -> None:
    async def main() -> None:
        async for _ in thread.astream(Source(1, ValueError("second"))):
            pass

    with pytest.raises(ValueError, match="second"):
        asyncio.run(main())


def test_closing_the_thread_ends_running_work() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    source = Source(None)
    with EngineThread() as thread:
        waiting, feed = thread.submit(forever()), thread.stream(source)
        assert next(feed) == 1
    with pytest.raises(CancelledError):
        waiting.result(PATIENCE_S)
    with pytest.raises(RequestError, match=r"was closed before the stream.s end"):
        list(feed)
    assert source.is_closed.is_set()
    with pytest.raises(RequestError, match="this engine thread was closed"):
        thread.run(forever())
    feed.close()
    thread.close()


def test_closing_the_thread_closes_a_generator() -> None:
    is_closed = threading.Event()

    async def forever() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            is_closed.set()

    with EngineThread() as thread:
        feed = thread.stream(forever())
        assert next(feed) == 1
    with pytest.raises(RequestError, match=r"was closed before the stream.s end"):
        list(feed)
    assert is_closed.is_set()


@pytest.mark.parametrize("n_ticks", [25])
def test_no_other_thread_waits_for_a_step(thread: EngineThread, path: Path, n_ticks: int) -> None:
    """An event loop beside the engine polls while a step blocks the engine; the step waits for its ticks."""
    llm, gate = thread.run(gated(path))
    feed = thread.stream(llm.astream([1, 2, 3], **words(4)))
    assert gate.entered.wait(PATIENCE_S)
    for _ in range(n_ticks):
        with pytest.raises(Empty):
            feed.get(0.002)
    gate.gate.set()
    assert len(list(feed)) == 4
    thread.run(llm.aclose())


def test_no_task_of_an_own_loop_waits_for_a_step(thread: EngineThread, path: Path) -> None:
    llm, gate = thread.run(gated(path))
    ticks = 0

    async def ticker() -> None:
        nonlocal ticks
        while ticks < 25:
            await asyncio.sleep(0.001)
            ticks += gate.entered.is_set()
        gate.gate.set()

    async def main() -> int:
        beside = asyncio.create_task(ticker())
        events = [event async for event in thread.astream(llm.astream([1, 2, 3], **words(4)))]
        await beside
        return len(events)

    assert asyncio.run(main()) == 4
    assert ticks == 25
    thread.run(llm.aclose())


def test_several_threads_share_one_engine(thread: EngineThread, path: Path) -> None:
    """Requests of four threads share steps."""
    llm, gate = thread.run(gated(path))
    got: list[int] = []
    feeds = [thread.stream(llm.astream([1, 2, i], **words(8))) for i in range(4)]
    readers = [threading.Thread(target=lambda feed=feed: got.append(len(list(feed)))) for feed in feeds]
    for reader in readers:
        reader.start()
    gate.gate.set()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert got == [8] * 4
    assert llm.counters.steps_submitted < 4 * 8
    assert thread.run(idle(llm))
    thread.run(llm.aclose())


def test_a_closed_answer_stops_its_work(thread: EngineThread, path: Path) -> None:
    llm, gate = thread.run(gated(path))
    gate.gate.set()
    long = {**words(50_000), "overflow": "shift"}
    feed = thread.stream(llm.astream([1, 2, 3], **long))
    next(feed)
    feed.close()
    assert thread.run(idle(llm))
    n = llm.counters.steps_submitted
    assert n < 50_000
    thread.run(asyncio.sleep(0.01))
    assert llm.counters.steps_submitted == n
    thread.run(llm.aclose())


async def idle(llm: LLM) -> bool:
    return llm.is_idle
