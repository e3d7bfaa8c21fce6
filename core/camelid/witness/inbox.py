"""The bounded queue between the threads that answer requests and the thread that writes the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Condition
from time import monotonic
from typing import TypeAlias

from camelid.witness.chain import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most records that wait to be written, and about the most bytes of them."""

    records: int = 4096
    bytes: int = 64 << 20


@dataclass(slots=True)
class Entry:
    """A record to write. `facts` makes its values on the writing thread; a request has a `weight`."""

    facts: Callable[[], Facts]
    time: str
    uptime_s: float
    weight: int = 0

    def stamped(self) -> Facts:
        """The values with the entry's time, by the wall clock and in seconds since the log was opened."""
        return {**self.facts(), "time": self.time, "uptime_s": self.uptime_s}


@dataclass(slots=True)
class Gap:
    """The place of requests that were not recorded."""

    since: str
    until: str
    uptime_s: float
    reason: str
    n_lost: int = 0

    def stamped(self) -> Facts:
        """The gap record."""
        return {
            "kind": "gap",
            "n_lost": self.n_lost,
            "reason": self.reason,
            "since": self.since,
            "time": self.until,
            "uptime_s": self.uptime_s,
        }


@dataclass(slots=True)
class Reopen:
    """The place where the log goes on in a newly opened file."""


OVERFLOW = "the queue was full"
Item: TypeAlias = Entry | Gap | Reopen


@dataclass(slots=True)
class Inbox:
    """A queue that never blocks its senders. A request beyond the bounds is counted; a gap marks its place.

    The condition's lock may be taken twice by one thread, so `put_reopen` may be called in a signal handler.
    """

    bounds: Bounds
    n_lost: int = 0
    is_closed: bool = False
    _items: deque[Item] = field(default_factory=deque[Item])
    _n: int = 0  # requests here and in the batch that is being written
    _bytes: int = 0
    _started: float = field(default_factory=monotonic)
    _changed: Condition = field(default_factory=Condition)

    def put(self, facts: Callable[[], Facts], weight: int) -> bool:
        """Adds a request, or counts it as lost and returns False."""
        with self._changed:
            if self.is_closed:  # the end of the log has been written or will be; no gap can follow
                self.n_lost += 1
                return False
            if self._n >= self.bounds.records or self._bytes + weight > self.bounds.bytes:
                self._drop()
                return False
            self._n, self._bytes = self._n + 1, self._bytes + weight
            self._add(self.entry(facts, weight))
            return True

    def put_note(self, facts: Callable[[], Facts]) -> None:
        """Adds a record of the log itself, which no bound drops."""
        with self._changed:
            self._add(self.entry(facts))

    def put_reopen(self) -> None:
        """Marks the place where the file is to be opened anew."""
        with self._changed:
            self._add(Reopen())

    def entry(self, facts: Callable[[], Facts], weight: int = 0) -> Entry:
        """An entry with the present time."""
        return Entry(facts, now(), self.uptime_s(), weight)

    def gap(self, reason: str) -> Gap:
        """A gap at the present time."""
        time = now()
        return Gap(time, time, self.uptime_s(), reason=reason)

    def count_lost(self, n: int) -> None:
        """Counts requests that were accepted and then lost."""
        with self._changed:
            self.n_lost += n

    def uptime_s(self) -> float:
        """Seconds since the log was opened; never less than before, whatever the wall clock does."""
        return round(monotonic() - self._started, 6)

    def take(self) -> list[Item]:
        """Waits for items, and takes all up to the first `Reopen`. Empty at the end."""
        with self._changed:
            while not self._items and not self.is_closed:
                self._changed.wait()
            batch: list[Item] = []
            while self._items and not (batch and isinstance(self._items[0], Reopen)):
                batch.append(self._items.popleft())
                if isinstance(batch[0], Reopen):
                    break
            return batch

    def done(self, batch: list[Item], *, lost: bool = False) -> None:
        """Gives the place of a batch free. With `lost` its requests are counted as lost."""
        weights = [item.weight for item in batch if isinstance(item, Entry) and item.weight]
        with self._changed:
            self._n, self._bytes = self._n - len(weights), self._bytes - sum(weights)
            self.n_lost += len(weights) if lost else 0

    def pause(self, seconds: float) -> bool:
        """Waits before a retry. True if the log is being closed, which ends the wait."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_closed, seconds)

    def close(self) -> None:
        """Refuses further requests, and wakes the writing thread."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Counts everything that waits as lost."""
        with self._changed:
            self.n_lost += self._n
            self._n = self._bytes = 0
            self._items.clear()
            self.is_closed = True

    def _add(self, item: Item) -> None:
        self._items.append(item)
        self._changed.notify_all()

    def _drop(self) -> None:
        """Counts a lost request in the gap at the queue's end."""
        self.n_lost += 1
        gap = self._items[-1] if self._items else None
        if not isinstance(gap, Gap):
            gap = self.gap(OVERFLOW)
            self._add(gap)
        gap.n_lost, gap.until, gap.uptime_s = gap.n_lost + 1, now(), self.uptime_s()


def now() -> str:
    """The present time in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
