"""Greedy answers of a loaded model as a candidate would give them, for the gate."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import Any, TypeVar

from camelid.api.learnt.base_facts import BaseFacts
from camelid.errors import CamelidError, ContextOverflowError
from camelid.learning.items import Item
from camelid.learning.learner import Learner
from camelid.learning.memory import Memory
from camelid.learning.space import Space
from camelid.learning.trained.acting import Acting
from camelid.learning.trained.memory_scope import MemoryScope
from camelid.learning.trained.routing import Router
from camelid.learning.training import Candidate, Given, Question, Recalled, Trained
from camelid.requests.output_text import answer_message

CANDIDATE = "learnt: candidate"  # the name under which a candidate's adapter is loaded
T = TypeVar("T")


class LlmEvaluator:
    """An `Evaluator` of the base, of memory and of adapters."""

    def __init__(self, facts: BaseFacts) -> None:
        self._facts, self._llm = facts, facts.llm
        self._memory_scope = MemoryScope(facts.side)

    def answers(self, candidate: Candidate, questions: Sequence[Question]) -> Iterator[Given]:
        """As `Evaluator.answers`."""
        if isinstance(candidate, Trained):
            acting = self._facts.run(self._loaded(candidate))
            return self._each([self._acted(acting, candidate, question) for question in questions])
        learner = self._facts.run(self._recalling(candidate)) if candidate else None
        return self._each([self._answer(learner, question) for question in questions])

    def gains(self, candidate: Trained, items: Sequence[Item]) -> Iterator[float]:
        """As `Evaluator.gains`."""
        acting = self._facts.run(self._loaded(candidate))
        return self._each([self._gain(acting, item) for item in items])

    def _each(self, work: Sequence[Coroutine[Any, Any, T]]) -> Iterator[T]:
        """Results in order, of as many at a time as the model runs together."""
        n = self._llm.running.engine.limits.parallel

        async def part(at: int) -> Sequence[T]:
            return await asyncio.gather(*work[at : at + n])

        try:
            yield from chain.from_iterable(self._facts.run(part(at)) for at in range(0, len(work), n))
        finally:
            for each in work:
                each.close()

    async def _loaded(self, candidate: Trained) -> Acting:
        acting = Acting.of(CANDIDATE, candidate.adapter, candidate.scope, candidate.config)
        await self._llm.running.add_adapter(acting.adapter, is_private=True)
        return acting

    async def _is_near(self, acting: Acting, question: Question, left_out: bool | None = None) -> bool:
        """True for a question in scope; `left_out` is what a head found that has not seen it."""
        known = await self._facts.of(question)
        if known is None:
            return False
        scope, is_near = acting.scope, left_out
        if is_near is None:
            is_near = scope.passes(known.prefilter_features) and scope.has(known.features)
        return is_near and scope.agrees(known.draft(scope.n_drafted))

    async def _acted(self, acting: Acting, candidate: Trained, question: Question) -> Given:
        """The answer with an adapter, or the base's out of its scope."""
        left_out = candidate.left_out.get(question.completion_id)
        try:
            is_near = await self._is_near(acting, question, left_out)
            request = self._facts.request(question)
            if is_near:
                adapter = self._llm.running.adapters.select_private(CANDIDATE, request.prompt_ids)
                request = replace(request, adapter=adapter)
            done, bits = await self._facts.answered(request)
        except CamelidError as error:
            return refused(error)
        return Given(answer=answer_message(done), bits=bits, in_scope=is_near)

    async def _gain(self, acting: Acting, item: Item) -> float:
        """0 also for a conversation that no longer fits the model."""
        question = Question.of(item.exchange)
        try:
            if not await self._is_near(acting, question):
                return 0.0
            prompt = self._facts.request(question).prompt_ids
            adapter = self._llm.running.adapters.select_private(CANDIDATE, prompt)
            ways = (adapter, None)
            after, before = [
                await self._facts.likelihood(item.exchange, item.exchange.answer, way) for way in ways
            ]
        except ContextOverflowError:
            return 0.0
        return after - before

    async def _recalling(self, candidate: Recalled) -> Learner:
        """A learner of these items alone, in memory."""
        space = Space(Memory())
        space.set_form(candidate.form)
        for item in candidate.items:
            vector = self._facts.side.vector(item.exchange.question)
            space.memory.add(item, vector.tobytes())
        side = self._facts.side
        if candidate.form != "mix":
            return Learner(space, side)
        learner, acting = Learner(space, side, Router(side)), space.memory.acting
        while await learner.settle():
            pass
        near = await self._memory_scope.fit(acting, candidate.past, inf)
        space.set_near(near, space.memory.n_changes)
        return learner

    async def _answer(self, learner: Learner | None, question: Question) -> Given:
        """The answer with memory, or the base's."""
        given = {"tools": list(question.tools)} if question.tools else {}
        asked = learner.asked(list(question.messages), given) if learner else None
        try:
            turns = tuple(learner.prompt(asked)) if learner and asked else question.messages
            request = self._facts.request(replace(question, messages=turns))
            if learner and asked:
                request = await learner.request(request, asked, is_at_once=True).routed()
            done, bits = await self._facts.answered(request)
        except CamelidError as error:
            return refused(error)
        in_scope = request.mixer is not None or turns != question.messages
        return Given(answer=answer_message(done), bits=bits, in_scope=in_scope)


def refused(error: CamelidError) -> Given:
    """An empty answer: to a prompt that no longer fits the model."""
    return Given(
        answer={"role": "assistant", "content": ""}, bits=hashlib.sha256(error.message.encode()).digest()
    )
