"""Places of a model: a request takes its places before its text is read, and waits in a bounded queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from camelid.server.http.errors import retry_later

SMOOTHING = 0.1  # weight of the latest request in the mean service time
FIRST_GUESS_S = 5.0


@dataclass(slots=True)
class Admission:
    """Counts requests under way, at most `parallel` running and `max_queue` waiting.

    `is_draining` refuses new requests while the running ones end.
    """

    parallel: int
    max_queue: int
    now: Callable[[], float] = time.monotonic
    n_places: int = 0
    n_refused: int = 0
    is_draining: bool = False
    on_idle: Callable[[], object] | None = None  # called when the last place is free
    _service_s: float = field(default=FIRST_GUESS_S)

    @property
    def capacity(self) -> int:
        return self.parallel + self.max_queue

    def enter(self, n: int) -> Place:
        """Takes `n` places. Raises ApiError 503 if the queue is full or the server drains."""
        if self.is_draining:
            raise retry_later(503, "the server is shutting down", self.wait_s, "shutting_down")
        if self.n_places + n > self.capacity:
            self.n_refused += 1
            raise retry_later(
                503, f"the server is full: {self.n_places} requests run or wait, at most {self.capacity}; "
                "try again later", self.wait_s, "server_is_overloaded",
            )  # fmt: skip
        self.n_places += n
        return Place(self, n, self.now())

    def leave(self, n: int, seconds: float) -> None:
        """Frees places, and averages in the time of their request."""
        self.n_places -= n
        self._service_s += (seconds - self._service_s) * SMOOTHING
        if not self.n_places and self.on_idle:
            self.on_idle()

    @property
    def wait_s(self) -> float:
        """Seconds until a place is free, by the mean time of a request."""
        return self._service_s * max(self.n_places - self.parallel + 1, 1) / self.parallel


class Places(Protocol):
    """The owner of places."""

    @property
    def now(self) -> Callable[[], float]: ...
    def leave(self, n: int, seconds: float) -> None: ...


@dataclass(slots=True)
class Place:
    """Places taken by one request, to be left once."""

    _admission: Places
    n: int
    entered: float

    def leave(self) -> None:
        """Frees the places; a second call does nothing."""
        n, self.n = self.n, 0
        if n:
            self._admission.leave(n, self._admission.now() - self.entered)
