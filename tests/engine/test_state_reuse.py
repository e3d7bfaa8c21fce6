"""Units of an allocation: copies and static pages count, replaced tails do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.engine_fakes import PAGE_ROWS, STATES

from camelid.engine.allocation import CacheAllocation
from camelid.engine.kv_cache import KVCacheManager
from camelid.plan.plan import StateSpec

TOKENS = list(range(1, 21))


def allocate_for(state: KVCacheManager, token_ids: Sequence[int]) -> CacheAllocation:
    allocation = state.allocate(token_ids)
    assert allocation is not None
    return allocation


def left_behind(state: KVCacheManager, token_ids: Sequence[int]) -> None:
    """Allocates a sequence, marks all these rows computed in one step, and frees it."""
    allocation = allocate_for(state, token_ids)
    assert state.grow(allocation, allocation.n_cached, len(token_ids)) is not None
    state.advance(allocation, len(token_ids))
    state.retire_rows(allocation, token_ids, len(token_ids))
    state.free(allocation, token_ids, len(token_ids))


@pytest.mark.parametrize(("n_pages", "has_room"), [(3, False), (4, True)])
def test_an_allocation_counts_the_copy_of_a_shared_page(n_pages: int, has_room: bool) -> None:
    """Two full pages and a partial one are found; the second sequence must copy the partial page before it
    writes.
    """
    state = KVCacheManager(STATES, context=20, n_sequences=2, n_pages=n_pages)
    left_behind(state, TOKENS[:10])
    first = allocate_for(state, TOKENS[:12])
    assert first.n_cached == 10
    second = state.allocate(TOKENS[:12])
    assert (second is not None) == has_room
    if second:
        change = state.grow(second, 10, 12)
        assert change and [copy[3] for copy in change.copies] == [2]


def test_a_replaced_tail_is_freed_at_once() -> None:
    """A longer tail has all its rows; it would occupy units of other rows. Tails of other texts stay."""
    state = KVCacheManager(STATES, context=20, n_sequences=2)
    first, second = allocate_for(state, [1, 2]), allocate_for(state, [1, 2, 3])
    for allocation, token_ids in ((first, [1, 2]), (second, [1, 2, 3])):
        assert state.grow(allocation, 0, len(token_ids)) is not None
        state.free(allocation, token_ids, len(token_ids))
    assert state.n_cached == 1
    left_behind(state, [7, 8])
    assert state.n_cached == 2
    assert [state.match_prefix(ids, "").n_rows for ids in ([7, 8, 9], [1, 2, 3])] == [2, 3]


def test_an_allocation_counts_its_static_pages() -> None:
    cross = StateSpec("cross", "static", (0, 1), (("k", 6), ("v", 6)), PAGE_ROWS)
    state = KVCacheManager((*STATES, cross), context=3 * PAGE_ROWS, n_sequences=2, n_pages=3)
    first = state.allocate(TOKENS[:4], static_rows=2 * PAGE_ROWS + 1)
    assert first
    assert state.grow(first, 0, 4) is not None
    assert state.allocate(TOKENS[:4], static_rows=1) is None
    state.free(first, TOKENS[:4], 4)
    assert state.allocate(TOKENS[:4], static_rows=1)
    fewer = KVCacheManager((*STATES, cross), context=3 * PAGE_ROWS, n_sequences=2, n_pages=1)
    assert fewer.allocate(TOKENS[:4], static_rows=3 * PAGE_ROWS), "no source of a whole context fits"
