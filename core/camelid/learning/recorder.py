"""The thread beside a store: past requests are written there, commits are made durable, the log kept short.

A request only puts its exchange into a queue, which takes a microsecond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from camelid.errors import LearningError
from camelid.learning.rows import PastRequest
from camelid.learning.store.store import Store

EVERY_S = 0.1  # from a commit to the disk
MOST_AT_ONCE = 16  # requests of one transaction, which feedback may wait for
MOST_WAITING = 1000  # beyond them requests are dropped, and counted


class Recorder:
    """Writes past requests to a store on a thread of its own. `report` receives the first error of a run."""

    def __init__(self, store: Store, report: Callable[[str], object] | None = None) -> None:
        self.n_dropped = 0
        self._store = store
        self._report = report
        self._queue: SimpleQueue[PastRequest] = SimpleQueue()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._is_closing = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="camelid learning", daemon=True)
        self._thread.start()

    def note(self, past: PastRequest) -> None:
        """Queues a request; drops it if too many wait."""
        if self._queue.qsize() >= MOST_WAITING:
            self.n_dropped += 1
            return
        self._queue.put(past)
        self._wake.set()

    def wake(self) -> None:
        """Makes what was committed durable soon."""
        self._wake.set()

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait()
            self._wake.clear()
            self._guarded()
            if not self._is_closing:
                threading.Event().wait(EVERY_S)

    def _guarded(self) -> None:
        """One round; an error is reported once, until a round succeeds."""
        try:
            self.flush()
            self._store.connection.sync()
            self._store.connection.checkpoint()
            self._has_failed = False
        except LearningError as error:
            if self._report and not self._has_failed:
                self._report(error.message)
            self._has_failed = True

    def flush(self) -> None:
        """Writes the requests that wait. Raises LearningError, and the requests of that write are lost."""
        with self._writing:
            while waiting := self._taken():
                self._store.add_requests(waiting)

    def _taken(self) -> list[PastRequest]:
        found: list[PastRequest] = []
        with suppress(Empty):
            while len(found) < MOST_AT_ONCE:
                found.append(self._queue.get_nowait())
        return found

    def close(self) -> None:
        """Writes what waits and ends the thread."""
        self._is_closing = True
        self._wake.set()
        self._thread.join()
        self._guarded()
