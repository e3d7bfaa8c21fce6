"""Allocations: the hard limit, page tables, reuse, copies on write, windows, recurrent slots, trash."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.engine_fakes import PAGE_ROWS, STATES

from camelid.backends.base import PoolSize
from camelid.engine.allocation import CacheAllocation
from camelid.engine.kv_cache import CacheUpdate, KVCacheManager

TOKENS = list(range(1, 21))


def manager(
    context: int = 20, n_sequences: int = 2, n_pages: int | None = None, **more: int
) -> KVCacheManager:
    return KVCacheManager(STATES, context=context, n_sequences=n_sequences, n_pages=n_pages, **more)


def allocate_for(state: KVCacheManager, token_ids: Sequence[int] = TOKENS) -> CacheAllocation:
    allocation = state.allocate(token_ids)
    assert allocation is not None
    return allocation


def grown(state: KVCacheManager, allocation: CacheAllocation, first_row: int, n_rows: int) -> CacheUpdate:
    change = state.grow(allocation, first_row, n_rows)
    assert change is not None
    return change


def left_behind(state: KVCacheManager, token_ids: Sequence[int]) -> None:
    """Allocates a sequence, marks all these rows computed, and frees it."""
    allocation = allocate_for(state, token_ids)
    for row in range(allocation.n_cached, len(token_ids), 4):
        end = min(row + 4, len(token_ids))
        grown(state, allocation, row, end)
        state.advance(allocation, end)
        state.retire_rows(allocation, token_ids, end)
    state.free(allocation, token_ids, len(token_ids))


def test_sizes_include_trash_and_every_allocation() -> None:
    assert manager().sizes() == {"kv": PoolSize(2 * 5 + 1, 3, 5), "tokens": PoolSize(3)}


def test_allocations_hold_disjoint_units_and_never_trash() -> None:
    state = manager()
    allocations = [allocate_for(state), allocate_for(state)]
    for allocation in allocations:
        grown(state, allocation, 0, 20)
    held = [unit for allocation in allocations for unit in allocation.pages["kv"]]
    assert sorted(held) == list(range(1, 11))
    assert sorted(allocation.slots["tokens"][0] for allocation in allocations) == [1, 2]
    assert {allocation.table_row for allocation in allocations} == {1, 2}


def test_pages_are_allocated_on_demand_as_table_updates() -> None:
    state = manager()
    allocation = allocate_for(state)
    assert [u[:3] for u in grown(state, allocation, 0, 1).updates] == [(0, allocation.table_row, 0)]
    assert not grown(state, allocation, 1, PAGE_ROWS).updates
    updates = grown(state, allocation, PAGE_ROWS, 2 * PAGE_ROWS + 1).updates
    assert [u[:3] for u in updates] == [(0, allocation.table_row, i) for i in (1, 2)]
    assert [unit for *_, unit in grown(state, allocation, 9, 20).updates] == allocation.pages["kv"][3:]


def test_words_state_table_row_or_slot_and_held_rows() -> None:
    state = manager()
    allocation = allocate_for(state)
    slot = allocation.slots["tokens"][0]
    assert state.words(allocation, 7) == ((allocation.table_row, 0, 7), (slot, slot, 7))


def test_no_more_allocations_than_sequences() -> None:
    state = manager()
    allocations = [state.allocate(TOKENS) for _ in range(3)]
    assert [allocation is None for allocation in allocations] == [False, False, True]


def test_refused_allocation_holds_nothing() -> None:
    state = manager(n_sequences=3, n_pages=4)
    assert state.allocate(TOKENS) is None
    assert state.is_idle


def test_failed_growth_changes_nothing() -> None:
    state = manager(n_pages=5)
    first, second = allocate_for(state, TOKENS[:12]), allocate_for(state, TOKENS[:8])
    grown(state, first, 0, 12)
    grown(state, second, 0, 8)
    before = list(first.pages["kv"])
    assert state.grow(first, 12, 13) is None
    assert first.pages["kv"] == before
    state.free(second, (), 0)
    assert len(grown(state, first, 12, 16).updates) == 1
    state.free(first, (), 0)
    assert state.is_idle


def test_longest_sequence_is_bounded_by_context_and_by_pages() -> None:
    assert manager().max_rows == 20
    assert manager(n_pages=3).max_rows == 3 * PAGE_ROWS


# Reuse


@pytest.mark.parametrize(("n_known", "n_asked", "n_found"), [
    (20, 20, 19), (20, 9, 8), (10, 20, 10), (10, 10, 9), (10, 9, 8), (3, 20, 3), (4, 5, 4), (4, 4, 3),
])  # fmt: skip
def test_rows_of_ended_requests_are_found_except_the_last_token(
    n_known: int, n_asked: int, n_found: int
) -> None:
    """Full pages, and the first rows of the page behind them."""
    state = manager()
    left_behind(state, TOKENS[:n_known])
    assert state.is_idle
    assert state.n_cached == -(-n_known // PAGE_ROWS)
    assert allocate_for(state, TOKENS[:n_asked]).n_cached == n_found


def test_cached_pages_enter_the_table_and_are_not_computed() -> None:
    state = manager()
    left_behind(state, TOKENS[:10])
    allocation = allocate_for(state)
    found = list(allocation.pages["kv"])
    assert (allocation.n_cached, len(found), allocation.is_fresh) == (10, 3, True)
    change = grown(state, allocation, 10, 13)
    assert change.updates == [
        (0, allocation.table_row, i, unit) for i, unit in enumerate(allocation.pages["kv"])
    ]
    assert allocation.pages["kv"][:3] == found, "an unshared page was replaced"
    assert not change.copies


def test_two_sequences_never_write_one_shared_page() -> None:
    state = manager()
    left_behind(state, TOKENS[:10])
    one, other = allocate_for(state), allocate_for(state)
    assert one.pages == other.pages
    shared = one.pages["kv"][2]
    change = grown(state, one, 10, 11)
    assert change.copies == [(0, shared, one.pages["kv"][2], 2)], "the two matching rows were not copied"
    assert change.updates == [(0, one.table_row, i, unit) for i, unit in enumerate(one.pages["kv"])]
    assert not grown(state, other, 10, 11).copies
    assert other.pages["kv"][2] == shared != one.pages["kv"][2]
    for allocation in (one, other):
        state.free(allocation, TOKENS, 11)
    assert state.is_idle


@pytest.mark.parametrize("n_known", [7, 8])
def test_another_end_of_a_page_is_written_to_a_copy(n_known: int) -> None:
    state = manager()
    left_behind(state, TOKENS[:n_known])
    other = [*TOKENS[:6], 98, 99]
    allocation = allocate_for(state, other)
    source = allocation.pages["kv"][1]
    assert allocation.n_cached == 6
    assert grown(state, allocation, 6, 8).copies == [(0, source, allocation.pages["kv"][1], 2)]
    assert source != allocation.pages["kv"][1]
    assert state.match_prefix(TOKENS[:n_known], "").n_rows == n_known
    state.free(allocation, other, 8)
    assert [state.match_prefix(ids, "").n_rows for ids in (TOKENS[:n_known], other)] == [n_known, 8]
    assert state.is_idle


def test_the_source_of_a_copy_is_nobody_elses_before_the_next_step() -> None:
    """A step's copies run side by side: none may write what another reads."""
    state = manager(n_pages=5)
    left_behind(state, TOKENS[:8])
    allocation = allocate_for(state, [*TOKENS[:6], 98, 99, 100])
    source = allocation.pages["kv"][1]
    grown(state, allocation, 6, 8)
    others = allocate_for(state, [201, 202, 203, 204, 205, 206, 207, 208])
    grown(state, others, 0, 8)
    assert source not in others.pages["kv"]
    assert state.grow(others, 8, 9) is None, "the source was given away"
    grown(state, allocation, 8, 8)
    assert grown(state, others, 8, 9).updates[0][3] == source


def test_without_room_for_a_copy_full_pages_alone_are_reused() -> None:
    state = manager(n_sequences=1, n_pages=2)
    left_behind(state, TOKENS[:8])
    allocation = allocate_for(state, [*TOKENS[:6], 98, 99])
    assert (allocation.n_cached, allocation.pages["kv"]) == (4, [1])


def test_a_page_that_only_begins_alike_is_not_forgotten() -> None:
    state = manager()
    left_behind(state, TOKENS[:8])
    state.forget_prefix([*TOKENS[:6], 98, 99], "", PAGE_ROWS)
    assert state.match_prefix(TOKENS[:8], "").n_rows == 8
    state.forget_prefix(TOKENS[:8], "", PAGE_ROWS)
    assert state.match_prefix(TOKENS[:8], "").n_rows == 4


def test_unused_pages_are_evicted_last_pages_first() -> None:
    state = manager(n_sequences=1)
    left_behind(state, TOKENS[:16])
    others = [101, 102, 103, 104, 105, 106]
    left_behind(state, others)
    assert state.n_evicted == 1
    assert state.match_prefix(TOKENS[:16], "").n_rows == 12
    assert state.match_prefix(others, "").n_rows == 6


def test_other_salts_and_uncached_requests_find_nothing() -> None:
    state = manager()
    left_behind(state, TOKENS[:10])
    for more in ({"salt": "other"}, {"reuses": False}):
        allocation = state.allocate(TOKENS, **more)  # type: ignore[arg-type]
        assert allocation
        assert allocation.n_cached == 0


def test_forks_share_until_one_writes() -> None:
    state = manager()
    parent = allocate_for(state, TOKENS[:6])
    grown(state, parent, 0, 6)
    state.advance(parent, 6)
    child = state.fork(parent, 6)
    assert child
    assert child.pages == parent.pages
    assert child.n_cached == 6
    copied = grown(state, parent, 6, 7).copies
    assert [(source, rows) for _, source, _, rows in copied] == [(child.pages["kv"][1], 2)]
    change = grown(state, child, 6, 7)
    assert not change.copies
    assert [u[1:] for u in change.updates] == [
        (child.table_row, i, u) for i, u in enumerate(child.pages["kv"])
    ]
    state.free(parent, TOKENS[:6], 6)
    state.free(child, TOKENS[:6], 6)
    assert state.is_idle


def test_no_fork_without_a_free_allocation() -> None:
    state = manager(n_sequences=1)
    assert state.fork(allocate_for(state), 3) is None


def test_failed_rows_are_not_cached() -> None:
    state = manager()
    allocation = allocate_for(state)
    grown(state, allocation, 0, 20)
    state.free(allocation, TOKENS, 20, keeps=False)
    assert (state.n_cached, state.is_idle) == (0, True)


def test_imported_state_is_found_like_computed_state() -> None:
    state = manager()
    allocation = state.allocate_imported(10, "")
    assert allocation
    assert {name: len(units) for name, units in state.units(allocation).items()} == {"kv": 3}
    state.free(allocation, TOKENS[:10], 10)
    assert state.match_prefix(TOKENS, "").n_rows == 10
    assert manager(n_pages=2).allocate_imported(10, "") is None
