"""Who holds which unit of state: pools with a hard bound, reservations, page tables and ring slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from camelid.backends.base import Pool
from camelid.errors import PlanError
from camelid.plan.plan import StateSpec

PAGED = ("paged", "window")  # a window keeps all its pages until they are given back early
STATIC = "static"  # pages too, filled once before the first step that reads them
SLOTS = {"ring": 1, "recurrent": 2}  # units of a seat at any length; two, so that a step can be dropped
TRASH = 1  # unit 0, table row 0: written by unused rows, never read
Update = tuple[int, int, int, int]  # group, table row, index, unit
GroupWords = tuple[int, int, int]  # table row or read slot, first kept row or write slot, rows held


class UnitPool:
    """Units 1 .. n of one group, each free or held by `references` holders."""

    def __init__(self, n_units: int) -> None:
        self.n_units = n_units
        self.n_reserved = 0
        self._free = list(range(n_units, 0, -1))
        self._references = [0] * (n_units + 1)

    @property
    def n_free(self) -> int:
        return len(self._free)

    def reserve(self, n: int) -> bool:
        """Sets `n` free units aside for later `take`s; False if there are not so many."""
        if n > self.n_free - self.n_reserved:
            return False
        self.n_reserved += n
        return True

    def unreserve(self, n: int) -> None:
        self.n_reserved -= n

    def take(self) -> int:
        """One unit out of the reservation."""
        if not self.n_reserved:
            raise PlanError("a unit was taken that nobody had reserved", op="state")
        self.n_reserved -= 1
        unit = self._free.pop()
        self._references[unit] = 1
        return unit

    def share(self, unit: int) -> None:
        """One more holder of a unit."""
        self._references[unit] += 1

    def drop(self, unit: int) -> None:
        """One holder less; the last one frees the unit."""
        if self._references[unit] < 1:
            raise PlanError(f"unit {unit} was dropped although nobody holds it", op="state")
        self._references[unit] -= 1
        if not self._references[unit]:
            self._free.append(unit)


@dataclass(slots=True)
class Seat:
    """What one sequence holds: a table row, units by group, and how many more are reserved for it.

    `n_steps` counts the steps built for it: each reads the recurrent slot that the one before wrote.
    Static groups hold `static_rows` rows of it, from its first step to its end.
    """

    table_row: int
    units: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    reserved: dict[str, int] = field(default_factory=dict[str, int])
    n_steps: int = 0
    static_rows: int = 0


class StateManager:
    """All state groups of one engine.

    The bound is set here: `n_sequences` seats of at most `context` rows each, in `n_pages` pages a paged
    group (enough for every seat unless told otherwise). A seat reserves all that it may need, so a
    sequence that was let in never runs out.
    """

    def __init__(
        self, states: Sequence[StateSpec], *, context: int, n_sequences: int, n_pages: int | None = None
    ) -> None:
        self.states = tuple(states)
        self.context = context
        self.n_sequences = n_sequences
        self._rows = UnitPool(n_sequences)
        self._pools = {s.name: UnitPool(self._n_units(s, n_pages)) for s in self.states}

    def _n_units(self, state: StateSpec, n_pages: int | None) -> int:
        if state.kind in SLOTS:
            return self.n_sequences * SLOTS[state.kind]
        return n_pages or self.n_sequences * self._n_pages(state, self.context)

    @staticmethod
    def _n_pages(state: StateSpec, n_rows: int) -> int:
        return -(-n_rows // state.unit_rows)

    def sizes(self) -> Mapping[str, Pool]:
        """What the backend allocates, trash included."""
        return {s.name: self._size(s) for s in self.states}

    def _size(self, state: StateSpec) -> Pool:
        n_units = self._pools[state.name].n_units + TRASH
        if state.kind in SLOTS:
            return Pool(n_units)
        return Pool(n_units, self.n_sequences + TRASH, self._n_pages(state, self.context))

    @property
    def max_rows(self) -> int:
        """The most rows that one sequence can ever hold."""
        paged = [s.unit_rows * self._pools[s.name].n_units for s in self.states if s.kind in PAGED]
        return min([self.context, *paged])

    def _need(self, state: StateSpec, n_rows: int, static_rows: int) -> int:
        return SLOTS.get(state.kind) or self._n_pages(state, static_rows if state.kind == STATIC else n_rows)

    def open_seat(self, n_rows: int, *, static_rows: int = 0) -> Seat | None:
        """A seat for up to `n_rows` rows, and `static_rows` in each static group; None while others hold what
        it needs."""
        if not self._rows.n_free:
            return None
        reserved: dict[str, int] = {}
        for state in self.states:
            need = self._need(state, n_rows, static_rows)
            if not self._pools[state.name].reserve(need):
                self._unreserve(reserved)
                return None
            reserved[state.name] = need
        self._rows.reserve(1)
        seat = Seat(self._rows.take(), {s.name: [] for s in self.states}, reserved, static_rows=static_rows)
        for state in self.states:
            for _ in range(SLOTS.get(state.kind, 0)):
                self._take(seat, state.name)
        return seat

    def _unreserve(self, reserved: Mapping[str, int]) -> None:
        for name, n in reserved.items():
            self._pools[name].unreserve(n)

    def _take(self, seat: Seat, name: str) -> int:
        unit = self._pools[name].take()
        seat.reserved[name] -= 1
        seat.units[name].append(unit)
        return unit

    def grow(self, seat: Seat, n_rows: int) -> list[Update]:
        """Units for `n_rows` rows in all, as changes to the page tables; at first all that is static, too."""
        paged = [(group, s) for group, s in enumerate(self.states) if s.kind not in SLOTS]
        return [
            (group, seat.table_row, index, self._take(seat, s.name))
            for group, s in paged
            for index in range(len(seat.units[s.name]), self._need(s, n_rows, seat.static_rows))
        ]

    def words(self, seat: Seat, held: int) -> tuple[GroupWords, ...]:
        """A sequence's words for each group in its next step, which finds `held` rows."""
        return tuple(self._group_words(state, seat, held) for state in self.states)

    @staticmethod
    def _group_words(state: StateSpec, seat: Seat, held: int) -> GroupWords:
        if state.kind not in SLOTS:
            return seat.table_row, 0, seat.static_rows if state.kind == STATIC else held
        slots = seat.units[state.name]
        return slots[seat.n_steps % len(slots)], slots[(seat.n_steps + 1) % len(slots)], held

    @staticmethod
    def advance(seat: Seat) -> None:
        """The step that `words` described will run: the next one reads what it writes.

        A device runs steps in order, so that several may be in flight. Until this is called, a step can be
        built anew from the same slots.
        """
        seat.n_steps += 1

    def close_seat(self, seat: Seat) -> None:
        """Gives everything back. Only once no step in flight touches it."""
        self._unreserve(seat.reserved)
        for name, units in seat.units.items():
            for unit in units:
                self._pools[name].drop(unit)
        self._rows.drop(seat.table_row)

    @property
    def is_idle(self) -> bool:
        """Whether every unit is free and none is reserved."""
        pools = [self._rows, *self._pools.values()]
        return all(pool.n_free == pool.n_units and not pool.n_reserved for pool in pools)
