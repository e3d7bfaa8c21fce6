"""Deadlines of requests: for their first step, and for their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from time import perf_counter

from camelid.engine.sequence import Sequence


class Timeouts:
    """The deadlines of all requests in a heap, in seconds of `clock`.

    An entry refers to its request by id, so that an ended request is not kept alive until its deadline.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._deadlines: list[tuple[float, int, bool]] = []  # time, sequence id, is for the first step

    def add(self, s: Sequence) -> None:
        """Adds the request's deadlines."""
        for seconds, is_queue in ((s.request.queue_timeout_s, True), (s.request.timeout_s, False)):
            if seconds is not None:
                heappush(self._deadlines, (s.clock.submitted + seconds, s.id, is_queue))

    def due(self, sequences: Mapping[int, Sequence]) -> Iterator[Sequence]:
        """Yields the sequences past a deadline: of their end, or of a first step that was not built yet."""
        while self._deadlines and self._deadlines[0][0] <= self._clock():
            _, number, is_queue = heappop(self._deadlines)
            s = sequences.get(number)
            if s and not s.is_finished and not (is_queue and s.n_steps):
                yield s
