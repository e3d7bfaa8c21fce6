"""Windows, recurrent slots and static pages: the units of their allocations."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.engine.test_kv_cache import TOKENS, allocate_for, grown, left_behind
from tests.support.engine_fakes import PAGE_ROWS, STATES

from camelid.backends.base import PoolSize
from camelid.backends.reference.backend import ReferenceBackend
from camelid.engine.allocation import CacheAllocation
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.pool_bounds import CHECKPOINTS
from camelid.errors import OutOfMemoryError
from camelid.plan.plan import StateSpec

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


def test_recurrent_state_has_two_slots_per_allocation_and_some_cached() -> None:
    assert recurrent_manager(3).sizes()["recurrent"] == PoolSize(3 * 3 + CHECKPOINTS + 1)


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
