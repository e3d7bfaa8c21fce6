"""Allocations: the hard limit, page tables, reuse, copies on write, windows, recurrent slots, trash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.engine_fakes import PAGE_ROWS, STATES

from camelid.backends.base import PoolSize
from camelid.backends.reference.backend import ReferenceBackend
from camelid.engine.allocation import CacheAllocation
from camelid.engine.kv_cache import CacheUpdate, KVCacheManager
from camelid.errors import OutOfMemoryError
from camelid.plan.plan import StateSpec

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
    """Full pages, and the rows of the partial page. A page is never reused in part."""
    state = manager()
    left_behind(state, TOKENS[:n_known])
    assert state.is_idle
    assert state.n_cached == -(-n_known // PAGE_ROWS)
    allocation = allocate_for(state, TOKENS[:n_asked])
    whole = n_found // PAGE_ROWS * PAGE_ROWS
    has_tail = n_known % PAGE_ROWS and n_known // PAGE_ROWS * PAGE_ROWS == whole
    assert allocation.n_cached == (n_found if has_tail else whole)


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
    assert (0, one.table_row, 2, one.pages["kv"][2]) in change.updates
    assert not grown(state, other, 10, 11).copies
    assert other.pages["kv"][2] == shared != one.pages["kv"][2]
    for allocation in (one, other):
        state.free(allocation, TOKENS, 11)
    assert state.is_idle


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


# Windows

WINDOW = StateSpec("window", "window", (1,), (("k", 1),), PAGE_ROWS, window=6)


def window_manager(context: int = 64, n_sequences: int = 2, chunk: int = 4) -> KVCacheManager:
    return KVCacheManager((*STATES, WINDOW), context=context, n_sequences=n_sequences, chunk=chunk)


def test_a_window_holds_only_its_own_and_one_steps_units() -> None:
    assert window_manager().sizes()["window"].units == 2 * (3 + 2) + 1
    assert window_manager(context=8).sizes()["window"].units == 2 * 2 + 1


def test_pages_outside_the_window_are_freed_and_reported() -> None:
    state = window_manager(n_sequences=1)
    tokens = list(range(1, 65))
    allocation = allocate_for(state, tokens)
    for row in range(0, 64, 4):
        grown(state, allocation, row, row + 4)
        state.retire_rows(allocation, tokens, row + 4)
        first_needed = max(row + 4 - WINDOW.window + 1, 0)
        held = [i for i, unit in enumerate(allocation.pages["window"]) if unit]
        assert held[0] == first_needed // PAGE_ROWS
        assert state.words(allocation, row + 4)[2] == (allocation.table_row, held[0] * PAGE_ROWS, row + 4)
    assert len(allocation.pages["kv"]) == 16
    state.free(allocation, tokens, 64)
    assert state.is_idle


def test_a_prefix_is_found_only_with_its_windows_pages() -> None:
    state = window_manager(n_sequences=1)
    tokens = list(range(1, 65))
    left_behind(state, tokens[:30])
    hit = state.match_prefix(tokens, "")
    assert hit.n_rows == 30
    assert [i for i, unit in enumerate(hit.units["window"]) if unit] == [6, 7], "rows 25 .. 29 and later"
    left_behind(state, [101, *tokens[:15]])  # evicts window pages that no sequence holds
    assert state.match_prefix(tokens, "").n_rows < 30


# Recurrent slots

RECURRENT = StateSpec("recurrent", "recurrent", (0, 1), (("conv", 6), ("scan", 8)), 1)


def recurrent_manager(n_sequences: int = 2, **more: int) -> KVCacheManager:
    return KVCacheManager((*STATES, RECURRENT), context=20, n_sequences=n_sequences, **more)


def recurrent_words(state: KVCacheManager, allocation: CacheAllocation, held: int) -> tuple[int, int, int]:
    return state.words(allocation, held)[2]


def test_recurrent_state_has_two_slots_per_allocation_and_one_cached() -> None:
    assert recurrent_manager(3).sizes()["recurrent"] == PoolSize(3 * 3 + 1)


def test_each_step_reads_the_slot_that_the_previous_step_wrote() -> None:
    state = recurrent_manager()
    allocation = allocate_for(state)
    seen: list[tuple[int, int, int]] = []
    for held in (0, 7, 8, 9):
        grown(state, allocation, held, held + 1)
        seen.append(recurrent_words(state, allocation, held))
        assert recurrent_words(state, allocation, held) == seen[-1], (
            "an unsubmitted step is not rebuilt alike"
        )
        state.advance(allocation, held + 1)
    reads, writes, helds = zip(*seen, strict=True)
    assert all(read != write for read, write, _ in seen)
    assert reads[1:] == writes[:-1]
    assert helds == (0, 7, 8, 9)


def test_an_undone_step_is_repeated_from_its_initial_slot() -> None:
    state = recurrent_manager()
    allocation = allocate_for(state)
    words = recurrent_words(state, allocation, 0)
    state.advance(allocation, 5)
    state.rollback(allocation)
    assert recurrent_words(state, allocation, 0) == words


def test_recurrent_prefixes_are_found_at_step_ends_only() -> None:
    state = recurrent_manager()
    left_behind(state, TOKENS[:10])
    assert state.match_prefix(TOKENS, "").n_rows == 10
    assert state.match_prefix(TOKENS[:9], "").n_rows == 8, "the slot of the previous step was not found"
    assert state.match_prefix(TOKENS[:7], "").n_rows == 0
    allocation = allocate_for(state)
    assert allocation.n_cached == 10
    start = allocation.read_slot("recurrent")
    other = allocate_for(state)
    for _ in range(3):
        grown(state, allocation, 10, 11)
        assert allocation.write_slot("recurrent") not in other.slots["recurrent"]
        state.advance(allocation, 11)
    assert other.read_slot("recurrent") == start, "the shared initial slot was overwritten"
    state.free(allocation, TOKENS, 10)
    state.free(other, TOKENS, 10)
    assert state.is_idle


def test_recurrent_prefixes_need_a_slot_of_every_group() -> None:
    other = replace(RECURRENT, name="other")
    state = KVCacheManager((*STATES, RECURRENT, other), context=20, n_sequences=2)
    left_behind(state, TOKENS[:10])
    assert state.match_prefix(TOKENS, "").n_rows == 10
    state._reuse.invalidate("other", state.match_prefix(TOKENS, "").units["other"][0])  # type: ignore[reportPrivateUsage]
    assert state.match_prefix(TOKENS, "").n_rows < 10


# Static pages

CROSS = StateSpec("cross", "static", (0, 1), (("k", 6), ("v", 6)), PAGE_ROWS)


def cross_manager(n_pages: int | None = None) -> KVCacheManager:
    return KVCacheManager((*STATES, CROSS), context=20, n_sequences=2, n_pages=n_pages)


def allocate_with_static(state: KVCacheManager, n_rows: int, static_rows: int) -> CacheAllocation:
    allocation = state.allocate(TOKENS[:n_rows], static_rows=static_rows)
    assert allocation is not None
    return allocation


def test_static_state_is_allocated_whole_at_the_first_step() -> None:
    state = cross_manager()
    assert state.sizes()["cross"] == PoolSize(2 * 5 + 1, 3, 5)
    allocation = allocate_with_static(state, 20, static_rows=2 * PAGE_ROWS + 1)
    updates = grown(state, allocation, 0, 1).updates
    assert [u[:3] for u in updates if u[0] == 2] == [(2, allocation.table_row, i) for i in range(3)]
    assert {group for group, *_ in grown(state, allocation, 1, 20).updates} == {0}, "static state grew"
    assert len({*allocation.pages["cross"]}) == 3


def test_words_of_static_state_state_its_rows_at_any_length() -> None:
    state = cross_manager()
    allocation = allocate_with_static(state, 20, static_rows=9)
    assert [state.words(allocation, held)[0::2] for held in (0, 7)] == [
        ((allocation.table_row, 0, held), (allocation.table_row, 0, 9)) for held in (0, 7)
    ]


def test_state_of_other_inputs_than_tokens_is_never_cached() -> None:
    state = cross_manager()
    allocation = allocate_with_static(state, 20, static_rows=9)
    grown(state, allocation, 0, 20)
    state.free(allocation, TOKENS, 20)
    assert state.is_idle
    assert state.match_prefix(TOKENS, "").n_rows == 0


@pytest.mark.parametrize("width", [1 << 28, 1 << 60])
def test_state_beyond_memory_is_an_error_with_the_way_out(width: int) -> None:
    """2^50 bytes exceed the address space, 2^82 exceed NumPy's sizes."""
    state = StateSpec("kv", "paged", (0,), (("k", width),), 16)
    with pytest.raises(OutOfMemoryError, match="use a smaller context") as caught:
        asyncio.run(ReferenceBackend().allocate([state], {"kv": PoolSize(1 << 16, 5, 256)}))
    assert caught.value.facts["want_bytes"] == width << 22
