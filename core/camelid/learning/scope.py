"""The similarity from which a request counts as near its feedback."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

FEW = 5  # items whose own similarities say something
START = 0.45  # threshold until then
LEAST, MOST = 0.5, 0.9  # of 560 other skills, 20 items cost up to 70 at 0.25, up to 5 at 0.5,
NARROW = 0.55  # and at most 1 from here on
KEPT = 512  # similarities that are remembered


@dataclass(slots=True)
class Window:
    """The latest KEPT numbers, and their quantiles."""

    _latest: deque[float] = field(default_factory=deque[float])
    _sorted: list[float] = field(default_factory=list[float])

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, value: float) -> None:
        """Adds a number; the oldest beyond KEPT goes."""
        if len(self._latest) == KEPT:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(value)
        insort(self._sorted, value)

    def quantile(self, share: float) -> float:
        """The number that `share` of the numbers are below."""
        return self._sorted[min(int(share * len(self._sorted)), len(self._sorted) - 1)]


@dataclass(slots=True)
class Scope:
    """Adapts the threshold to a user: most items lie near another one, most requests near none.

    The threshold is the lower of two, from LEAST to MOST: 80 of 100 items are as near to an earlier one, and
    99 of 100 requests are farther from every item. A request for the very subject of the feedback raises the
    second only. Few items, which can cost little, have the threshold START.
    """

    items: Window = field(default_factory=Window)
    requests: Window = field(default_factory=Window)

    @property
    def threshold(self) -> float:
        """The least similarity of a request in scope."""
        if len(self.items) < FEW:
            return START
        found = self.items.quantile(0.2)
        if len(self.requests) >= KEPT // 8:
            found = min(found, self.requests.quantile(0.99))
        return min(max(found, LEAST), MOST)

    @property
    def narrow(self) -> float:
        """The least similarity of a request in a narrower scope."""
        return max(self.threshold, NARROW)
