"""The units of one state group: free, referenced, or cached until they are evicted."""

from __future__ import annotations

from collections.abc import Callable

from camelid.errors import PlanError


class UnitPool:
    """Units 1 .. n with reference counts. A unit without references is free, or evictable if it is cached.

    `allocate` returns a free unit, else evicts the cached unit that has been unreferenced longest, after a
    call of `on_evict`. A unit may be reallocated while steps in flight still read it: a device runs steps in
    order, so a later step writes later.
    """

    def __init__(self, n_units: int, on_evict: Callable[[int], object] = lambda unit: None) -> None:
        self.n_units = n_units
        self.n_evicted = 0
        self.n_freed = 0  # times that a reference count fell to 0
        self._on_evict = on_evict
        self._free = list(range(n_units, 0, -1))
        self._ref_counts = [0] * (n_units + 1)
        self._is_cached = [False] * (n_units + 1)
        self._evictable: dict[int, None] = {}  # cached and unreferenced, the next to be evicted first

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_cached(self) -> int:
        """Cached units without references."""
        return len(self._evictable)

    @property
    def n_available(self) -> int:
        """Units that `allocate` can return."""
        return len(self._free) + len(self._evictable)

    def ref_count(self, unit: int) -> int:
        return self._ref_counts[unit]

    def allocate(self) -> int:
        """A unit with one reference.

        Raises PlanError without an available unit: callers check `n_available`.
        """
        if not self.n_available:
            raise PlanError(f"all {self.n_units} units are allocated", op="state")
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
        """Adds a reference to a referenced or cached unit."""
        if not self._ref_counts[unit] and unit not in self._evictable:
            raise PlanError(f"unit {unit} was shared, but it is free", op="state")
        self._evictable.pop(unit, None)
        self._ref_counts[unit] += 1

    def free(self, unit: int) -> None:
        """Removes a reference. At 0 the unit is free, or evictable if it is cached."""
        if self._ref_counts[unit] < 1:
            raise PlanError(f"unit {unit} was freed, but it has no references", op="state")
        self._ref_counts[unit] -= 1
        if self._ref_counts[unit]:
            return
        self.n_freed += 1
        if self._is_cached[unit]:
            self._evictable[unit] = None
        else:
            self._free.append(unit)

    def mark_cached(self, unit: int) -> None:
        """Marks a referenced unit as cached: at 0 references it is evictable, not free."""
        if self._ref_counts[unit] < 1:
            raise PlanError(f"unit {unit} was marked as cached, but it has no references", op="state")
        self._is_cached[unit] = True

    def unmark_cached(self, unit: int) -> None:
        """Marks a unit as not cached: an evictable unit becomes free."""
        self._is_cached[unit] = False
        if unit in self._evictable:
            del self._evictable[unit]
            self._free.append(unit)
