"""A worker process for grammars, as its parent sees it: jobs in order, a time limit, replacement."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeAlias

from camelid.errors import RequestError
from camelid.requests.idle_child import TimeLimit, reap, start_child
from camelid.text.grammar.worker_errors import BUSY, TOO_COSTLY, too_costly
from camelid.text.idle_process import ASK, ERROR, receive, send, unpacked_error

LIMIT_S = 5.0  # of processor time for one job
PATIENCE = 12  # clock time in multiples of that: a busy machine leaves an idle process little
WORKER = "camelid.text.grammar.worker"
Answers: TypeAlias = Mapping[bytes, Callable[..., list[bytes]]]  # question of the worker -> its answer


class Job:
    """One question to a worker, and its result."""

    def __init__(self, process: GrammarProcess, question: tuple[bytes, ...], answers: Answers) -> None:
        self.question, self.answers = question, answers
        self.is_stopped = False
        self.future: Future[list[bytes]] = Future()
        self._process = process
        self._n_waiting = 0

    @property
    def is_over(self) -> bool:
        """True if the job is done or stopped."""
        return self.is_stopped or self.future.done()

    async def wait(self) -> list[bytes]:
        """The result. The job ends when the last waiting task is cancelled. For tasks of one event loop."""
        self._n_waiting += 1
        try:
            return await asyncio.shield(asyncio.wrap_future(self.future))
        finally:
            self._n_waiting -= 1
            if not self._n_waiting:
                self.stop()

    def stop(self) -> None:
        """Ends a job that is not done: it is never started, or its process is killed."""
        if not self.future.done():
            self.is_stopped = True
            self._process.stop(self)


class GrammarProcess:
    """A long-lived child process at idle priority, which does one job at a time.

    It starts with the first job. A thread talks to it, so any event loop may await a job. A child that
    exceeds a limit, or whose job is stopped, is killed; the next job starts another. A job whose child died
    of something else is tried once more.
    """

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="camelid grammar")
        self._child: subprocess.Popen[bytes] | None = None
        self._job: Job | None = None
        self._is_closed = False
        self._lock = Lock()  # a job's child is not killed when the next job has it

    def start(self, *question: bytes, answers: Answers) -> Job:
        """Queues a job; `answers` has what the worker may ask meanwhile."""
        job = Job(self, question, answers)
        self._thread.submit(self._do, job)
        return job

    def stop(self, job: Job) -> None:
        """Kills the child if it does this job."""
        with self._lock:
            if self._job is job and self._child:
                self._child.kill()

    def close(self) -> None:
        """Ends the child and the thread; jobs that are not done are cancelled."""
        self._is_closed = True
        with self._lock:
            if self._child:
                self._child.kill()
        self._thread.shutdown()
        self._end()

    def _do(self, job: Job) -> None:
        try:
            job.future.set_result(self._result(job))
        except CancelledError:
            job.future.cancel()
        except BaseException as error:
            job.future.set_exception(error)

    def _result(self, job: Job) -> list[bytes]:
        for _ in range(2):
            self._check_wanted(job)
            try:
                return self._try(job)
            except (EOFError, OSError):
                self._end()
        raise too_costly("more than its worker process survives")

    def _check_wanted(self, job: Job) -> None:
        """Raises CancelledError for a stopped job, RequestError for one of a closed model."""
        if job.is_stopped:
            raise CancelledError
        if self._is_closed:
            raise RequestError("this model was closed; load the model again", field="llm")

    def _try(self, job: Job) -> list[bytes]:
        """Does a job once. Raises EOFError or OSError if the child is gone."""
        child = self._child = self._child or start_child(WORKER, str(self.limit_s))
        limit = TimeLimit(PATIENCE * self.limit_s, child)
        with self._lock:
            self._job = job
        try:
            self._check_wanted(job)  # again: a child takes a while to start
            return self._talk(child, job)
        except (EOFError, OSError):
            if not limit.is_exceeded:
                raise
            self._end()
            raise RequestError(
                f"the grammar did not get {self.limit_s:g} s of processor time within "
                f"{PATIENCE * self.limit_s:g} s, since the machine is busy; send the request again later",
                field="grammar",
                code=BUSY,
            ) from None
        finally:
            limit.end()
            with self._lock:
                self._job = None

    def _talk(self, child: subprocess.Popen[bytes], job: Job) -> list[bytes]:
        assert child.stdin and child.stdout, "the child has pipes"
        send(child.stdin, job.question)
        while (message := receive(child.stdout))[0] == ASK:
            send(child.stdin, job.answers[message[1]](*message[2:]))
        if message[0] != ERROR:
            return message[1:]
        error = unpacked_error(message[1])
        if error.facts.get("code") == TOO_COSTLY:
            self._end()  # its memory may be full, or a cache half written
        raise error

    def _end(self) -> None:
        """Reaps the child."""
        child, self._child = self._child, None
        if child:
            reap(child)
