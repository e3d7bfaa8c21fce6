"""Answers of candidates on a loaded model, for the gate."""

from __future__ import annotations

import pytest

import camelid
from camelid.api.learnt.base_facts import BaseFacts
from camelid.api.learnt.evaluator import LlmEvaluator
from camelid.api.thread import EngineThread
from camelid.learning.items import Exchange, Item
from camelid.learning.training import Question, Recalled


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
