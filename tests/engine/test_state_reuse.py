"""What a seat needs room for: copies, static pages; and what takes no room: tails that nobody finds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.engine_fakes import PAGE_ROWS, STATES

from camelid.engine.seat import Seat
from camelid.engine.state import StateManager
from camelid.plan.plan import StateSpec

TOKENS = list(range(1, 21))


def seat_for(state: StateManager, token_ids: Sequence[int]) -> Seat:
    seat = state.open_seat(token_ids)
    assert seat is not None
    return seat


def left_behind(state: StateManager, token_ids: Sequence[int]) -> None:
    """A sequence came, computed all these rows in one step, and went."""
    seat = seat_for(state, token_ids)
    assert state.grow(seat, seat.n_cached, len(token_ids)) is not None
    state.advance(seat, len(token_ids))
    state.settle(seat, token_ids, len(token_ids))
    state.close_seat(seat, token_ids, len(token_ids))


@pytest.mark.parametrize(("n_pages", "has_room"), [(3, False), (4, True)])
def test_a_seat_needs_room_for_the_copy_of_a_page_that_another_holds(n_pages: int, has_room: bool) -> None:
    """Two full pages and one that is not are found; who comes second cannot go on writing to that one."""
    state = StateManager(STATES, context=20, n_sequences=2, n_pages=n_pages)
    left_behind(state, TOKENS[:10])
    first = seat_for(state, TOKENS[:12])
    assert first.n_cached == 10
    second = state.open_seat(TOKENS[:12])
    assert (second is not None) == has_room
    if second:
        change = state.grow(second, 10, 12)
        assert change and [copy[3] for copy in change.copies] == [2]


def test_a_tail_that_another_took_the_place_of_is_free_at_once() -> None:
    """It could not be found any longer, and would take the room of what can."""
    state = StateManager(STATES, context=20, n_sequences=2)
    left_behind(state, [1, 2, 3])
    left_behind(state, [7, 8])
    assert state.n_cached == 1
    assert state.find([7, 8, 9], "").n_rows == 2


def test_a_seat_needs_room_for_its_static_pages() -> None:
    cross = StateSpec("cross", "static", (0, 1), (("k", 6), ("v", 6)), PAGE_ROWS)
    state = StateManager((*STATES, cross), context=20, n_sequences=2, n_pages=3)
    first = state.open_seat(TOKENS[:4], static_rows=2 * PAGE_ROWS + 1)
    assert first
    assert state.grow(first, 0, 4) is not None
    assert state.open_seat(TOKENS[:4], static_rows=1) is None
    state.close_seat(first, TOKENS[:4], 4)
    assert state.open_seat(TOKENS[:4], static_rows=1)
