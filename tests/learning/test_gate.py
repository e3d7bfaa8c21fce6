"""The gate and versions, on a model of word pairs that really learns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import cast

import pytest
from tests.support.bigram import Bigrams, BigramTrainer, told
from tests.support.lesson import (
    ASKED,
    NAME,
    OLD,
    OTHERS,
    TALKS,
    Lesson,
    answered,
    past,
    persona,
    space_of,
    vector,
)

from camelid.learning.gate import Report, compare, folds, held_out
from camelid.learning.items import Exchange, Item
from camelid.learning.loops import Learning
from camelid.learning.retention import kept_requests
from camelid.learning.sign_test import sign_test
from camelid.learning.store.versions import current, last_refusal, undo, use, version_of, versions
from camelid.learning.training import (
    Evaluator,
    Given,
    Pace,
    Question,
    Trained,
)
from camelid.learning.vectors import PythonKernels


def test_sign_test_counts_all_outcomes() -> None:
    """Against the share of all 2^n outcomes with at least so many heads."""
    for n in range(1, 13):
        outcomes = [sum(outcome) for outcome in product((0, 1), repeat=n)]
        for better in range(n + 1):
            want = sum(heads >= better for heads in outcomes) / len(outcomes)
            assert sign_test(better, n - better) == pytest.approx(want, rel=1e-12)
    assert sign_test(0, 0) == 1.0
    assert (sign_test(5, 0) < 0.05, sign_test(4, 0) < 0.05) == (True, False)


def test_folds_part_the_items_by_prompt(model: Bigrams) -> None:
    items = [replace(item, id=i) for i, item in enumerate(persona(model) * 2)]
    parts = folds(items)
    assert sorted(item.id for part in parts for item in part) == list(range(24))
    assert [len(part) for part in parts] == [6, 6, 6, 6]
    prompts = [{item.exchange.question for item in part} for part in parts]
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == 12


def test_an_item_without_a_right_answer_only_warns(model: Bigrams) -> None:
    down = told(model, 1, "who are you", None)
    said, other = down.exchange.answer, {"role": "assistant", "content": "no"}
    assert [compare(down, *pair) for pair in ((said, other), (other, said), (said, said))] == [0, -1, 0]
    right = told(model, 1, "who are you", "no")
    assert [compare(right, *pair) for pair in ((said, other), (other, said), (other, other))] == [1, -1, 0]


def test_a_good_candidate_is_published_and_undo_gives_the_former_bits(lesson: Lesson) -> None:
    before = lesson.bits("base")
    run = lesson.run()
    assert (run.version, run.form, current(lesson.store)) == ("v1", "mix", "v1")
    report = run.reports[-1]
    assert (report.is_accepted, report.held_before, report.n_worse, report.lost) == (True, 0, 0, ())
    assert report.held_after >= 9
    assert report.p < 0.01
    assert report.n_out_of_scope == report.n_kept == len(OTHERS)
    version = version_of(lesson.store, "v1")
    assert (version.config["order"], report.order, report.n_together) == ("first", "first", report.held_after)
    assert 0 < report.n_memory <= report.n_together
    assert [id for id, _ in version.items] == [item.id for item in lesson.space.memory.items]
    assert version.report["why"] == report.why
    changed = [a != b for a, b in zip(before, lesson.bits("v1"), strict=True)]
    assert (sum(changed[: len(ASKED)]), sum(changed[len(ASKED) :])) == (len(ASKED), 0)
    assert undo(lesson.store) == "base"
    assert lesson.bits(current(lesson.store)) == before


def test_no_item_is_judged_by_a_candidate_that_saw_it(lesson: Lesson) -> None:
    asked: list[tuple[set[str], set[str]]] = []
    answers = lesson.model.answers

    def watched(candidate: Trained | None, questions: Sequence[Question]) -> Iterator[Given]:
        if isinstance(candidate, Trained):
            knows = {item.exchange.question for item in lesson.trainer.jobs[-1].items}
            asked.append((knows, {str(q.messages[-1]["content"]) for q in questions}))
        return answers(candidate, questions)

    lesson.model.answers = watched  # type: ignore[method-assign, assignment]
    lesson.run()
    held = [(knows, questions) for knows, questions in asked if questions <= set(ASKED)]
    assert len(held) == 4  # the first kind passes, and no other is tried
    assert all(not knows & questions and len(knows | questions) == 12 for knows, questions in held)
    kept = [exchange.completion_id for job in lesson.trainer.jobs for exchange in job.keep]
    assert kept
    assert all(name.startswith("past-") for name in kept)


@pytest.mark.parametrize("seed", range(3))
def test_random_thumbs_are_refused(tmp_path: Path, model: Bigrams, seed: int) -> None:
    """Corrections to answers of other questions: nothing about a held-out one can be learnt from them."""
    rng = Random(seed)
    answers = [f"answer {rng.randrange(10**6)} number{i} ." for i in range(12)]
    items = [
        told(model, i, question, answer)
        for i, (question, answer) in enumerate(zip(ASKED, answers, strict=True))
    ]
    lesson = Lesson(tmp_path, items, model, BigramTrainer())
    before = lesson.bits("base")
    run = lesson.run()
    assert (run.version, versions(lesson.store)) == (None, [])
    assert "too few differ" in run.reports[-1].why or "no more than chance" in run.reports[-1].why
    assert last_refusal(lesson.store) is not None
    assert lesson.bits(current(lesson.store)) == before
    lesson.space.close()


class Surer:
    """An evaluator whose candidates make every rated answer likelier, and leave `n_left` refused answers."""

    def __init__(self, n_left: int) -> None:
        self.n_left = n_left

    def answers(self, candidate: object, questions: Sequence[Question]) -> Iterator[Given]:
        for question in questions:
            number = int(question.completion_id)
            is_left = candidate is not None and 12 <= number < 12 + self.n_left
            yield Given(answer=answered("another" if is_left else f"answer {number}"), bits=b"")

    def gains(self, _: object, items: Sequence[Item]) -> Iterator[float]:
        return (item.rating * 1.0 for item in items)


@pytest.mark.parametrize(("n_left", "is_accepted"), [(0, False), (4, False), (5, True)])
def test_a_candidate_must_change_answers_not_only_make_them_surer(n_left: int, *, is_accepted: bool) -> None:
    """As 12 wrong thumbs up beside 6 down do: p is 1/4096 for likelihoods, 1/16 for 4 changed answers."""
    items = [
        Item(
            exchange=Exchange(
                completion_id=f"{i}", messages=({"role": "user", "content": f"question {i}"},),
                answer=answered(f"answer {i}"),
            ), rating=1 if i < 12 else -1, id=i + 1,
        )
        for i in range(18)
    ]  # fmt: skip
    trained = Trained(adapter=b"", scope=b"", config={})
    pace = Pace(time.monotonic, time.sleep)
    report = held_out("adapter", items, lambda _: trained, cast("Evaluator", Surer(n_left)), pace).report
    assert (report.n_better, report.n_worse, report.n_answers_better) == (12, 0, n_left)
    assert report.is_accepted == is_accepted
    assert ("answers changed for the better" in report.why) != is_accepted


@pytest.mark.usefixtures("nothing_shared")
def test_a_candidate_that_forgets_is_refused(tmp_path: Path, model: Bigrams) -> None:
    """A trainer whose scope is everything: past requests change their answers."""
    trainer = BigramTrainer(everywhere=[question for question, _ in OTHERS], weight=10**4)
    items = [told(model, i, f"{question} what llama eats", NAME) for i, question in enumerate(ASKED)]
    lesson = Lesson(tmp_path, items, model, trainer)
    run = lesson.run()
    assert run.version is None
    assert "past requests lost their answer, at most 2 may" in run.reports[-1].why
    assert len(run.reports[-1].lost) > 2
    assert all(name.startswith("past-") for name in run.reports[-1].lost)
    lesson.space.close()


@pytest.mark.usefixtures("nothing_shared")
@pytest.mark.parametrize(
    ("words", "is_lost", "form"),
    [("what llama eats in", False, "narrow"), ("what white llama eats in summer", True, "none")],
)
def test_a_form_of_memory_that_forgets_is_not_used(
    tmp_path: Path, model: Bigrams, words: str, is_lost: bool, form: str
) -> None:
    """Feedback that shares words with past requests: a mixture answers them with the name. In a narrower
    scope it may keep them.
    """
    items = [told(model, i, f"{question} {words}", NAME) for i, question in enumerate(ASKED)]
    lesson = Lesson(tmp_path, items, model, BigramTrainer())
    run = lesson.run()
    mixed, narrow, turns = run.reports[:3]
    for found, name, loses in ((mixed, "mix", True), (narrow, "narrow", is_lost)):
        assert found.held_after >= 10
        assert (found.name, found.is_accepted, len(found.lost) > 2) == (f"memory: {name}", not loses, loses)
    assert (turns.held_after, turns.lost, run.form, lesson.space.form) == (0, (), form, form)
    lesson.space.close()


@pytest.mark.parametrize(("n_hues", "n_worse", "form"), [(0, 0, "mix"), (2, 2, "mix"), (4, 4, "none")])
def test_memory_may_lose_two_thumbs_up(tmp_path: Path, n_hues: int, n_worse: int, form: str) -> None:
    """Questions that differ in one word: memory copies another one's answer, and cannot show a gain."""
    hues = [("ship", "crimson"), ("boat", "azure"), ("raft", "olive"), ("canoe", "ivory")][:n_hues]
    talks = [(f"hue of {thing}", f"{hue} it is .") for thing, hue in hues]
    model = Bigrams.taught([*TALKS, *talks])
    liked = [*(ASKED[i] for i in (0, 1, 2, 3, 4, 6)), *(question for question, _ in talks)]
    items = [told(model, i, question, None, 1) for i, question in enumerate(liked)]
    lesson = Lesson(tmp_path, items, model, BigramTrainer())
    run = lesson.run()
    mixed = run.reports[0]
    assert (mixed.held_before, mixed.n_better, mixed.n_worse, mixed.lost) == (len(items), 0, n_worse, ())
    assert (run.form, lesson.space.form) == (form, form)
    lesson.space.close()


def test_changed_bits_out_of_scope_are_refused(lesson: Lesson) -> None:
    """An adapter that acts on every question and says it acts near its own alone."""
    lesson.model.leaks = True
    run = lesson.run()
    assert run.version is None
    assert run.reports[-1].n_changed_bits > 0
    assert "lost their bits" in run.reports[-1].why


def test_a_check_that_is_lost_counts(lesson: Lesson) -> None:
    asked = Question(messages=({"role": "user", "content": "who are you"},))
    lesson.learning.checks = [(asked, lambda answer: answer["content"] == OLD)] * 3
    run = lesson.run()
    assert (run.version, run.reports[-1].lost) == (None, ("check 0", "check 1", "check 2"))
    assert "past requests and checks (the base passes 3 of 3) lost their answer" in run.reports[-1].why


def test_few_items_leave_memory_alone(tmp_path: Path, model: Bigrams) -> None:
    lesson = Lesson(tmp_path, persona(model)[:4], model, BigramTrainer())
    run = lesson.run()
    assert (run.version, lesson.trainer.jobs) == (None, [])
    assert "at least 5 are needed" in run.reports[0].why
    lesson.space.close()


def test_kept_requests_are_the_nearest_and_random_others(
    model: Bigrams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camelid.learning.retention.N_NEAR", 3)
    monkeypatch.setattr("camelid.learning.retention.N_RANDOM", 4)
    item = replace(told(model, 0, OTHERS[7][0], NAME), id=1)
    item = replace(item, exchange=replace(item.exchange, completion_id="past-9"))
    pairs = [(item, vector(OTHERS[7][0]).tobytes())]
    kept = kept_requests(pairs, past(model), PythonKernels())
    names = [request.exchange.completion_id for request, _ in kept]
    assert len(set(names)) == 7
    assert "past-9" not in names  # the feedback is on it
    assert "past-7" in names[:3]
    assert dict(zip(names, (nearest for _, nearest in kept), strict=True))["past-7"] == item
    assert kept == kept_requests(pairs, past(model), PythonKernels())


def test_poison_of_one_user_changes_no_other_space(tmp_path: Path, model: Bigrams) -> None:
    """A flood, contradictions and lies of `mallory`: the versions and bits of `local` stay."""
    good = Lesson(tmp_path, persona(model), model, BigramTrainer())
    good.run()
    use(good.store, "v1")
    before = good.bits("v1")
    other = space_of(tmp_path, "mallory")
    other.quota.per_minute = 10**6
    for i in range(300):
        item = told(model, i, ASKED[i % 12], f"my name is villain{i % 2} .")
        other.feedback(replace(item, source="mallory"), vector(ASKED[i % 12]))
    assert other.store
    Learning(other, other.store, model, BigramTrainer()).run(Pace(time.monotonic, time.sleep))
    good.space.refresh()
    assert (good.bits("v1"), current(good.store)) == (before, "v1")
    assert len(good.space.memory) == 12
    assert other.memory.n_acting == 12  # one item a prompt acts, however many came
    other.close()
    good.space.close()


def test_a_report_is_json() -> None:
    assert Report(name="x").facts()["p"] == 1.0
