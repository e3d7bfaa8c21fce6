"""When requests must have begun, and when they must have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from time import perf_counter

from camelid.engine.sequence import Sequence


class Timeouts:
    """The moments of all requests, the next one first. `clock` gives seconds, as those of the sequences.

    By ids, so that a request that ended long before its time is not kept.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._moments: list[tuple[float, int, bool]] = []

    def add(self, s: Sequence) -> None:
        """Notes what the request allows."""
        for seconds, is_queue in ((s.request.queue_timeout_s, True), (s.request.timeout_s, False)):
            if seconds is not None:
                heappush(self._moments, (s.clock.submitted + seconds, s.id, is_queue))

    def due(self, sequences: Mapping[int, Sequence]) -> Iterator[Sequence]:
        """Of these, by id, whose time is over: in all, or in the queue if no step was built for it yet."""
        while self._moments and self._moments[0][0] <= self._clock():
            _, number, is_queue = heappop(self._moments)
            s = sequences.get(number)
            if s and not s.is_finished and not (is_queue and s.n_steps):
                yield s
