"""All state of one engine: allocations, page tables and slots within a hard bound, and what may be reused.

A group's `kind` says how it is held. Pages (paged, window, static) are listed in a table row, and window
groups give pages back as rows leave the window. Slots hold a sequence as a whole: a ring its last ids, a
recurrent group its state, of which each step reads one slot and writes the next, so that a step can be
dropped.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from camelid.backends.base import PoolSize
from camelid.engine.allocation import (
    PAGED,
    RECURRENT,
    RING,
    STATIC,
    TABLED,
    CacheAllocation,
    Copy,
    GroupWords,
    Update,
)
from camelid.engine.prefix_cache import root_key
from camelid.engine.prefix_reuse import PrefixHit, PrefixReuse, first_page
from camelid.engine.unit_pool import UnitPool
from camelid.plan.plan import StateSpec

N_SLOTS = 2  # of an allocation in a recurrent group: what the last two steps left
TRASH = 1  # unit 0, table row 0: written by unused rows, never read


@dataclass(frozen=True, slots=True)
class CacheUpdate:
    """What a step must do to the page tables and units before its rows are written."""

    updates: Sequence[Update] = ()
    copies: Sequence[Copy] = ()


NO_UPDATE = CacheUpdate()


class KVCacheManager:
    """All state groups of one engine, within a bound set here.

    `n_sequences` allocations of at most `context` rows each. A paged group has `n_pages` pages (default:
    enough for every allocation); a window group has at most the pages of its window and of `chunk` rows a
    step. An allocation takes units as its rows come, evicting cached units where none is free. `grow` returns
    None where no unit can be had, and the scheduler preempts a sequence.
    """

    def __init__(
        self,
        states: Sequence[StateSpec],
        *,
        context: int,
        n_sequences: int,
        n_pages: int | None = None,
        chunk: int = 0,
    ) -> None:
        self.states = tuple(states)
        self.context = context
        self.n_sequences = n_sequences
        self._chunk = chunk or context
        self._tabled = [(i, s) for i, s in enumerate(self.states) if s.kind in TABLED]
        self._paged = [(i, s) for i, s in self._tabled if s.kind in PAGED]
        self._recurrent = [s for s in self.states if s.kind == RECURRENT]
        self._rings = [s for s in self.states if s.kind == RING]
        self.page_rows = self._tabled[0][1].unit_rows if self._tabled else 16
        self._rows = UnitPool(n_sequences)
        self._pools = {s.name: self._pool(s, n_pages) for s in self.states}
        self._reuse = PrefixReuse(self.states, self._pools, self.page_rows)

    def _pool(self, state: StateSpec, n_pages: int | None) -> UnitPool:
        def evicted(unit: int) -> None:
            self._reuse.on_evict(state.name, unit)

        return UnitPool(self._n_units(state, n_pages), evicted)

    def _n_units(self, state: StateSpec, n_pages: int | None) -> int:
        if state.kind == RING:
            return self.n_sequences
        if state.kind == RECURRENT:
            return self.n_sequences * (N_SLOTS + 1)  # one more each, for what ended requests leave
        per_sequence = self._most_pages(state, self.context)
        fewest = per_sequence if state.window else 1  # other groups bound the length of a sequence instead
        return max(min(n_pages or self.n_sequences * per_sequence, self.n_sequences * per_sequence), fewest)

    def _n_pages(self, n_rows: int) -> int:
        return -(-n_rows // self.page_rows)

    def _most_pages(self, state: StateSpec, n_rows: int) -> int:
        """Pages that an allocation of `n_rows` rows holds at once: of a window, it and the rows of a step."""
        pages = self._n_pages(n_rows)
        return min(pages, self._n_pages(state.window + self._chunk) + 2) if state.window else pages

    def sizes(self) -> Mapping[str, PoolSize]:
        """What the backend allocates, trash included."""
        return {s.name: self._size(s) for s in self.states}

    def _size(self, state: StateSpec) -> PoolSize:
        n_units = self._pools[state.name].n_units + TRASH
        if state.kind not in TABLED:
            return PoolSize(n_units)
        return PoolSize(n_units, self.n_sequences + TRASH, self._n_pages(self.context))

    @property
    def max_rows(self) -> int:
        """The most rows that one sequence can ever hold."""
        paged = [s.unit_rows * self._pools[s.name].n_units for _, s in self._paged if not s.window]
        return min([self.context, *paged])

    @property
    def n_free_allocations(self) -> int:
        return self._rows.n_free

    @property
    def n_freed(self) -> int:
        """Grows whenever there is more room than before."""
        return self._rows.n_freed + sum(pool.n_freed for pool in self._pools.values())

    @property
    def n_evicted(self) -> int:
        """Units that were taken from the prefix cache so far."""
        return sum(pool.n_evicted for pool in self._pools.values())

    @property
    def n_cached(self) -> int:
        """Units that nobody holds and that the prefix cache may still serve."""
        return sum(pool.n_cached for pool in self._pools.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of the units that somebody holds."""
        pools = ((s, self._pools[s.name]) for s in self.states)
        return sum((pool.n_units - pool.n_available) * s.unit_bytes for s, pool in pools)

    @property
    def cached_bytes(self) -> int:
        """Bytes of the units that nobody holds and that may be found again."""
        return sum(self._pools[s.name].n_cached * s.unit_bytes for s in self.states)

    @property
    def total_bytes(self) -> int:
        """Bytes of all units that sequences may hold."""
        return sum(self._pools[s.name].n_units * s.unit_bytes for s in self.states)

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds a unit: all are free or cached."""
        pools = [self._rows, *self._pools.values()]
        return all(pool.n_available == pool.n_units for pool in pools)

    # Allocations

    def allocate(
        self, token_ids: Sequence[int], *, salt: str = "", reuses: bool = True, static_rows: int = 0
    ) -> CacheAllocation | None:
        """An allocation for these tokens, with their cached prefix; None without free units."""
        if not self._rows.n_free:
            return None
        hit = self._reuse.match_prefix(token_ids, salt, len(token_ids) - 1 if reuses else 0)
        self._reuse.pin(hit)
        if not self._has_room(len(token_ids), hit, static_rows):
            self._reuse.unpin(hit)
            return None
        return self._new_allocation(hit, static_rows)

    def _has_room(self, n_rows: int, hit: PrefixHit, static_rows: int) -> bool:
        """Whether the groups have units for all these rows, a hit's being pinned."""
        needed = {s.name: N_SLOTS - bool(hit.n_rows) for s in self._recurrent}
        needed |= {s.name: self._n_missing(s, n_rows, hit) for _, s in self._paged if not s.window}
        needed |= {s.name: self._n_pages(static_rows) for _, s in self._tabled if s.kind == STATIC}
        return all(self._pools[name].n_available >= n for name, n in needed.items())

    def _n_missing(self, state: StateSpec, n_rows: int, hit: PrefixHit) -> int:
        """Pages for the rows that a pinned hit does not have; a page that others hold will be copied."""
        found = hit.units.get(state.name, [])
        is_copied = hit.n_rows % self.page_rows and self._pools[state.name].ref_count(found[-1]) > 1
        return self._n_pages(n_rows) - len(found) + bool(is_copied)

    def _new_allocation(self, hit: PrefixHit, static_rows: int = 0) -> CacheAllocation:
        """An allocation that holds the pinned units of a hit."""
        allocation = CacheAllocation(
            self._rows.allocate(),
            hit.key,
            pages={s.name: list(hit.units.get(s.name, ())) for _, s in self._tabled},
            slots={s.name: self._allocate_units(s.name, 1) for s in self._rings},
            first_page={s.name: hit.first_page.get(s.name, 0) for _, s in self._tabled},
            static_rows=static_rows,
            n_hashed=hit.n_full,
            n_cached=hit.n_rows,
        )
        for state in self._recurrent:
            start = hit.units.get(state.name, [])
            allocation.slots[state.name] = start + self._allocate_units(state.name, N_SLOTS - len(start))
        for group, state in self._tabled:
            units = enumerate(allocation.pages[state.name])
            allocation.pending += [(group, allocation.table_row, i, unit) for i, unit in units if unit]
        return allocation

    def fork(self, allocation: CacheAllocation, n_rows: int) -> CacheAllocation | None:
        """An allocation that shares what another holds of its `n_rows` rows; None while there is none free.

        No step of the other may be in flight. Whoever writes to a shared unit first gets one of its own.
        """
        n_new = N_SLOTS - 1
        if not self._rows.n_free or any(self._pools[s.name].n_available < n_new for s in self._recurrent):
            return None
        units = {s.name: allocation.pages[s.name][: self._n_pages(n_rows)] for _, s in self._paged}
        units |= {s.name: [allocation.read_slot(s.name)] for s in self._recurrent}
        hit = PrefixHit(n_rows, allocation.n_hashed, allocation.key, units, dict(allocation.first_page))
        self._reuse.pin(hit)
        allocation.n_writable = -1
        return self._new_allocation(hit)

    def match_prefix(self, token_ids: Sequence[int], salt: str) -> PrefixHit:
        """What is known of these tokens."""
        return self._reuse.match_prefix(token_ids, salt, len(token_ids))

    @contextmanager
    def pinned_prefix(self, token_ids: Sequence[int], salt: str) -> Generator[PrefixHit]:
        """The same, kept from being evicted meanwhile."""
        hit = self.match_prefix(token_ids, salt)
        self._reuse.pin(hit)
        try:
            yield hit
        finally:
            self._reuse.unpin(hit)

    def allocate_imported(self, n_rows: int, salt: str) -> CacheAllocation | None:
        """An allocation with units for `n_rows` imported rows; None without free units."""
        first = {s.name: first_page(s, n_rows) for _, s in self._paged}
        needed = {name: self._n_pages(n_rows) - start for name, start in first.items()}
        if not self._rows.n_free or any(n > self._pools[name].n_available for name, n in needed.items()):
            return None
        units = {name: [0] * first[name] + self._allocate_units(name, n) for name, n in needed.items()}
        units |= {s.name: self._allocate_units(s.name, 1) for s in self._recurrent}
        allocation = self._new_allocation(PrefixHit(n_rows, 0, root_key(salt), units, first))
        allocation.slot_rows |= {allocation.read_slot(s.name): n_rows for s in self._recurrent}
        return allocation

    def units(self, allocation: CacheAllocation) -> Mapping[str, list[int]]:
        """Units of an allocation's rows, by group: its pages, and the slot that the next step reads."""
        pages = {s.name: [unit for unit in allocation.pages[s.name] if unit] for _, s in self._paged}
        return pages | {s.name: [allocation.read_slot(s.name)] for s in self._recurrent}

    def _allocate_units(self, name: str, n: int) -> list[int]:
        return [self._pools[name].allocate() for _ in range(n)]

    def free(
        self, allocation: CacheAllocation, token_ids: Sequence[int], n_rows: int, *, keeps: bool = True
    ) -> None:
        """Gives everything back; with `keeps`, what its first `n_rows` rows left is remembered.

        Only once no step in flight touches it.
        """
        if keeps:
            self._reuse.cache_finished(allocation, token_ids, n_rows)
        for name, pages in allocation.pages.items():
            for unit in reversed(pages):  # the last pages are the first to be evicted
                if unit:
                    self._pools[name].free(unit)
        for name, slots in allocation.slots.items():
            for unit in slots:
                self._pools[name].free(unit)
        self._rows.free(allocation.table_row)

    # Steps

    def grow(self, allocation: CacheAllocation, first_row: int, n_rows: int) -> CacheUpdate | None:
        """Units of its own for rows `first_row` .. `n_rows` - 1; None, and no change, if there are none."""
        if n_rows <= allocation.n_writable and not self._recurrent:
            return NO_UPDATE
        needed = {s.name: self._n_needed(allocation, s, first_row, n_rows) for s in self.states}
        if any(n > self._pools[name].n_available for name, n in needed.items()):
            return None
        copies = [
            copy for group, s in self._paged for copy in self._make_writable(allocation, group, s, first_row)
        ]
        for group, state in self._tabled:
            pages = allocation.pages[state.name]
            for index in range(len(pages), self._n_pages(self._rows_of(allocation, state, n_rows))):
                pages.append(self._pools[state.name].allocate())
                allocation.pending.append((group, allocation.table_row, index, pages[-1]))
        for state in self._recurrent:
            self._make_slot_writable(allocation, state.name)
        updates, allocation.pending = allocation.pending, []
        allocation.n_writable = self._n_pages(n_rows) * self.page_rows
        return CacheUpdate(updates, copies)

    def most_updates(self, allocation: CacheAllocation, first_row: int, n_rows: int) -> int:
        """Table changes that `grow` may come to."""
        n_new = self._n_pages(n_rows) - first_row // self.page_rows  # the first of them may be copied
        return len(allocation.pending) + (n_new * len(self._tabled) if n_rows > allocation.n_writable else 0)

    @staticmethod
    def _rows_of(allocation: CacheAllocation, state: StateSpec, n_rows: int) -> int:
        return allocation.static_rows if state.kind == STATIC else n_rows

    def _n_needed(self, allocation: CacheAllocation, state: StateSpec, first_row: int, n_rows: int) -> int:
        """Units that `grow` would take of a group."""
        pool = self._pools[state.name]
        if state.kind == RECURRENT:
            return int(pool.ref_count(allocation.write_slot(state.name)) > 1)
        if state.kind == RING:
            return 0
        pages = allocation.pages[state.name]
        shared = sum(pool.ref_count(unit) > 1 for unit in pages[first_row // self.page_rows :] if unit)
        return max(self._n_pages(self._rows_of(allocation, state, n_rows)) - len(pages), 0) + shared

    def _make_writable(
        self, allocation: CacheAllocation, group: int, state: StateSpec, first_row: int
    ) -> list[Copy]:
        """Makes the pages from `first_row` on its own: copies what others hold, hides the rest."""
        pool, pages, copies = self._pools[state.name], allocation.pages[state.name], list[Copy]()
        for index in range(first_row // self.page_rows, len(pages)):
            unit = pages[index]
            if pool.ref_count(unit) == 1:
                self._reuse.invalidate(state.name, unit)
                continue
            pages[index] = pool.allocate()
            copies.append((group, unit, pages[index], first_row - index * self.page_rows))
            allocation.pending.append((group, allocation.table_row, index, pages[index]))
            pool.free(unit)
        return [copy for copy in copies if copy[3] > 0]

    def _make_slot_writable(self, allocation: CacheAllocation, name: str) -> None:
        """The slot that the next step writes is its own, or another takes its place."""
        pool, slots = self._pools[name], allocation.slots[name]
        at = (allocation.n_steps + 1) % len(slots)
        if pool.ref_count(slots[at]) > 1:
            shared, slots[at] = slots[at], pool.allocate()
            pool.free(shared)
        else:
            self._reuse.invalidate(name, slots[at])

    def words(self, allocation: CacheAllocation, held: int) -> tuple[GroupWords, ...]:
        """A sequence's words for each group in its next step, which finds `held` rows."""
        return tuple(allocation.words(state, held) for state in self.states)

    def advance(self, allocation: CacheAllocation, n_rows: int) -> None:
        """The step that `words` described will run: the next one reads what it writes, after `n_rows` rows.

        A device runs steps in order, so that several may be in flight. Until this is called, a step can be
        built anew from the same slots.
        """
        for state in self._recurrent:
            allocation.slot_rows[allocation.write_slot(state.name)] = n_rows
        allocation.n_steps += 1

    @staticmethod
    def rollback(allocation: CacheAllocation) -> None:
        """The last step's rows will be run again: what it wrote to recurrent slots is not read."""
        allocation.n_steps -= 1

    @property
    def has_recurrent(self) -> bool:
        """Whether rows can only be taken back a whole step at a time."""
        return bool(self._recurrent)

    def retire_rows(self, allocation: CacheAllocation, token_ids: Sequence[int], n_rows: int) -> None:
        """`n_rows` rows are retired: the cache learns full pages, windows give back what they passed."""
        self._reuse.cache_pages(allocation, token_ids, n_rows)
        for _, state in self._paged:
            if state.window:
                self._free_window_pages(allocation, state, first_page(state, n_rows))

    def _free_window_pages(self, allocation: CacheAllocation, state: StateSpec, first: int) -> None:
        pages = allocation.pages[state.name]
        for index in range(allocation.first_page[state.name], min(first, len(pages))):
            self._pools[state.name].free(pages[index])
            pages[index] = 0
        allocation.first_page[state.name] = max(first, allocation.first_page[state.name])
