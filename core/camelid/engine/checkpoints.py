"""Recurrent slots, and the rows of a prompt after which their state is kept: its checkpoints.

A step reads one slot of an allocation and writes the other, so the state after earlier rows is lost unless
its slot is left to the prefix cache and replaced. Pages can be shared at any row, recurrent state only at a
checkpoint: a prompt that shares a prefix is computed from the last checkpoint within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from camelid.engine.allocation import CacheAllocation, UnitPool
from camelid.engine.pool_bounds import N_SLOTS
from camelid.engine.prefix_cache import PrefixHit, PrefixReuse

FIRST_PAGES = 16  # pages before the first checkpoint of a prompt; each further one is at twice the rows
LAST_PAGES = 4  # least distance of the last checkpoint of a prompt from the one before


def checkpoints_of(n_rows: int, hit: PrefixHit, page_rows: int, first: int) -> frozenset[int]:
    """The rows of a prompt after which recurrent state is kept, given its prefix hit.

    At `first` rows and at their doublings, so that at most half of a shared prefix is computed again; where
    the prompt leaves pages that are cached, since other prompts share them too; and at the last page, since
    the next prompt may have the same beginning. The state of the hit is kept as well.
    """
    last = (n_rows - 1) // page_rows * page_rows
    doublings = [first << i for i in range(max(last // first, 0).bit_length())]
    rows = {row for row in (*doublings, hit.n_known) if hit.n_rows < row <= last}
    if last - max(rows, default=hit.n_rows) >= LAST_PAGES * page_rows:
        rows.add(last)
    return frozenset({*rows, hit.n_rows} - {0})


class RecurrentSlots:
    """The slots of all recurrent groups: `N_SLOTS` per allocation, and those of the prefix cache."""

    def __init__(self, groups: Iterable[str], pools: Mapping[str, UnitPool], reuse: PrefixReuse) -> None:
        self.groups = tuple(groups)
        self._pools = pools
        self._reuse = reuse

    def __bool__(self) -> bool:
        """True if the model has recurrent state."""
        return bool(self.groups)

    def n_new(self, hit: PrefixHit) -> dict[str, int]:
        """The slots that a new allocation needs beside those of a pinned hit, by group."""
        return {group: N_SLOTS - bool(hit.n_rows) for group in self.groups}

    def has_room(self, n: int) -> bool:
        """True if every group has `n` available slots."""
        return all(self._pools[group].n_available >= n for group in self.groups)

    def allocate(self, allocation: CacheAllocation, hit: PrefixHit) -> None:
        """Gives a new allocation its slots; the next step reads the hit's."""
        for group in self.groups:
            start = hit.units.get(group, [])
            new = [self._pools[group].allocate() for _ in range(N_SLOTS - len(start))]
            allocation.slots[group] = [*start, *new]
            allocation.slot_rows |= dict.fromkeys(start, hit.n_rows)

    def n_needed(self, allocation: CacheAllocation, group: str) -> int:
        """Slots without which the next step cannot write: 1 if its slot is shared."""
        return int(self._pools[group].ref_count(allocation.write_slot(group)) > 1)

    def make_writable(self, allocation: CacheAllocation) -> None:
        """Makes the slots that the next step writes exclusive.

        A shared slot is replaced, and so is a checkpoint while another slot is available; else it is removed
        from the prefix cache.
        """
        for group in self.groups:
            pool, slots = self._pools[group], allocation.slots[group]
            at = (allocation.n_steps + 1) % len(slots)
            is_kept = self._is_checkpoint(allocation, group, slots[at]) and pool.n_available
            if pool.ref_count(slots[at]) > 1 or is_kept:
                left, slots[at] = slots[at], pool.allocate()
                pool.free(left)
                allocation.slot_rows.pop(left, None)
            else:
                self._reuse.invalidate(group, slots[at])

    def _is_checkpoint(self, allocation: CacheAllocation, group: str, slot: int) -> bool:
        """True if a slot is in the prefix cache with the state of a checkpoint."""
        is_cached = self._reuse.n_rows_in(group, slot) > 0
        return is_cached and allocation.slot_rows.get(slot, 0) in allocation.checkpoints

    def advance(self, allocation: CacheAllocation, n_rows: int) -> None:
        """Records that the next step writes the state after `n_rows` rows."""
        allocation.slot_rows |= {allocation.write_slot(group): n_rows for group in self.groups}
