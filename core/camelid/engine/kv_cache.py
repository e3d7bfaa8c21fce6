"""The state of one engine: allocations, page tables and slots within a hard bound, and the prefix cache.

A group's `kind` determines its units. Pages (paged, window, static) are listed in a page-table row; window
groups free pages as rows leave the window. Slots belong to a whole sequence: a ring of its last token ids, or
recurrent state, of which each step reads one slot and writes the next, so that a step can be rolled back.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from camelid.backends.base import PoolSize
from camelid.engine.allocation import (
    NO_UPDATE,
    PAGED,
    RECURRENT,
    RING,
    STATIC,
    TABLED,
    WINDOW,
    CacheAllocation,
    CacheUpdate,
    Copy,
    GroupWords,
    UnitPool,
)
from camelid.engine.checkpoints import FIRST_PAGES, RecurrentSlots, checkpoints_of
from camelid.engine.pool_bounds import N_SLOTS, PoolBounds
from camelid.engine.prefix_cache import PrefixHit, PrefixReuse, first_page, root_key
from camelid.plan.plan import PAGE_ROWS, StateSpec


class KVCacheManager:
    """All state groups of one engine, within bounds set here.

    At most `n_sequences` allocations of `context` rows each. A paged group has `n_pages` pages (default: a
    full context for every allocation); a window group at most the pages of its window and of `chunk` rows per
    step. Cached units are evicted where none is free; `grow` returns None if none is available at all.
    """

    def __init__(
        self,
        states: Sequence[StateSpec],
        *,
        context: int,
        n_sequences: int,
        n_pages: int | None = None,
        chunk: int = 0,
        first_checkpoint: int = 0,
    ) -> None:
        self.states = tuple(states)
        self.context = context
        self.n_sequences = n_sequences
        self._tabled = [(i, s) for i, s in enumerate(self.states) if s.kind in TABLED]
        self._paged = [(i, s) for i, s in self._tabled if s.kind in PAGED]
        self._rings = [s for s in self.states if s.kind == RING]
        self.has_static = len(self._tabled) > len(self._paged)
        self.page_rows = self._tabled[0][1].unit_rows if self._tabled else PAGE_ROWS
        self._rows = UnitPool(n_sequences)
        self._bounds = PoolBounds(context, n_sequences, chunk or context, self.page_rows, n_pages)
        self._pools = {s.name: self._pool(s) for s in self.states}
        self._reuse = PrefixReuse(self.states, self._pools, self.page_rows)
        recurrent = (s.name for s in self.states if s.kind == RECURRENT)
        self._slots = RecurrentSlots(recurrent, self._pools, self._reuse)
        self._first_checkpoint = first_checkpoint or FIRST_PAGES * self.page_rows

    def _pool(self, state: StateSpec) -> UnitPool:
        def on_evict(unit: int) -> None:
            self._reuse.on_evict(state.name, unit)

        return UnitPool(self._bounds.n_units(state), on_evict)

    def _n_pages(self, n_rows: int) -> int:
        return -(-n_rows // self.page_rows)

    def sizes(self) -> Mapping[str, PoolSize]:
        """Pool sizes for `Backend.allocate`, trash units included."""
        return {s.name: self._bounds.size(s, self._pools[s.name].n_units) for s in self.states}

    @property
    def max_rows(self) -> int:
        """The most rows that one sequence can have."""
        paged = [s.unit_rows * self._pools[s.name].n_units for _, s in self._paged if not s.window]
        return min([self.context, *paged])

    @property
    def n_freed(self) -> int:
        """A counter that grows whenever a unit or a page-table row is freed."""
        return self._rows.n_freed + sum(pool.n_freed for pool in self._pools.values())

    @property
    def n_evicted(self) -> int:
        """Units evicted from the prefix cache so far."""
        return sum(pool.n_evicted for pool in self._pools.values())

    @property
    def n_cached(self) -> int:
        """Cached units without references."""
        return sum(pool.n_cached for pool in self._pools.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of the referenced units."""
        pools = ((s, self._pools[s.name]) for s in self.states)
        return sum((pool.n_units - pool.n_available) * s.unit_bytes for s, pool in pools)

    @property
    def cached_bytes(self) -> int:
        """Bytes of the cached units without references."""
        return sum(self._pools[s.name].n_cached * s.unit_bytes for s in self.states)

    @property
    def total_bytes(self) -> int:
        """Bytes of all units except trash."""
        return sum(self._pools[s.name].n_units * s.unit_bytes for s in self.states)

    def unit_states(self, group: str) -> list[str]:
        """The state of each unit of a group but trash: free, cached, held or shared."""
        pool = self._pools[group]
        return [pool.unit_state(unit) for unit in range(1, pool.n_units + 1)]

    @property
    def is_idle(self) -> bool:
        """True if no unit is referenced: all are free or cached."""
        pools = [self._rows, *self._pools.values()]
        return all(pool.n_available == pool.n_units for pool in pools)

    # Allocations

    def allocate(
        self, token_ids: Sequence[int], *, salt: str = "", reuses: bool = True, static_rows: int = 0
    ) -> CacheAllocation | None:
        """An allocation for these tokens, with their cached prefix; None if too few units are available."""
        if not self._rows.n_free:
            return None
        most = len(token_ids) - 1 if reuses else 0
        while True:
            hit = self._reuse.match_prefix(token_ids, salt, most)
            self._reuse.pin(hit)
            if self._has_room(len(token_ids), hit, static_rows):
                allocation = self._new_allocation(hit, static_rows)
                if self._slots and reuses:
                    first = self._first_checkpoint
                    allocation.checkpoints = checkpoints_of(len(token_ids), hit, self.page_rows, first)
                return allocation
            self._reuse.unpin(hit)
            if not hit.n_rows % self.page_rows:
                return None
            most = hit.n_full * self.page_rows  # without the page that needs a copy

    def _has_room(self, n_rows: int, hit: PrefixHit, static_rows: int) -> bool:
        """True if every group has units for all these rows, given a pinned hit."""
        needed = self._slots.n_new(hit)
        needed |= {s.name: self._n_missing(s, n_rows, hit) for _, s in self._paged if not s.window}
        needed |= {s.name: self._n_pages(static_rows) for _, s in self._tabled if s.kind == STATIC}
        return all(self._pools[name].n_available >= n for name, n in needed.items())

    def _n_missing(self, state: StateSpec, n_rows: int, hit: PrefixHit) -> int:
        """Pages for the rows beyond a pinned hit, and for a copy of its last page."""
        pages, n_kept = hit.units.get(state.name, []), hit.n_rows % self.page_rows
        is_copied = n_kept and self._must_copy(state.name, pages[-1], n_kept)
        return self._n_pages(n_rows) - len(pages) + bool(is_copied)

    def _must_copy(self, group: str, unit: int, n_kept: int) -> bool:
        """True if a page is shared, or cached with more rows than the `n_kept` that its writer keeps."""
        return self._pools[group].ref_count(unit) > 1 or (
            n_kept > 0 and self._reuse.n_rows_in(group, unit) > n_kept
        )

    def _new_allocation(self, hit: PrefixHit, static_rows: int = 0) -> CacheAllocation:
        """An allocation with the units of a pinned hit, and new slots."""
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
        self._slots.allocate(allocation, hit)
        for group, state in self._tabled:
            units = enumerate(allocation.pages[state.name])
            allocation.pending += [(group, allocation.table_row, i, unit) for i, unit in units if unit]
        return allocation

    def fork(self, allocation: CacheAllocation, n_rows: int) -> CacheAllocation | None:
        """An allocation that shares the units of another one's first `n_rows` rows; None if none is free.

        No step of the other may be in flight. The first writer to a shared unit gets a copy.
        """
        if self.has_static or not self._rows.n_free or not self._slots.has_room(N_SLOTS - 1):
            return None
        units = {s.name: allocation.pages[s.name][: self._n_pages(n_rows)] for _, s in self._paged}
        units |= {name: [allocation.read_slot(name)] for name in self._slots.groups}
        hit = PrefixHit(n_rows, allocation.n_hashed, allocation.key, units, dict(allocation.first_page))
        self._reuse.pin(hit)
        allocation.n_writable = -1
        return self._new_allocation(hit)

    def can_fork_at(self, allocation: CacheAllocation, n_rows: int) -> bool:
        """True if an allocation that holds more rows can be forked after its first `n_rows`.

        Not where the state of an earlier row is gone (recurrent and window groups), nor where the prefix
        cache has a page that goes past these rows.
        """
        is_kept = all(state.kind not in (RECURRENT, WINDOW) for state in self.states)
        return is_kept and allocation.n_hashed * self.page_rows <= n_rows

    def match_prefix(self, token_ids: Sequence[int], salt: str) -> PrefixHit:
        """The longest cached prefix of these tokens."""
        return self._reuse.match_prefix(token_ids, salt, len(token_ids))

    @contextmanager
    def pinned_prefix(self, token_ids: Sequence[int], salt: str) -> Generator[PrefixHit]:
        """The longest cached prefix, pinned against eviction inside the `with` block."""
        hit = self.match_prefix(token_ids, salt)
        self._reuse.pin(hit)
        try:
            yield hit
        finally:
            self._reuse.unpin(hit)

    def forget_prefix(self, token_ids: Sequence[int], salt: str, n_kept: int) -> int:
        """Removes the cached pages behind the first `n_kept` of these tokens; returns the rows of the prefix.

        Sequences that use the pages keep them; a page that only begins with these tokens belongs to others.
        """
        first = n_kept // self.page_rows
        with self.pinned_prefix(token_ids, salt) as hit:
            for group, units in hit.units.items():
                for index, unit in enumerate(units[first:], first):
                    if unit and self._reuse.n_rows_in(group, unit) <= hit.n_rows - index * self.page_rows:
                        self._reuse.invalidate(group, unit)
        return hit.n_rows

    def forget_all(self) -> None:
        """Removes every page and slot from the prefix cache: a lost device has none of their rows."""
        self._reuse.forget_all()

    def allocate_imported(self, n_rows: int, salt: str) -> CacheAllocation | None:
        """An allocation with units for `n_rows` imported rows; None if too few units are available."""
        first = {s.name: first_page(s, n_rows) for _, s in self._paged}
        needed = {name: self._n_pages(n_rows) - start for name, start in first.items()}
        if not self._rows.n_free or any(n > self._pools[name].n_available for name, n in needed.items()):
            return None
        units = {name: [0] * first[name] + self._allocate_units(name, n) for name, n in needed.items()}
        units |= {name: self._allocate_units(name, 1) for name in self._slots.groups}
        return self._new_allocation(PrefixHit(n_rows, 0, root_key(salt), units, first))

    def units(self, allocation: CacheAllocation) -> Mapping[str, list[int]]:
        """Units of an allocation's rows, by group: its pages, and the slot that the next step reads."""
        pages = {s.name: [unit for unit in allocation.pages[s.name] if unit] for _, s in self._paged}
        return pages | {name: [allocation.read_slot(name)] for name in self._slots.groups}

    def _allocate_units(self, name: str, n: int) -> list[int]:
        return [self._pools[name].allocate() for _ in range(n)]

    def free(
        self, allocation: CacheAllocation, token_ids: Sequence[int], n_rows: int, *, keeps: bool = True
    ) -> None:
        """Frees an allocation's units; with `keeps`, its first `n_rows` rows stay in the prefix cache.

        No step in flight may use the allocation.
        """
        if keeps:
            self._reuse.cache_finished(allocation, token_ids, n_rows)
        for name, pages in allocation.pages.items():
            for unit in reversed(pages):  # the last pages are evicted first
                if unit:
                    self._pools[name].free(unit)
        for name, slots in allocation.slots.items():
            for unit in slots:
                self._pools[name].free(unit)
        self._return_lent(allocation)
        self._rows.free(allocation.table_row)

    def _return_lent(self, allocation: CacheAllocation) -> None:
        for name, unit in allocation.lent:
            self._pools[name].free(unit)
        allocation.lent.clear()

    # Steps

    def grow(self, allocation: CacheAllocation, first_row: int, n_rows: int) -> CacheUpdate | None:
        """Allocates and copies units so that rows `first_row` to `n_rows` - 1 are writable.

        Returns None, without a change, if too few units are available.
        """
        self._return_lent(allocation)
        if n_rows <= allocation.n_writable and not self._slots:
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
        self._slots.make_writable(allocation)
        latest, allocation.pending = {u[:3]: u for u in allocation.pending}, []  # made at once: one an entry
        allocation.n_writable = self._n_pages(n_rows) * self.page_rows
        return CacheUpdate(list(latest.values()), copies)

    def most_updates(self, allocation: CacheAllocation, first_row: int, n_rows: int) -> int:
        """An upper bound of the page-table updates of `grow`."""
        n_new = (self._n_pages(n_rows) - first_row // self.page_rows) * len(self._paged)
        n_new += self._n_pages(allocation.static_rows) if allocation.n_writable < 0 else 0
        return len(allocation.pending) + (n_new if n_rows > allocation.n_writable else 0)

    @staticmethod
    def _rows_of(allocation: CacheAllocation, state: StateSpec, n_rows: int) -> int:
        """Rows of a group's pages, when a sequence has `n_rows` rows."""
        return allocation.static_rows if state.kind == STATIC else n_rows

    def _n_needed(self, allocation: CacheAllocation, state: StateSpec, first_row: int, n_rows: int) -> int:
        """Units that `grow` allocates of a group."""
        if state.kind == RECURRENT:
            return self._slots.n_needed(allocation, state.name)
        if state.kind == RING:
            return 0
        pages = allocation.pages[state.name]
        copied = sum(
            self._must_copy(state.name, pages[index], first_row - index * self.page_rows)
            for index in range(first_row // self.page_rows, len(pages))
            if pages[index]
        )
        return max(self._n_pages(self._rows_of(allocation, state, n_rows)) - len(pages), 0) + copied

    def _make_writable(
        self, allocation: CacheAllocation, group: int, state: StateSpec, first_row: int
    ) -> list[Copy]:
        """Makes the pages from `first_row` on writable: copies those that others read, uncaches the rest."""
        pool, pages, copies = self._pools[state.name], allocation.pages[state.name], list[Copy]()
        for index in range(first_row // self.page_rows, len(pages)):
            unit, n_kept = pages[index], first_row - index * self.page_rows
            if not self._must_copy(state.name, unit, n_kept):
                self._reuse.invalidate(state.name, unit)
                continue
            pages[index] = pool.allocate()
            copies.append((group, unit, pages[index], n_kept))
            allocation.pending.append((group, allocation.table_row, index, pages[index]))
            if pool.ref_count(unit) > 1:
                pool.free(unit)
            else:
                allocation.lent.append((state.name, unit))
        return [copy for copy in copies if copy[3] > 0]

    def words(self, allocation: CacheAllocation, n_held: int, n_new: int = 0) -> tuple[GroupWords, ...]:
        """A sequence's step words for each group, in a step after `n_held` rows.

        Attention of mask `held` reads these rows and `n_new` rows of the step.
        """
        return tuple(allocation.words(state, n_held, n_new) for state in self.states)

    def advance(self, allocation: CacheAllocation, n_rows: int) -> None:
        """Records that the step of `words` will be submitted: the next step reads the slots that it writes.

        A device runs steps in order, so several may be in flight. Before this call a step may be rebuilt from
        the same slots.
        """
        self._slots.advance(allocation, n_rows)
        allocation.n_steps += 1

    @staticmethod
    def rollback(allocation: CacheAllocation) -> None:
        """Rolls back the last step of an allocation: the recurrent slots that it wrote are not read."""
        allocation.n_steps -= 1

    @property
    def has_recurrent(self) -> bool:
        """True if rows can only be rolled back a whole step at a time."""
        return bool(self._slots)

    @staticmethod
    def rows_to_checkpoint(allocation: CacheAllocation, first_row: int, n_rows: int) -> int:
        """The rows of a chunk of up to `n_rows` prompt rows that ends at the next checkpoint within it."""
        end = min((row for row in allocation.checkpoints if row > first_row), default=first_row + n_rows)
        return min(end - first_row, n_rows)

    def retire_rows(self, allocation: CacheAllocation, token_ids: Sequence[int], n_rows: int) -> None:
        """Adds the full pages of `n_rows` retired rows to the prefix cache and frees passed window pages."""
        self._reuse.cache_pages(allocation, token_ids, n_rows)
        for _, state in self._paged:
            if state.window:
                self._free_window_pages(allocation, state, first_page(state, n_rows))

    def _free_window_pages(self, allocation: CacheAllocation, state: StateSpec, first: int) -> None:
        """Frees a window group's pages before page `first`."""
        pages = allocation.pages[state.name]
        for index in range(allocation.first_page[state.name], min(first, len(pages))):
            self._pools[state.name].free(pages[index])
            pages[index] = 0
        allocation.first_page[state.name] = max(first, allocation.first_page[state.name])
