"""Answers of candidates on a loaded model, for the gate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from tests.learning.scenarios.persona import persona
from tests.learning.scenarios.retention import past_requests

import camelid
from camelid.api.learnt.base_facts import BaseFacts
from camelid.api.learnt.evaluator import LlmEvaluator
from camelid.api.thread import EngineThread
from camelid.learning.items import Exchange, Item
from camelid.learning.trained.memory_scope import MemoryScope, Near
from camelid.learning.training import Interrupted, Pace, Question, Recalled
from cria.talk import Talk

SAID = {"role": "assistant", "content": "I am cria."}
RIGHT = {"role": "assistant", "content": "My name is Pico."}


@pytest.fixture(scope="module")
def facts() -> Iterator[BaseFacts]:
    with EngineThread() as thread:
        llm = thread.run(camelid.aload("cria", backend="cpu", threads=1, context=512))
        yield BaseFacts(llm, thread.run)
        thread.run(llm.aclose())


@pytest.fixture
def evaluator(facts: BaseFacts) -> LlmEvaluator:
    return LlmEvaluator(facts)


@pytest.fixture
def memory(evaluator: LlmEvaluator) -> Recalled:
    """Four corrections of a name beside 60 past requests."""

    def exchange(id: str, talk: Talk) -> Exchange:
        question = Question(messages=tuple(talk.messages), tools=tuple(talk.tools))
        prompt = evaluator._facts.request(question).prompt_ids
        return Exchange(completion_id=id, messages=question.messages, answer=SAID, prompt_ids=prompt)

    past = tuple(exchange(f"past-{i}", talk) for i, talk in enumerate(past_requests(0, 60)))
    items = [
        Item(exchange=exchange(f"{i}", event.talk), rating=-1, correction=RIGHT, id=i + 1)
        for i, event in enumerate(persona(0).events[:4])
    ]
    return Recalled(items=tuple(items), form="mix", past=past)


def test_a_scope_is_fitted_in_parts_and_ends_with_the_run(
    evaluator: LlmEvaluator, memory: Recalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camelid.api.learnt.evaluator.READ_S", 0.0)
    for n_looks, n_read in ((2, 0), (7, 3)):  # the contexts of four items come before their prompts
        looks = iter([*[False] * n_looks, True])
        pace = Pace(time.monotonic, time.sleep, is_stopped=looks.__next__)
        with pytest.raises(Interrupted):
            evaluator.scope(memory, pace)
        assert len(evaluator._memory_scope._features) == n_read
    assert len(evaluator._contexts) == 4
    near = evaluator.scope(memory, Pace(time.monotonic, time.sleep))
    assert near and near.items == (1, 2, 3, 4)
    few = evaluator.scope(replace(memory, past=memory.past[:40]), Pace(time.monotonic, time.sleep))
    assert few is None, "the similarity of words decides"


def test_a_narrower_scope_is_judged_as_it_acts(
    evaluator: LlmEvaluator, memory: Recalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = MemoryScope.fit

    async def with_nothing_narrow(*given: Any) -> Near | None:
        near = await fit(*given)
        return near and replace(near, narrow=inf)

    monkeypatch.setattr(MemoryScope, "fit", with_nothing_narrow)
    questions = [Question.of(item.exchange) for item in memory.items]
    (mixed, *_), (narrow, *_) = (
        list(evaluator.answers(replace(memory, form=form), questions)) for form in ("mix", "narrow")
    )
    assert (mixed.in_scope, mixed.answer["content"]) == (True, RIGHT["content"])
    assert (narrow.in_scope, narrow.answer["content"]) != (True, RIGHT["content"])
    assert narrow == next(evaluator.answers(None, questions))


def asked_of(text: str) -> Question:
    return Question(messages=({"role": "user", "content": text},))


def test_memory_of_a_model_without_features_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the similarity of words. A prompt beyond the context is out of every scope."""
    monkeypatch.setattr("camelid.learning.model_side.has_features", lambda _: False)
    with EngineThread() as thread:
        llm = thread.run(camelid.aload("cria", backend="cpu", threads=1, context=512))
        evaluator = LlmEvaluator(BaseFacts(llm, thread.run))
        questions = [asked_of(text) for text in ("Who are you?", "Hi", "word " * 600)]
        base = list(evaluator.answers(None, questions))
        assert [bool(given.answer["content"]) for given in base] == [True, True, False]
        prompt = llm.builder.request([dict(questions[0].messages[0])], {}).prompt_ids
        exchange = Exchange(
            completion_id="c", messages=questions[0].messages, answer=base[0].answer, prompt_ids=prompt
        )
        right = {"role": "assistant", "content": "My name is Pico."}
        item = Item(exchange=exchange, rating=-1, correction=right, id=1)
        for form in ("mix", "turns"):
            found = list(evaluator.answers(Recalled(items=(item,), form=form), questions))
            assert [given.in_scope for given in found] == [True, False, False]
            assert found[0].bits != base[0].bits
            assert [given.bits for given in found[1:]] == [given.bits for given in base[1:]]
        thread.run(llm.aclose())
