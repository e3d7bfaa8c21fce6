"""Units of state: the pool of one state group, and the units of one sequence in every group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from camelid.errors import PlanError
from camelid.plan.plan import StateSpec

WINDOW = "window"
PAGED = ("paged", WINDOW)
STATIC = "static"  # pages that are filled once, before the first step that reads them
TABLED = (*PAGED, STATIC)
RING, RECURRENT = "ring", "recurrent"
Update = tuple[int, int, int, int]  # group, table row, index, unit
Copy = tuple[int, int, int, int]  # group, source unit, destination unit, rows
GroupWords = tuple[int, int, int]  # table row or read slot, first kept row or write slot, rows held


@dataclass(slots=True, eq=False)
class CacheAllocation:
    """A table row, pages by group (0: freed) and slots by group.

    `n_steps` counts the steps built on it: each reads the recurrent slot that the previous one wrote;
    `slot_rows` records after how many rows a slot was written, `checkpoints` after which rows it is kept.
    `pending` are page-table updates that no step has carried yet. `lent` are cached units that its last
    copies read: no other sequence may receive them before the copies are submitted. `key` is the prefix-
    cache key of the last of its first `n_hashed` pages. `is_encoded` is set once a step was built that fills
    its static pages with the rows of an encoder.
    """

    table_row: int
    key: bytes
    pages: dict[str, list[int]]
    slots: dict[str, list[int]]
    first_page: dict[str, int]
    static_rows: int = 0
    is_encoded: bool = False
    n_steps: int = 0
    n_hashed: int = 0
    n_cached: int = 0  # rows of its prefix-cache hit
    n_writable: int = -1  # rows whose pages exist and are not shared; -1 before the first step
    pending: list[Update] = field(default_factory=list[Update])
    slot_rows: dict[int, int] = field(default_factory=dict[int, int])
    lent: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    checkpoints: frozenset[int] = frozenset()

    @property
    def is_fresh(self) -> bool:
        """True if page-table updates are pending, or if no step was built on the allocation."""
        return bool(self.pending) or not self.n_steps

    def read_slot(self, group: str) -> int:
        """The recurrent slot that the next step reads."""
        slots = self.slots[group]
        return slots[self.n_steps % len(slots)]

    def write_slot(self, group: str) -> int:
        """The recurrent slot that the next step writes."""
        slots = self.slots[group]
        return slots[(self.n_steps + 1) % len(slots)]

    def words(self, state: StateSpec, n_held: int, n_new: int = 0) -> GroupWords:
        """The step words for one group, in a step after `n_held` rows; its attention may see `n_new` more."""
        if state.kind == RECURRENT:
            return self.read_slot(state.name), self.write_slot(state.name), n_held
        if state.kind == RING:
            slot = self.slots[state.name][0]
            return slot, slot, n_held
        first_kept = self.first_page[state.name] * state.unit_rows
        return self.table_row, first_kept, self.static_rows if state.kind == STATIC else n_held + n_new


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

    def unit_state(self, unit: int) -> str:
        """`free`, `cached` (unreferenced, for a prefix), `held` by one sequence, or `shared` by several."""
        if n := self._ref_counts[unit]:
            return "held" if n == 1 else "shared"
        return "cached" if unit in self._evictable else "free"

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


@dataclass(frozen=True, slots=True)
class CacheUpdate:
    """Page-table updates and unit copies that a step applies before its rows are written."""

    updates: Sequence[Update] = ()
    copies: Sequence[Copy] = ()


NO_UPDATE = CacheUpdate()
