"""Composition of a step: budget, order, capacity, choice of program."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.engine_fakes import GREEDY, PAGE_ROWS, STATES, VOCAB, make_plan, request

from camelid.engine.batch import Batch, build_step
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.programs import ALL_LOGITS, DECODE, MIXED, VERIFY, Limits, program_key
from camelid.engine.request import Request
from camelid.engine.scheduler import Scheduler
from camelid.engine.sequence import Sequence
from camelid.errors import RequestError
from camelid.plan.step import FROM_ID, FROM_RING, Step, StepLayout, encode_step

LIMITS = Limits(chunk=8, parallel=3, context=64)


def scheduler(*prompts: int, all_logits: int = 0, n_sequences: int = 3) -> Scheduler:
    made = Scheduler(KVCacheManager(STATES, context=64, n_sequences=n_sequences), LIMITS)
    for number, n in enumerate(prompts):
        asked = request(range(1, n + 1), all_logits=number < all_logits)
        made.add(sequence(number, asked))
    return made


def sequence(number: int, asked: Request) -> Sequence:
    """A sequence of a request for 8 tokens."""
    return Sequence(id=number, request=asked, vocab_size=VOCAB, max_tokens=8, limit=asked.n_prompt + 8)


def shape(batch: Batch | None) -> tuple[str, list[tuple[int, int, int]]] | None:
    """The program, and (id, rows, outputs) of each sequence."""
    return batch and (batch.program, [(w.sequence.id, w.n_rows, w.n_outputs) for w in batch.scheduled])


def advance(made: Scheduler) -> tuple[str, list[tuple[int, int, int]]] | None:
    made.admit()
    batch = made.next_batch()
    if batch:
        submit(made, batch)
    return shape(batch)


def submit(made: Scheduler, batch: Batch, ordinal: int = 0) -> Step:
    """Builds the batch's step, in flight from then on."""
    step = build_step(batch, made.state, ordinal)
    for work in batch.scheduled:
        work.sequence.submitted(work.n_rows, work.n_outputs)
    return step


def test_prompts_share_the_budget_in_order() -> None:
    made = scheduler(5, 9, 2)
    assert advance(made) == (MIXED, [(0, 5, 1), (1, 3, 0)])
    assert advance(made) == (MIXED, [(0, 1, 1), (1, 6, 1), (2, 1, 0)])
    assert advance(made) == (MIXED, [(0, 1, 1), (1, 1, 1), (2, 1, 1)])
    assert advance(made) == (DECODE, [(0, 1, 1), (1, 1, 1), (2, 1, 1)])


def test_prompt_of_one_row_uses_the_prompt_program() -> None:
    assert advance(scheduler(1)) == (MIXED, [(0, 1, 1)])


def test_no_rows_beyond_max_tokens() -> None:
    made = scheduler(2)
    batches = [advance(made) for _ in range(9)]
    assert [batch is None for batch in batches] == [False] * 8 + [True]


def test_waiting_sequences_get_allocations_in_order() -> None:
    made = scheduler(1, 1, 1, n_sequences=2)
    assert advance(made) == (MIXED, [(0, 1, 1), (1, 1, 1)])
    first = made.running[0]
    first.n_in_flight = 0
    first.finish("stop")
    made.remove(first)
    assert advance(made) == (MIXED, [(1, 1, 1), (2, 1, 1)])


def test_allocation_is_kept_while_a_step_is_in_flight() -> None:
    made = scheduler(1)
    advance(made)
    sequence = made.running[0]
    sequence.finish("cancelled")
    made.remove(sequence)
    assert made.running == [sequence]
    sequence.n_in_flight = 0
    made.remove(sequence)
    assert made.state.is_idle


def test_all_logits_has_its_own_program_and_turns() -> None:
    made = scheduler(12, 2, all_logits=1)
    assert advance(made) == (ALL_LOGITS, [(0, 8, 8)])
    assert advance(made) == (MIXED, [(1, 2, 1)])
    assert advance(made) == (ALL_LOGITS, [(0, 4, 4)])
    assert advance(made) == (DECODE, [(1, 1, 1)])
    assert advance(made) == (DECODE, [(1, 1, 1)])


def test_rows_state_their_source_place_and_position() -> None:
    made = scheduler(2)
    advance(made)
    batch = made.next_batch()
    assert batch
    step = build_step(batch, made.state, 5)
    (row,) = step.rows
    assert (row.source, row.state_row, row.positions) == (FROM_RING, 2, (2,)), "the host has not read this id"
    assert step.outputs == [(0, 0, 3)]
    assert step.sequences[0].groups == ((1, 0, 2), (1, 1, 2))
    assert (step.sampling, step.ordinal) == ([GREEDY.words()], 5)
    made.running[0].token_ids.append(77)
    (row,) = build_step(batch, made.state, 6).rows
    assert (row.source, row.value) == (FROM_ID, 77)


@pytest.mark.parametrize("entry", [DECODE, MIXED])
def test_fullest_steps_fit_their_capacity(entry: str) -> None:
    """Every sequence allocates a page in the same step: the worst case for page-table updates."""
    made = scheduler(2, 2, 2)
    plan, fullest = make_plan(entry, LIMITS), 0
    made.admit()
    for _ in range(12):
        batch = made.next_batch()
        assert batch
        step = submit(made, batch)
        if batch.program == entry:
            assert len(encode_step(step, plan.layout)) == 4 * plan.layout.n_words
            fullest = max(fullest, len(step.updates))
        if not any(s.can_decode for s in made.running):
            break
    assert fullest == 3


def test_every_paged_group_may_allocate_pages_at_once() -> None:
    """A model of full and windowed layers: each group allocates a page where a sequence crosses a
    page end.
    """
    states = (STATES[0], replace(STATES[0], name="window", kind="window"), STATES[1])
    made = Scheduler(KVCacheManager(states, context=64, n_sequences=3), LIMITS)
    for number in range(3):
        made.add(sequence(number, request(range(1, 3), reuses=False)))
    made.admit()
    fullest = {MIXED: 0, DECODE: 0}
    for _ in range(12):
        batch = made.next_batch()
        assert batch
        step = submit(made, batch)
        key = program_key(batch.program, LIMITS, PAGE_ROWS, n_paged=2)
        encode_step(step, StepLayout(key.capacity, len(states)))
        fullest[batch.program] = max(fullest[batch.program], len(step.updates))
        if not any(s.can_decode for s in made.running):
            break
    assert fullest == {MIXED: 6, DECODE: 6}


def test_keys_state_capacities() -> None:
    """Except decode, programs have capacity for the page table of a whole context: here 16 pages."""
    assert str(program_key(DECODE, LIMITS, PAGE_ROWS)) == "decode-r3-s3-o3-u3-c3-b48"
    assert str(program_key(MIXED, LIMITS, PAGE_ROWS)) == "mixed-r8-s3-o3-u21-c3-b48"
    assert str(program_key(ALL_LOGITS, LIMITS, PAGE_ROWS)) == "mixed-r8-s3-o8-u21-c3-b48+all_logits"
    assert str(program_key(VERIFY, LIMITS, PAGE_ROWS)) == "mixed-r27-s3-o27-u26-c3-b48"


@pytest.mark.parametrize(("chunk", "parallel"), [(4, 5), (4, 0), (0, 1)])
def test_limits_that_starve_requests_are_refused(chunk: int, parallel: int) -> None:
    with pytest.raises(RequestError, match=f"parallel is {parallel} and chunk {chunk}"):
        Limits(chunk, parallel)


def test_higher_priority_goes_first_and_preempts_a_lower_one() -> None:
    made = scheduler(3, n_sequences=1)
    assert advance(made) == (MIXED, [(0, 3, 1)])
    low, high = made.running[0], sequence(1, request([5, 6], priority=1))
    made.add(high)
    made.admit()
    assert made.next_batch() is None, "a sequence with a step in flight was preempted"
    low.retired(3, 1)
    made.requeue_if_preempted(low)
    assert advance(made) == (MIXED, [(1, 2, 1)])
    assert [s.id for s in made.waiting] == [0]
    assert made.n_preempted == 1


def test_a_refused_request_is_not_retried_before_units_are_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = scheduler(3, 3, n_sequences=1)
    asked: list[int] = []
    real = made.state.allocate

    def allocate(token_ids: list[int], **more: Any) -> Any:
        asked.append(len(token_ids))
        return real(token_ids, **more)

    monkeypatch.setattr(made.state, "allocate", allocate)
    for _ in range(4):
        advance(made)
    assert len(asked) == 2, "a refused request asked again"
    first = made.running[0]
    first.n_in_flight = 0
    first.finish("stop")
    made.remove(first)
    advance(made)
    assert len(asked) == 3
    assert [s.id for s in made.running] == [1]


def test_a_new_request_of_higher_priority_is_not_preempted_first() -> None:
    made = scheduler(2, 2)
    advance(made)
    made.add(sequence(2, request([5, 6], priority=1)))
    made.admit()
    assert [s.id for s in made.running] == [2, 0, 1]


def test_each_allocation_resets_the_cached_rows() -> None:
    s = sequence(0, request(range(1, 9)))
    for n in (4, 0, 7):
        allocation: Any = SimpleNamespace(n_cached=n)
        s.attach(allocation)
        assert (s.n_hit_rows, s.n_rows, s.n_retired) == (n, n, n)
        s.detach()


def test_equal_priority_preempts_no_sequence() -> None:
    made = scheduler(3, 3, n_sequences=1)
    advance(made)
    advance(made)
    assert made.n_preempted == 0
    assert [s.id for s in made.waiting] == [1]


def test_without_units_the_last_sequence_is_preempted_and_waits() -> None:
    """Two prompts of a page each in three pages: both need a second page for their fifth row."""
    made = Scheduler(KVCacheManager(STATES, context=16, n_sequences=2, n_pages=3), LIMITS)
    for number in range(2):
        made.add(sequence(number, request(range(10 * number + 1, 10 * number + PAGE_ROWS + 1))))
    assert advance(made) == (MIXED, [(0, 4, 1), (1, 4, 1)])
    assert advance(made) == (DECODE, [(0, 1, 1)]), "there is no unit for the second sequence's page"
    second = next(s for s in made.running if s.id == 1)
    assert not second.is_preempted, "a sequence with a step in flight, which may end it, was preempted"
    second.retired(4, 1)
    second.accept(15, 0.0)
    assert shape(made.next_batch()) == (DECODE, [(0, 1, 1)])
    assert [s.id for s in made.waiting] == [1]
    assert (second.n_rows, second.allocation) == (0, None)


def test_an_atomic_prompt_is_not_split() -> None:
    made = scheduler(5)
    made.add(sequence(1, request(range(1, 7), is_atomic=True)))
    assert advance(made) == (MIXED, [(0, 5, 1)]), "an atomic prompt of six rows was split into three rows"
    assert advance(made) == (MIXED, [(0, 1, 1), (1, 6, 1)])


def test_page_tables_that_do_not_fit_a_step_wait_for_the_next() -> None:
    made = Scheduler(KVCacheManager(STATES, context=64, n_sequences=3), LIMITS)
    first = sequence(0, request(range(1, 57)))
    made.add(first)
    while not first.n_retired or first.n_prefill:
        made.admit()
        batch = made.next_batch()
        assert batch
        submit(made, batch)
        first.retired(batch.scheduled[0].n_rows, batch.scheduled[0].n_outputs)
        assert first.allocation
        made.state.retire_rows(first.allocation, first.token_ids, first.n_valid)
    first.accept(57, 0.0)
    for number in (1, 2):
        made.add(sequence(number, request([*range(1, 57), 99])))
    batch = (made.admit(), made.next_batch())[1]
    assert batch
    assert [work.sequence.id for work in batch.scheduled] == [0, 1], "14 cached pages need updates, 21 fit"
    submit(made, batch)
    assert shape(made.next_batch()) == (MIXED, [(0, 1, 1), (1, 1, 1), (2, 1, 1)])


def test_drafts_are_rows_with_outputs_of_their_own() -> None:
    made = scheduler(2)
    advance(made)
    s = made.running[0]
    s.retired(2, 1)
    s.accept(70, 0.0)
    s.drafts = (71, 72)
    batch = made.next_batch()
    assert batch
    assert shape(batch) == (VERIFY, [(0, 3, 3)])
    step = submit(made, batch)
    assert [(row.source, row.value, row.state_row) for row in step.rows] == [
        (FROM_ID, 70, 2), (FROM_ID, 71, 3), (FROM_ID, 72, 4)
    ]  # fmt: skip
    assert step.outputs == [(0, 0, 3), (1, 0, 4), (2, 0, 5)]
    s.retired(3, 3)
    made.preempt(s)
    assert (s.drafts, s.allocation) == ((), None), "drafts outlived the eviction of their rows"
