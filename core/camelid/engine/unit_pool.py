"""The units of one state group: free, held, or kept for the prefix cache until somebody needs the room."""

from __future__ import annotations

from collections.abc import Callable

from camelid.errors import PlanError


class UnitPool:
    """Units 1 .. n. Each is free, held by `references` holders, or held by nobody but cached.

    `take` gives a free unit, else the cached one that was let go first, after telling `on_evict`. A unit that
    steps in flight still read may be given away at once: a device runs steps in order, so what is submitted
    later writes later.
    """

    def __init__(self, n_units: int, on_evict: Callable[[int], object] = lambda unit: None) -> None:
        self.n_units = n_units
        self.n_evicted = 0
        self.n_freed = 0  # times that a unit's last holder dropped it
        self._on_evict = on_evict
        self._free = list(range(n_units, 0, -1))
        self._ref_counts = [0] * (n_units + 1)
        self._is_cached = [False] * (n_units + 1)
        self._evictable: dict[int, None] = {}  # cached and held by nobody, the first to go first

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_cached(self) -> int:
        """Units that nobody holds and that may still be found again."""
        return len(self._evictable)

    @property
    def n_available(self) -> int:
        """What `take` can give."""
        return len(self._free) + len(self._evictable)

    def ref_count(self, unit: int) -> int:
        return self._ref_counts[unit]

    def allocate(self) -> int:
        """A unit for one holder. PlanError if there is none: callers look at `n_available` first."""
        if not self.n_available:
            raise PlanError(f"all {self.n_units} units are held", op="state")
        unit = self._free.pop() if self._free else self._evict()
        self._ref_counts[unit] = 1
        return unit

    def _evict(self) -> int:
        unit = next(iter(self._evictable))
        del self._evictable[unit]
        self._is_cached[unit] = False
        self.n_evicted += 1
        self._on_evict(unit)
        return unit

    def share(self, unit: int) -> None:
        """One more holder of a unit that is held or cached."""
        if not self._ref_counts[unit] and unit not in self._evictable:
            raise PlanError(f"unit {unit} was shared although it is free", op="state")
        self._evictable.pop(unit, None)
        self._ref_counts[unit] += 1

    def free(self, unit: int) -> None:
        """One holder less; without the last one the unit is free, or idle if it is cached."""
        if self._ref_counts[unit] < 1:
            raise PlanError(f"unit {unit} was dropped although nobody holds it", op="state")
        self._ref_counts[unit] -= 1
        if self._ref_counts[unit]:
            return
        self.n_freed += 1
        if self._is_cached[unit]:
            self._evictable[unit] = None
        else:
            self._free.append(unit)

    def mark_cached(self, unit: int) -> None:
        """The cache knows a held unit: without holders it will be idle, not free."""
        if self._ref_counts[unit] < 1:
            raise PlanError(f"unit {unit} was cached although nobody holds it", op="state")
        self._is_cached[unit] = True

    def unmark_cached(self, unit: int) -> None:
        """The cache knows it no longer."""
        self._is_cached[unit] = False
        if unit in self._evictable:
            del self._evictable[unit]
            self._free.append(unit)
