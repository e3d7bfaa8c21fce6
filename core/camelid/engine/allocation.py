"""The units of one sequence in every state group."""

from __future__ import annotations

from dataclasses import dataclass, field

from camelid.plan.plan import StateSpec

PAGED = ("paged", "window")
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
    `slot_rows` records after how many rows a slot was written. `pending` are page-table updates that no step
    has carried yet. `key` is the prefix-cache key of the last of its first `n_hashed` pages.
    """

    table_row: int
    key: bytes
    pages: dict[str, list[int]]
    slots: dict[str, list[int]]
    first_page: dict[str, int]
    static_rows: int = 0
    n_steps: int = 0
    n_hashed: int = 0
    n_cached: int = 0  # rows of its prefix-cache hit
    n_writable: int = -1  # rows whose pages exist and are not shared; -1 before the first step
    pending: list[Update] = field(default_factory=list[Update])
    slot_rows: dict[int, int] = field(default_factory=dict[int, int])

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

    def words(self, state: StateSpec, n_held: int) -> GroupWords:
        """The step words for one group, in a step after `n_held` rows."""
        if state.kind == RECURRENT:
            return self.read_slot(state.name), self.write_slot(state.name), n_held
        if state.kind == RING:
            slot = self.slots[state.name][0]
            return slot, slot, n_held
        first_kept = self.first_page[state.name] * state.unit_rows
        return self.table_row, first_kept, self.static_rows if state.kind == STATIC else n_held
