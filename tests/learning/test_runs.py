"""Runs: interrupted, in the background, and deep, on a model of word pairs that really learns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.bigram import Bigrams, BigramTrainer, told
from tests.support.lesson import ASKED, NAME, Lesson, answered, persona, vector

from camelid.learning.background import Background, When
from camelid.learning.items import Exchange, Item, question_of
from camelid.learning.loops import Bounds, Run
from camelid.learning.rows import MEMORY_SCOPE, PastRequest
from camelid.learning.store.lease import Lease
from camelid.learning.store.versions import current, version_of, versions
from camelid.learning.trained.memory_scope import Near
from camelid.learning.training import (
    Candidate,
    Given,
    Interrupted,
    Pace,
    Question,
    Recalled,
    TrainingJob,
)

LOOKS_S = 0.2  # seconds of some 20 looks of a background thread


def test_a_run_stopped_at_any_step_publishes_nothing(tmp_path: Path, model: Bigrams) -> None:
    lesson = Lesson(tmp_path, persona(model), model, BigramTrainer())
    for most in [*range(0, 60, 7), *range(60, 900, 97)]:
        left = iter(range(most))
        pace = Pace(time.monotonic, time.sleep, is_stopped=lambda left=left: next(left, None) is None)
        try:
            run = lesson.run(pace)
        except Interrupted:
            assert (versions(lesson.store), current(lesson.store)) == ([], "base")
        else:
            assert run.version == "v1"
            break
    else:
        pytest.fail("no run came to its end")
    lesson.space.close()


def test_a_run_ends_after_its_seconds_of_work_and_waits_for_a_busy_engine() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    busy = iter([True] * 100 + [False] * 3)
    pace = Pace(lambda: clock[0], sleep, seconds=10.0, is_busy=lambda: next(busy, False))
    assert not pace.ends()
    assert pace.waited == pytest.approx(100 * Pace.WAIT_S)
    assert pace.spent == pytest.approx(0.0)
    clock[0] += 10.1
    with pytest.raises(Interrupted):
        pace.check()


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)  # between two looks


def test_the_background_learns_after_n_items_and_not_beside_a_busy_engine(
    tmp_path: Path, model: Bigrams
) -> None:
    lesson = Lesson(tmp_path, persona(model), model, BigramTrainer())
    runs: list[Run | Exception] = []
    busy = [True]
    when = When(n_items=12, idle_s=3600.0, look_s=0.01)
    loop = Background(lesson.space, lesson.learning.run, lambda: busy[0], when, runs.append)
    time.sleep(LOOKS_S)
    assert (runs, lesson.trainer.jobs) == ([], [])
    busy[0] = False
    until(lambda: runs)
    loop.close()
    assert isinstance(runs[0], Run)
    assert (runs[0].version, current(lesson.store)) == ("v1", "v1")
    again = Background(lesson.space, lesson.learning.run, lambda: False, when, runs.append)
    time.sleep(LOOKS_S)
    again.close()
    assert len(runs) == 1, "nothing new to learn"
    lesson.space.close()


def test_a_run_keeps_the_scope_of_memory(lesson: Lesson) -> None:
    """A run that ends early, too: slow models cannot read hundreds of prompts beside requests."""
    pace = Pace(time.monotonic, time.sleep, is_stopped=lambda: bool(lesson.space.near))
    with pytest.raises(Interrupted):
        lesson.run(pace)
    assert lesson.space.near and lesson.space.near.items == ids_of(lesson.space.memory.acting)
    assert lesson.store.fact(MEMORY_SCOPE) == lesson.space.near.to_text()


def test_a_scope_that_lacks_an_item_is_not_kept(lesson: Lesson) -> None:
    scope = lesson.model.scope

    def lacking(candidate: Recalled, pace: Pace) -> Near:
        return scope(replace(candidate, items=candidate.items[1:]), pace)

    lesson.model.scope = lacking  # type: ignore[method-assign]  # a planted scope
    assert lesson.run().version == "v1"
    assert lesson.space.near is None


def test_the_background_stops_within_a_step(tmp_path: Path, model: Bigrams) -> None:
    class Slow(BigramTrainer):
        def train(self, job: TrainingJob, stop: Callable[[], bool]) -> None:
            while not stop():
                time.sleep(0.001)  # a step

    lesson = Lesson(tmp_path, persona(model), model, Slow())
    loop = Background(lesson.space, lesson.learning.run, lambda: False, When(n_items=1, look_s=0.01))
    time.sleep(LOOKS_S)
    loop.close()
    assert (versions(lesson.store), current(lesson.store)) == ([], "base")
    lesson.space.close()


def test_one_process_trains_a_store(tmp_path: Path) -> None:
    path = tmp_path / "learning.db"
    with Lease(path) as first, Lease(path) as second:
        assert (first, second) == (True, False)
    with Lease(path) as third:
        assert third


def test_a_deep_run_compares_settings(lesson: Lesson) -> None:
    lesson.learning.bounds = Bounds(seconds=60.0)
    run = lesson.learning.deep(Pace(time.monotonic, time.sleep))
    assert run.version == "v1"
    names = [report.name for report in run.reports if report.name.startswith("adapter")]
    assert len(set(names)) == 8
    assert "activated True, rank 16" in "\n".join(names)


def ids_of(items: Sequence[Item]) -> tuple[int, ...]:
    return tuple(item.id for item in items)


def test_runs_distil_memory(lesson: Lesson) -> None:
    """Requests that memory acted on and nobody rated are taught with the answers of memory to them, by items
    that the fold has seen alone; one out of its scope and one that was rated are not.
    """
    asked = ["who are you today", "what is your first name", "what white llama eats in summer", ASKED[0]]
    for i, question in enumerate(asked):
        exchange = Exchange(
            completion_id=f"learnt-{i}", messages=({"role": "user", "content": question},),
            answer=answered("what memory answered then"), answer_ids=(1, 2), is_learnt=True,
        )  # fmt: skip
        lesson.store.add_requests([PastRequest(exchange, vector(question).tobytes())])
    recalled: list[tuple[Item, ...]] = []
    answers = lesson.model.answers

    def watched(candidate: Candidate, questions: Sequence[Question]) -> Iterator[Given]:
        if isinstance(candidate, Recalled) and [question_of(q.messages) for q in questions] == asked[:3]:
            recalled.append(candidate.items)
        return answers(candidate, questions)

    lesson.model.answers = watched  # type: ignore[method-assign]  # a spy
    run = lesson.learning.deep(Pace(time.monotonic, time.sleep))
    assert run.version == "v1"
    assert any("distils False" in report.name for report in run.reports)
    jobs = [job for job in lesson.trainer.jobs if "distils" not in job.settings]
    assert len(jobs) >= 8, "of both kinds, in four folds"
    assert {ids_of(items) for items in recalled} == {ids_of(job.items) for job in jobs}
    for job in jobs:
        assert [item.exchange.question for item in job.distilled] == asked[:2]
        assert all(item.approved == answered(NAME) for item in job.distilled)
        assert all(item.exchange.answer_ids == () for item in job.distilled)
    assert not any(job.distilled for job in lesson.trainer.jobs if job not in jobs)
    assert version_of(lesson.store, "v1").kept == ("learnt-0", "learnt-1")


def test_memory_that_is_wrong_about_most_is_not_distilled(tmp_path: Path, model: Bigrams) -> None:
    """Each correction is of an answer of its own: memory has none of them right."""
    items = [told(model, i, question, f"answer number{i} .") for i, question in enumerate(ASKED)]
    lesson = Lesson(tmp_path, items, model, BigramTrainer())
    exchange = replace(items[0].exchange, completion_id="learnt", is_learnt=True)
    exchange = replace(exchange, messages=({"role": "user", "content": "who are you today"},))
    lesson.store.add_requests([PastRequest(exchange, vector("who are you today").tobytes())])
    run = lesson.run()
    assert (run.version, run.form) == (None, "mix")
    assert lesson.trainer.jobs
    assert not any(job.distilled for job in lesson.trainer.jobs)
    lesson.space.close()
