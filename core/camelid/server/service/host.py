"""An engine on a thread of its own, and the hand-over of its events to the server's event loop.

The events of all requests cross once a step: one wake-up, where a wake-up per token cost a fifth of the
throughput (tests/perf/server.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from camelid.api.thread import EngineThread
from camelid.engine.engine import LATE_S, StepEngine
from camelid.engine.programs import CANDIDATES, GUIDED
from camelid.engine.request import Request
from camelid.errors import DeviceLostError, RequestError
from camelid.formats.progress import Progress
from camelid.loading.choose import OpenStages
from camelid.loading.model_file import ModelName
from camelid.loading.options import LoadOptions
from camelid.loading.start import RunningModel, start
from camelid.requests.output_text import Completion, Event, TextStream
from camelid.server.http.errors import ApiError, retry_later
from camelid.server.service.prompt_progress import ProgressReport, PromptProgress

T = TypeVar("T")
LOG = logging.getLogger("camelid.server")
MAX_EVENTS = 512  # unread events of an answer; beyond them its request is held
IDLE_S = 0.05  # between steps while every request is held


class Batch(NamedTuple):
    """Events of one choice since the last batch; its completion or error is in its last batch.

    `progress` holds the reports on the prompt that precede the events; `scores` are of the prompt's rows, for
    a request that scores its prompt. A tuple, since one is made per token: a third of a dataclass' time.
    """

    choice: int
    events: Sequence[Event]
    completion: Completion | None = None
    error: Exception | None = None
    progress: Sequence[PromptProgress] = ()
    scores: Sequence[Any] = ()

    @property
    def is_last(self) -> bool:
        return self.completion is not None or self.error is not None


class Answer:
    """The choices of one request, read on the server's event loop: `async for batch in answer`.

    Leaving the loop is no cancellation: call `close`, which frees the request's units within a step.
    """

    def __init__(self, host: EngineHost, n: int) -> None:
        self._host = host
        self._n_open = n
        self._batches: deque[Batch] = deque()
        self._n_unread = 0
        self._is_held = False
        self._is_closed = False
        self._ready: asyncio.Future[None] | None = None

    @property
    def n_unread(self) -> int:
        """Events that were handed over and not read."""
        return self._n_unread

    def __aiter__(self) -> Answer:
        return self

    async def begin(self) -> None:
        """Waits until a batch is unread, or none will come."""
        while not self._batches and self._n_open and not self._is_closed:
            self._ready = asyncio.get_running_loop().create_future()
            await self._ready

    async def __anext__(self) -> Batch:
        await self.begin()
        if not self._batches:
            raise StopAsyncIteration
        batch = self._batches.popleft()
        self._n_unread -= len(batch.events)
        if self._is_held and self._n_unread < MAX_EVENTS // 2:
            self._hold(held=False)
        return batch

    def put(self, batch: Batch) -> None:
        """Adds a batch; holds the request while too many events are unread."""
        self._n_open -= batch.is_last
        self._batches.append(batch)
        self._n_unread += len(batch.events)
        if not self._is_held and self._n_unread > MAX_EVENTS:
            self._hold(held=True)
        if self._ready and not self._ready.done():
            self._ready.set_result(None)

    def _hold(self, *, held: bool) -> None:
        self._is_held = held
        self._host.post(lambda driver: driver.hold(self, held=held))

    def cut(self) -> None:
        """Ends the choices that still run; their completions hold the answer so far."""
        self._host.post(lambda driver: driver.cut(self))

    def close(self) -> None:
        """Cancels the choices that still run."""
        if self._n_open and not self._is_closed:
            self._is_closed = True
            self._host.post(lambda driver: driver.cancel(self))


@dataclass(slots=True, eq=False)
class Run:
    """One request and the streams of its choices, on the engine's thread."""

    answer: Answer
    request: Request
    n: int
    streams: list[TextStream] = field(default_factory=list[TextStream])
    open: set[int] = field(default_factory=set[int])  # choices without a last batch
    progress: ProgressReport | None = None


class Driver:
    """Steps the engine while requests run, and collects their events; lives on the engine's thread."""

    def __init__(self, host: EngineHost, running: RunningModel) -> None:
        self.running = running
        self.engine: StepEngine = running.engine
        self.inbox: deque[Work] = deque()
        self._host = host
        self._runs: dict[Answer, Run] = {}
        self._wake = asyncio.Event()
        self._has_ended = False

    def wake(self) -> None:
        """Ends the driver's wait; after the driver's end, refuses the requests that came meanwhile."""
        self._wake.set()
        if self._has_ended:
            self._take_in()
            self._host.flush()

    async def run(self) -> None:
        """Steps until its task is cancelled. An exception is the end of the engine and of every request."""
        try:
            await self._run()
        except Exception as error:
            self._host.fail(error)
            raise
        finally:
            self._has_ended = True
            for run in list(self._runs.values()):
                self._fail(run, self._host.failure or unloaded())
            self._take_in()
            self._host.flush()

    def _take_in(self) -> None:
        """Runs the work that the server's loop posted."""
        while self.inbox:
            self.inbox.popleft()(self)

    async def _run(self) -> None:
        while True:
            self._take_in()
            if self._runs or self.engine.is_busy:
                if not await self._step():
                    await self._wait(LATE_S if self.engine.waits_for_mask else IDLE_S)
                await self._collect()
                self._host.flush()
            else:
                self._host.flush()  # of a request that was refused while nothing ran
                await self._wait(None)
            await asyncio.sleep(0)  # other work of this thread's loop: session files, compilation

    async def _wait(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _step(self) -> bool:
        """One step of the engine; an exception outside a request ends every request with it."""
        try:
            return await self.engine.step()
        except Exception as error:
            if isinstance(error, DeviceLostError):
                self._host.fail(error)
            for run in list(self._runs.values()):
                self._fail(run, error)
            self.engine.cancel_all()
            return False

    def submit(self, answer: Answer, request: Request, n: int, *, reports: bool = False) -> None:
        """Submits a request; its further choices are forked after its first token."""
        run = self._runs[answer] = Run(answer, request, n, open=set(range(n)))
        if self._has_ended:
            self._fail(run, self._host.refusal)
            return
        run.progress = ProgressReport(request.n_prompt) if reports else None
        try:
            run.streams.append(self.engine.submit(request))
        except Exception as error:
            self._fail(run, error)

    def hold(self, answer: Answer, *, held: bool) -> None:
        """Excludes an answer's choices from further steps while `held`."""
        for stream in self._streams(answer):
            self.engine.hold(stream.id, held=held)

    def cut(self, answer: Answer) -> None:
        """Ends an answer's choices, whose last batches then hold their completions."""
        for stream in self._streams(answer):
            stream.close()

    def cancel(self, answer: Answer) -> None:
        """Cancels an answer's choices."""
        for stream in self._streams(answer):
            stream.close()
        self._runs.pop(answer, None)

    def _streams(self, answer: Answer) -> list[TextStream]:
        run = self._runs.get(answer)
        return run.streams if run else []

    async def _collect(self) -> None:
        for run in list(self._runs.values()):
            if len(run.streams) < run.n:
                await self._fork(run)
            if run.progress and run.streams:
                self._report(run, run.progress)
            for choice, stream in enumerate(run.streams):
                if choice in run.open:
                    self._collect_choice(run, choice, stream)

    async def _fork(self, run: Run) -> None:
        """Forks the further choices once the prompt is computed, so that they share its KV cache."""
        first = run.streams[0]
        if first.is_open and not first.has_events:
            return
        for choice in range(1, run.n):
            run.streams.append(await self._choice(run.request, first, choice))

    async def _choice(self, request: Request, first: TextStream, choice: int) -> TextStream:
        if first.is_open:
            with suppress(RequestError):  # the first choice ended while its last steps retired
                return await self.engine.fork(first.id, choice=choice, whole=False)
        return self.engine.submit(replace(request, choice=choice, probe=None))

    def _report(self, run: Run, progress: ProgressReport) -> None:
        first = run.streams[0]
        rows = self.engine.prompt_rows(first.id)
        if not (rows or first.is_open or first.error):
            rows = first.completion.usage.cached_tokens, run.request.n_prompt
        reports = progress.since(*rows) if rows else []
        if reports:
            self._host.deliver(run.answer, Batch(0, (), progress=reports))
        if progress.n_done == progress.n_prompt or not first.is_open:
            run.progress = None

    def _collect_choice(self, run: Run, choice: int, stream: TextStream) -> None:
        is_open, events = stream.is_open, stream.take()
        if not is_open:
            if isinstance(stream.error, DeviceLostError):  # no later step can succeed
                self._host.fail(stream.error)
            completion = None if stream.error else stream.completion
            self._end(run, Batch(choice, events, completion, stream.error, scores=stream.logits))
        elif events:
            self._host.deliver(run.answer, Batch(choice, events))

    def _end(self, run: Run, last: Batch) -> None:
        run.open.discard(last.choice)
        self._host.deliver(run.answer, last)
        if not run.open:
            self._runs.pop(run.answer, None)

    def _fail(self, run: Run, error: Exception) -> None:
        for choice in list(run.open):
            self._end(run, Batch(choice, (), error=error))


Work = Callable[[Driver], object]


class EngineHost:
    """One loaded model on its engine's thread. Create it by `open`, on the server's event loop."""

    def __init__(self, thread: EngineThread, running: RunningModel, model: ModelName = "") -> None:
        self.running, self.model = running, model
        self.failure: Exception | None = None  # why it can answer no more, such as a lost device
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[tuple[Answer, Batch]] = deque()
        self._is_waking = False
        self._driver = Driver(self, running)
        self._driving = thread.submit(self._driver.run())

    @classmethod
    async def open(
        cls,
        model: ModelName,
        options: LoadOptions,
        progress: Progress | None = None,
        stages: OpenStages | None = None,
    ) -> EngineHost:
        """Loads a model on a new thread. Raises as `camelid.load`."""
        thread = EngineThread(f"camelid engine {model}"[:60])
        try:
            running = await asyncio.wrap_future(thread.submit(_start(model, options, progress, stages)))
        except BaseException:
            await asyncio.to_thread(thread.close)  # which waits for the work that was cancelled
            raise
        return cls(thread, running, model)

    def fail(self, error: Exception) -> None:
        """Notes that the engine can answer no more; the first error stays."""
        self.failure = self.failure or error

    @property
    def refusal(self) -> ApiError:
        """The error of a request that comes after the engine's end."""
        if isinstance(self.failure, ApiError):
            return self.failure
        return retry_later(503, f"the engine failed and is loaded again: {self.failure}", 1, "engine_failed")

    def submit(self, request: Request, n: int = 1, *, reports: bool = False) -> Answer:
        """Queues a request with `n` choices, whose batches report on the prompt if `reports`.

        Raises ApiError 503 after the engine's end.
        """
        if self.failure:
            raise self.refusal
        answer = Answer(self, n)
        self.post(lambda driver: driver.submit(answer, request, n, reports=reports))
        return answer

    def post(self, work: Work) -> None:
        """Runs a function on the engine's thread before its next step."""
        self._driver.inbox.append(work)
        self._thread.call_soon(self._driver.wake)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the engine's thread, between steps."""
        return await asyncio.wrap_future(self._thread.submit(work))

    def check(self) -> None:
        """Raises the error that ended the engine's thread or lost its device; none while it can serve."""
        if self.failure:
            raise self.failure

    def deliver(self, answer: Answer, batch: Batch) -> None:
        """Adds a batch to the next hand-over; called on the engine's thread."""
        self._outgoing.append((answer, batch))

    def flush(self) -> None:
        """Wakes the server's loop once for all batches; called on the engine's thread."""
        if self._outgoing and not self._is_waking:
            self._is_waking = True
            with suppress(RuntimeError):  # the server's loop was closed
                self._loop.call_soon_threadsafe(self._receive)

    def _receive(self) -> None:
        self._is_waking = False  # before the queue is emptied: a later batch wakes again
        while self._outgoing:
            answer, batch = self._outgoing.popleft()
            answer.put(batch)

    async def close(self) -> None:
        """Cancels running requests, closes the backend and ends the thread."""
        self.failure = self.failure or unloaded()
        self._driving.cancel()
        try:
            await self.call(self.running.close())
        finally:
            await asyncio.to_thread(self._thread.close)
            self._receive()


def unloaded() -> ApiError:
    """The error of a request whose model was unloaded meanwhile."""
    return retry_later(503, "the model was unloaded before its answer; try again", 1, "unloaded")


async def _start(
    model: ModelName, options: LoadOptions, progress: Progress | None, stages: OpenStages | None
) -> RunningModel:
    """Loads a model with the programs of log-probabilities and grammars, which no later step waits for."""
    running = await start(model, options, progress, stages)
    running.engine.recovery.notices.append(LOG.warning)
    for program in () if running.file.spec.embeds else (CANDIDATES, GUIDED):
        await running.compile(program)
    return running
