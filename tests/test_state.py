"""Pools: the hard bound, reservations, shared units, page tables, trash."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine_fakes import PAGE_ROWS, STATES, request

from camelid.backends.base import Pool
from camelid.backends.reference.backend import ReferenceBackend
from camelid.errors import OutOfMemoryError, PlanError
from camelid.plan.plan import StateSpec
from camelid.scheduler import Limits, Scheduler, build_step
from camelid.sequence import Sequence
from camelid.state import Seat, StateManager, UnitPool


def manager(context: int = 20, n_sequences: int = 2, n_pages: int | None = None) -> StateManager:
    return StateManager(STATES, context=context, n_sequences=n_sequences, n_pages=n_pages)


def seat_for(state: StateManager, n_rows: int) -> Seat:
    seat = state.open_seat(n_rows)
    assert seat is not None
    return seat


def test_sizes_count_trash_and_cover_every_seat() -> None:
    assert manager().sizes() == {"kv": Pool(2 * 5 + 1, 3, 5), "tokens": Pool(3)}


def test_seats_hold_disjoint_units_and_never_trash() -> None:
    state = manager()
    seats = [seat_for(state, 20), seat_for(state, 20)]
    for seat in seats:
        state.grow(seat, 20)
    for name in ("kv", "tokens"):
        held = [unit for seat in seats for unit in seat.units[name]]
        assert len(set(held)) == len(held)
        assert 0 not in held
    assert {seat.table_row for seat in seats} == {1, 2}


def test_pages_come_as_rows_need_them_and_as_table_changes() -> None:
    state = manager()
    seat = seat_for(state, 20)
    assert [u[:3] for u in state.grow(seat, 1)] == [(0, seat.table_row, 0)]
    assert state.grow(seat, PAGE_ROWS) == []
    assert [u[:3] for u in state.grow(seat, 2 * PAGE_ROWS + 1)] == [(0, seat.table_row, i) for i in (1, 2)]
    assert [unit for *_, unit in state.grow(seat, 20)] == seat.units["kv"][3:]


def test_words_name_table_row_or_slot_and_rows_held() -> None:
    state = manager()
    seat = seat_for(state, 20)
    slot = seat.units["tokens"][0]
    assert state.words(seat, 7) == ((seat.table_row, 0, 7), (slot, slot, 7))


RECURRENT = StateSpec("recurrent", "recurrent", (0, 1), (("conv", 6), ("scan", 8)), 1)


def recurrent_manager(n_sequences: int = 2) -> StateManager:
    return StateManager((*STATES, RECURRENT), context=20, n_sequences=n_sequences)


def recurrent_words(state: StateManager, seat: Seat, held: int) -> tuple[int, int, int]:
    return state.words(seat, held)[2]


def test_recurrent_state_has_two_slots_a_seat_and_no_table() -> None:
    assert recurrent_manager(3).sizes()["recurrent"] == Pool(2 * 3 + 1)


def test_each_step_reads_the_slot_that_the_last_one_wrote() -> None:
    state = recurrent_manager()
    seat = seat_for(state, 20)
    seen: list[tuple[int, int, int]] = []
    for held in (0, 7, 8, 9):
        seen.append(recurrent_words(state, seat, held))
        state.advance(seat)
    reads, writes, helds = zip(*seen, strict=True)
    assert set(reads) == set(writes) == set(seat.units["recurrent"])
    assert all(read != write for read, write, _ in seen)
    assert reads[1:] == writes[:-1]
    assert helds == (0, 7, 8, 9)


def test_a_step_that_was_not_submitted_is_built_again_from_the_same_slots() -> None:
    state = recurrent_manager()
    seat = seat_for(state, 20)
    assert recurrent_words(state, seat, 0) == recurrent_words(state, seat, 0)


def test_seats_share_no_slot_and_give_both_back() -> None:
    state = recurrent_manager()
    seats = [seat_for(state, 20), seat_for(state, 20)]
    slots = [slot for seat in seats for slot in seat.units["recurrent"]]
    assert sorted(slots) == [1, 2, 3, 4]
    for seat in seats:
        state.close_seat(seat)
    assert state.is_idle


def test_steps_that_the_scheduler_builds_take_turns() -> None:
    """Two steps in flight at once: the second reads what the first will write."""
    state = recurrent_manager()
    scheduler = Scheduler(state, Limits(chunk=4, parallel=2))
    scheduler.add(Sequence(id=0, request=request(range(1, 9)), max_tokens=2))
    words: list[tuple[int, int, int]] = []
    for ordinal in range(2):
        batch = scheduler.next_batch()
        assert batch is not None
        words.append(build_step(batch, state, ordinal).sequences[0].groups[2])
        batch.work[0].sequence.submitted(batch.work[0].n_rows, batch.work[0].n_outputs)
    (read, write, held), (next_read, next_write, next_held) = words
    assert (next_read, next_write, held, next_held) == (write, read, 0, 4)


CROSS = StateSpec("cross", "static", (0, 1), (("k", 6), ("v", 6)), PAGE_ROWS)


def cross_manager(n_pages: int | None = None) -> StateManager:
    return StateManager((*STATES, CROSS), context=20, n_sequences=2, n_pages=n_pages)


def seat_with_static(state: StateManager, n_rows: int, static_rows: int) -> Seat:
    seat = state.open_seat(n_rows, static_rows=static_rows)
    assert seat is not None
    return seat


def test_static_state_is_as_large_as_was_stated_and_is_there_from_the_first_step() -> None:
    state = cross_manager()
    assert state.sizes()["cross"] == Pool(2 * 5 + 1, 3, 5)
    seat = seat_with_static(state, 20, static_rows=2 * PAGE_ROWS + 1)
    assert [u[:3] for u in state.grow(seat, 0)] == [(2, seat.table_row, i) for i in range(3)]
    assert {group for group, *_ in state.grow(seat, 20)} == {0}, "it never grows"
    assert len({*seat.units["cross"]}) == 3
    assert not seat.reserved["cross"]


def test_words_of_static_state_name_its_rows_at_any_length() -> None:
    state = cross_manager()
    seat = seat_with_static(state, 20, static_rows=9)
    assert [state.words(seat, held)[0::2] for held in (0, 7)] == [
        ((seat.table_row, 0, held), (seat.table_row, 0, 9)) for held in (0, 7)
    ]


def test_static_rows_are_reserved_and_given_back() -> None:
    state = cross_manager(n_pages=4)
    seat = seat_with_static(state, 1, static_rows=3 * PAGE_ROWS)
    assert state.open_seat(1, static_rows=PAGE_ROWS + 1) is None, "1 of 4 pages is left"
    assert state.open_seat(1, static_rows=PAGE_ROWS) is not None
    state.grow(seat, 1)
    state.close_seat(seat)
    assert state.open_seat(1, static_rows=3 * PAGE_ROWS) is not None


def test_reservation_lets_nobody_in_who_could_run_out() -> None:
    state = manager(n_sequences=3, n_pages=5)
    first = seat_for(state, 12)
    assert state.open_seat(12) is None, "3 of 5 pages are promised, though none is taken"
    second = seat_for(state, 8)
    assert len(state.grow(first, 12)) + len(state.grow(second, 8)) == 5
    state.close_seat(first)
    assert state.open_seat(12) is not None


def test_no_more_seats_than_sequences() -> None:
    state = manager()
    seats = [state.open_seat(1) for _ in range(3)]
    assert [seat is None for seat in seats] == [False, False, True]


def test_refused_seat_keeps_nothing() -> None:
    state = manager(n_sequences=3, n_pages=5)
    assert state.open_seat(24) is None
    assert state.is_idle


def test_closing_gives_back_taken_and_reserved_units() -> None:
    state = manager()
    seat = seat_for(state, 20)
    state.grow(seat, 5)
    assert not state.is_idle
    state.close_seat(seat)
    assert state.is_idle


def test_longest_sequence_is_bounded_by_context_and_by_pages() -> None:
    assert manager().max_rows == 20
    assert manager(n_pages=3).max_rows == 3 * PAGE_ROWS


def test_shared_unit_is_free_when_its_last_holder_lets_go() -> None:
    pool = UnitPool(2)
    assert pool.reserve(1)
    unit = pool.take()
    pool.share(unit)
    pool.drop(unit)
    assert pool.n_free == 1
    pool.drop(unit)
    assert pool.n_free == 2


def test_bookkeeping_errors_are_found_where_they_happen() -> None:
    pool = UnitPool(2)
    with pytest.raises(PlanError, match="nobody had reserved"):
        pool.take()
    with pytest.raises(PlanError, match="nobody holds it"):
        pool.drop(1)


@pytest.mark.parametrize("width", [1 << 28, 1 << 60])
def test_state_that_no_memory_holds_is_an_error_that_says_the_way_out(width: int) -> None:
    """2^50 bytes are more than an address can name, 2^82 more than NumPy counts."""
    state = StateSpec("kv", "paged", (0,), (("k", width),), 16)
    with pytest.raises(OutOfMemoryError, match="use a smaller context") as caught:
        asyncio.run(ReferenceBackend().allocate([state], {"kv": Pool(1 << 16, 5, 256)}))
    assert caught.value.facts["want_bytes"] == width << 22
