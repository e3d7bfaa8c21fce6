"""What one sequence holds of every state group."""

from __future__ import annotations

from dataclasses import dataclass, field

from camelid.plan.plan import StateSpec

PAGED = ("paged", "window")
STATIC = "static"  # pages too, filled once before the first step that reads them
TABLED = (*PAGED, STATIC)
RING, RECURRENT = "ring", "recurrent"
Update = tuple[int, int, int, int]  # group, table row, index, unit
Copy = tuple[int, int, int, int]  # group, source unit, destination unit, rows
GroupWords = tuple[int, int, int]  # table row or read slot, first kept row or write slot, rows held


@dataclass(slots=True, eq=False)
class CacheAllocation:
    """A table row, pages by group (0: given back) and slots by group.

    `n_steps` counts the steps built for it: each reads the recurrent slot that the one before wrote, and
    `slot_rows` says after how many rows a slot was written. `pending` are table changes that no step has
    carried yet. `key` is that of the last of its `n_hashed` pages that the prefix cache was told of.
    """

    table_row: int
    key: bytes
    pages: dict[str, list[int]]
    slots: dict[str, list[int]]
    first_page: dict[str, int]
    static_rows: int = 0
    n_steps: int = 0
    n_hashed: int = 0
    n_cached: int = 0  # rows that it found computed
    n_writable: int = -1  # rows whose pages nobody else holds; -1 before the first step
    pending: list[Update] = field(default_factory=list[Update])
    slot_rows: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def is_fresh(self) -> bool:
        """No step has told the device of its pages."""
        return bool(self.pending) or not self.n_steps

    def read_slot(self, group: str) -> int:
        slots = self.slots[group]
        return slots[self.n_steps % len(slots)]

    def write_slot(self, group: str) -> int:
        slots = self.slots[group]
        return slots[(self.n_steps + 1) % len(slots)]

    def words(self, state: StateSpec, held: int) -> GroupWords:
        """Its words for one group in a step that finds `held` rows."""
        if state.kind == RECURRENT:
            return self.read_slot(state.name), self.write_slot(state.name), held
        if state.kind == RING:
            slot = self.slots[state.name][0]
            return slot, slot, held
        first_kept = self.first_page[state.name] * state.unit_rows
        return self.table_row, first_kept, self.static_rows if state.kind == STATIC else held
