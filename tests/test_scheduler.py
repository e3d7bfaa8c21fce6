"""What goes into a step: budget, order, capacity, the program that is chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.engine_fakes import GREEDY, PAGE_ROWS, STATES, make_plan, request

from camelid.errors import RequestError
from camelid.plan.step import FROM_ID, FROM_RING, StepLayout, encode_step
from camelid.scheduler import ALL_LOGITS, DECODE, MIXED, Batch, Limits, Scheduler, build_step, program_key
from camelid.sequence import Sequence
from camelid.state import StateManager

LIMITS = Limits(chunk=8, parallel=3)


def scheduler(*prompts: int, all_logits: int = 0, n_sequences: int = 3) -> Scheduler:
    made = Scheduler(StateManager(STATES, context=64, n_sequences=n_sequences), LIMITS)
    for number, n in enumerate(prompts):
        asked = request(range(1, n + 1), all_logits=number < all_logits)
        made.add(Sequence(id=number, request=asked, max_tokens=8))
    return made


def shape(batch: Batch | None) -> tuple[str, list[tuple[int, int, int]]] | None:
    """The program, and (id, rows, outputs) of each sequence."""
    return batch and (batch.program, [(w.sequence.id, w.n_rows, w.n_outputs) for w in batch.work])


def advance(made: Scheduler) -> tuple[str, list[tuple[int, int, int]]] | None:
    batch = made.next_batch()
    for work in batch.work if batch else ():
        work.sequence.submitted(work.n_rows, work.n_outputs)
    return shape(batch)


def test_prompts_share_the_budget_in_order() -> None:
    made = scheduler(5, 9, 2)
    assert advance(made) == (MIXED, [(0, 5, 1), (1, 3, 0)])
    assert advance(made) == (MIXED, [(0, 1, 1), (1, 6, 1), (2, 1, 0)])
    assert advance(made) == (MIXED, [(0, 1, 1), (1, 1, 1), (2, 1, 1)])
    assert advance(made) == (DECODE, [(0, 1, 1), (1, 1, 1), (2, 1, 1)])


def test_prompt_of_one_row_still_takes_the_prompt_program() -> None:
    assert advance(scheduler(1)) == (MIXED, [(0, 1, 1)])


def test_nobody_asks_for_more_than_max_tokens() -> None:
    made = scheduler(2)
    batches = [advance(made) for _ in range(9)]
    assert [batch is None for batch in batches] == [False] * 8 + [True]


def test_waiting_sequences_get_seats_in_order() -> None:
    made = scheduler(1, 1, 1, n_sequences=2)
    assert advance(made) == (MIXED, [(0, 1, 1), (1, 1, 1)])
    first = made.running[0]
    first.n_in_flight = 0
    first.finish("stop")
    made.remove(first)
    assert advance(made) == (MIXED, [(1, 1, 1), (2, 1, 1)])


def test_seat_is_kept_while_a_step_is_in_flight() -> None:
    made = scheduler(1)
    advance(made)
    sequence = made.running[0]
    sequence.finish("cancelled")
    made.remove(sequence)
    assert made.running == [sequence]
    sequence.n_in_flight = 0
    made.remove(sequence)
    assert made.state.is_idle


def test_all_logits_takes_its_own_program_and_turns() -> None:
    made = scheduler(12, 2, all_logits=1)
    assert advance(made) == (ALL_LOGITS, [(0, 8, 8)])
    assert advance(made) == (MIXED, [(1, 2, 1)])
    assert advance(made) == (ALL_LOGITS, [(0, 4, 4)])
    assert advance(made) == (DECODE, [(1, 1, 1)])
    assert advance(made) == (DECODE, [(1, 1, 1)])


def test_rows_know_their_source_place_and_position() -> None:
    made = scheduler(2)
    advance(made)
    batch = made.next_batch()
    assert batch
    step = build_step(batch, made.state, 5)
    (row,) = step.rows
    assert (row.source, row.state_row, row.positions) == (FROM_RING, 2, (2,)), "the host has not read it"
    assert step.outputs == [(0, 0, 3)]
    assert step.sequences[0].groups == ((1, 0, 2), (1, 1, 2))
    assert (step.sampling, step.ordinal) == ([GREEDY.words()], 5)
    made.running[0].token_ids.append(77)
    (row,) = build_step(batch, made.state, 6).rows
    assert (row.source, row.value) == (FROM_ID, 77)


@pytest.mark.parametrize("entry", [DECODE, MIXED])
def test_fullest_steps_fit_their_capacity(entry: str) -> None:
    """Every sequence takes a page in every step: the worst case for table changes."""
    made = scheduler(8, 8, 8)
    plan = make_plan(entry, LIMITS)
    for _ in range(12):
        batch = made.next_batch()
        assert batch
        step = build_step(batch, made.state, 0)
        for work in batch.work:
            work.sequence.submitted(work.n_rows, work.n_outputs)
        if batch.program == entry:
            assert len(encode_step(step, plan.layout)) == 4 * plan.layout.n_words
        if not any(s.can_decode for s in made.running):
            break


def test_every_paged_group_may_take_pages_at_once() -> None:
    """A model of full and windowed layers: each group takes a page where a sequence crosses its end."""
    states = (STATES[0], replace(STATES[0], name="window", kind="window"), STATES[1])
    made = Scheduler(StateManager(states, context=64, n_sequences=3), LIMITS)
    for number in range(3):
        made.add(Sequence(id=number, request=request(range(1, 9)), max_tokens=8))
    for _ in range(12):
        batch = made.next_batch()
        assert batch
        step = build_step(batch, made.state, 0)
        key = program_key(batch.program, LIMITS, PAGE_ROWS, n_paged=2)
        encode_step(step, StepLayout(key.capacity, len(states)))
        for work in batch.work:
            work.sequence.submitted(work.n_rows, work.n_outputs)
        if not any(s.can_decode for s in made.running):
            break


def test_keys_state_capacities() -> None:
    assert str(program_key(DECODE, LIMITS, PAGE_ROWS)) == "decode-r3-s3-o3-u3-c0"
    assert str(program_key(MIXED, LIMITS, PAGE_ROWS)) == "mixed-r8-s3-o3-u5-c0"
    assert str(program_key(ALL_LOGITS, LIMITS, PAGE_ROWS)) == "mixed-r8-s3-o8-u5-c0+all_logits"


@pytest.mark.parametrize(("chunk", "parallel"), [(4, 4), (4, 0), (0, 1)])
def test_limits_that_would_starve_are_refused(chunk: int, parallel: int) -> None:
    with pytest.raises(RequestError, match=f"parallel is {parallel} and chunk {chunk}"):
        Limits(chunk, parallel)
