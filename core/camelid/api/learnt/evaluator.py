"""Greedy answers of a loaded model as a candidate would give them, for the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import Any, TypeVar

from camelid.api.learnt.base_facts import BaseFacts
from camelid.errors import ContextOverflowError, RequestError, TemplateError
from camelid.learning.items import Item, answer_key
from camelid.learning.learner import Learner
from camelid.learning.memory import COARSE, Memory
from camelid.learning.rows import FEWEST_PAST, MIXTURES, MOST_PAST, Contexts
from camelid.learning.space import Space
from camelid.learning.trained.acting import Acting, PromptScope
from camelid.learning.trained.memory_scope import MemoryScope, Near
from camelid.learning.trained.routing import N_NEAREST
from camelid.learning.training import Candidate, Given, Pace, Question, Recalled, Trained
from camelid.requests.output_text import Completion, answer_message

CANDIDATE = "learnt: candidate"  # the name under which a candidate's adapter is loaded
READ_S = 0.2  # of reading prompts, after which a run may wait or end
# To a prompt that no longer fits.
EMPTY = Given(answer={"role": "assistant", "content": ""}, bits=b"", is_whole=False)
T = TypeVar("T")


class LlmEvaluator:
    """A `RunEvaluator` of the base, of memory and of adapters."""

    def __init__(self, facts: BaseFacts) -> None:
        self._facts, self._llm = facts, facts.llm
        self._memory_scope = MemoryScope(facts.side, keeps_all=True)
        self._contexts: dict[tuple[str, str], Contexts | None] = {}
        self._of_base: dict[str, Given] = {}

    def answers(self, candidate: Candidate, questions: Sequence[Question]) -> Iterator[Given]:
        """As `Evaluator.answers`."""
        if isinstance(candidate, Trained):
            acting = self._facts.run(self._loaded(candidate))
            return self._each([self._acted(acting, candidate, question) for question in questions])
        if candidate is None:
            return self._each([self._base(question) for question in questions])
        learner, near = self._facts.run(self._recalling(candidate))
        if near:
            return self._each([self._mixed(learner, near, question) for question in questions])
        return self._each([self._answer(learner, question) for question in questions])

    def scope(self, candidate: Recalled, pace: Pace) -> Near | None:
        """As `RunEvaluator.scope`. All is read that folds of these items need."""
        scope, acting = self._memory_scope, self._memory(candidate).acting
        for item in acting:
            pace.check()
            self._facts.run(self._contexts_of(item))
        # Not `scope.outside`: a correction that all items share may be none of a fold's.
        outside = candidate.past[: -MOST_PAST - 1 : -1] if scope.can_fit else ()
        scope.is_whole = len(outside) < FEWEST_PAST
        while not scope.is_whole:
            pace.check()
            self._facts.run(scope.read(acting, outside, READ_S))
        return self._facts.run(scope.fit(acting, candidate.past, inf))

    async def _contexts_of(self, item: Item) -> Contexts | None:
        """The contexts of an item's answer, computed once."""
        key = Question.of(item.exchange).key, answer_key(item.approved or {})
        if key not in self._contexts:
            side, kernels = self._facts.side, self._facts.kernels
            self._contexts[key] = await side.contexts(item.exchange, item.approved or {}, kernels)
        return self._contexts[key]

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

    async def _is_near(self, scope: PromptScope, question: Question, is_near: bool | None = None) -> bool:
        """True for a question in scope. For a past request that its head was fitted to, `is_near` is the
        decision of a head without it.
        """
        known = await self._facts.of(question)
        if known is None:
            return False
        if is_near is None:
            is_near = scope.passes(known.prefilter_features) and scope.has(known.features)
        return is_near and scope.agrees(known.draft(scope.n_drafted))

    async def _base(self, question: Question) -> Given:
        """The base's answer, computed once. It has no probe: programs with one round differently."""
        if question.key not in self._of_base:
            self._of_base[question.key] = await self._given(question)
        return self._of_base[question.key]

    async def _given(self, question: Question) -> Given:
        try:
            return given(*await self._facts.answered(self._facts.request(question)))
        except (ContextOverflowError, TemplateError):
            return EMPTY

    async def _acted(self, acting: Acting, candidate: Trained, question: Question) -> Given:
        """The answer with an adapter, or the base's out of its scope."""
        if await self._base(question) is EMPTY:
            return EMPTY
        is_near = await self._is_near(acting.scope, question, candidate.left_out.get(question.completion_id))
        request = self._facts.request(question)
        if is_near:
            try:
                adapter = self._llm.running.adapters.select_private(CANDIDATE, request.prompt_ids)
            except RequestError:  # a prompt without the header of an answer: the base's, as it is served
                return await self._base(question)
            request = replace(request, adapter=adapter)
        done, bits = await self._facts.answered(request)
        is_excused = question.completion_id in candidate.excused
        return given(done, bits, in_scope=is_near, is_excused=is_excused)

    async def _gain(self, acting: Acting, item: Item) -> float:
        """0 also for a conversation that no longer fits the model."""
        question = Question.of(item.exchange)
        try:
            if not await self._is_near(acting.scope, question):
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

    async def _recalling(self, candidate: Recalled) -> tuple[Learner, Near | None]:
        """A learner of these items alone, in memory, and the scope of its mixtures; without one, the
        similarity of words decides.
        """
        space, side = Space(self._memory(candidate)), self._facts.side
        space.set_form(candidate.form)
        learner = Learner(space, side)
        if candidate.form not in MIXTURES:
            return learner, None
        for item in space.memory.acting:
            found = await self._contexts_of(item)
            if found:
                space.set_contexts(item, found)
        near = await self._memory_scope.fit(space.memory.acting, candidate.past, inf)
        return learner, near and near.of(candidate.form)

    def _memory(self, candidate: Recalled) -> Memory:
        memory = Memory()
        for item in candidate.items:
            memory.add(item, self._facts.side.vector(item.exchange.question).tobytes())
        return memory

    async def _mixed(self, learner: Learner, near: Near, question: Question) -> Given:
        """The answer with the mixture of the nearest items, or the base's out of memory's scope."""
        asked = learner.asked(list(question.messages), tools_of(question))
        known = await self._facts.of(question)
        is_asked = asked is not None and bool(asked.nearest.within(COARSE))
        left_out = near.left_out(question.completion_id)
        if known is None or not is_asked or not await self._is_near(near.scope, question, left_out):
            return await self._base(question)
        request = self._facts.request(question)
        mixed = learner.mixed_nearest(request, near.nearest(known.features, N_NEAREST))
        done, bits = await self._facts.answered(mixed)
        return given(done, bits, in_scope=mixed.mixer is not None)

    async def _answer(self, learner: Learner, question: Question) -> Given:
        """The answer with memory whose scope is the similarity of words, or the base's."""
        asked = learner.asked(list(question.messages), tools_of(question))
        if asked is None or await self._base(question) is EMPTY:
            return await self._base(question)
        turns = tuple(learner.prompt(asked))
        has_turns = turns != question.messages
        try:
            request = self._facts.request(replace(question, messages=turns))
            request = learner.request(request, asked)
            done, bits = await self._facts.answered(request)
        except (ContextOverflowError, TemplateError):  # the turns make the prompt too long
            return replace(EMPTY, in_scope=has_turns)
        return given(done, bits, in_scope=has_turns or request.mixer is not None)


def given(done: Completion, bits: bytes, **marks: bool) -> Given:
    """A completion as an answer."""
    is_whole = done.finish_reason in ("stop", "tool_calls")
    return Given(answer=answer_message(done), bits=bits, is_whole=is_whole, **marks)


def tools_of(question: Question) -> dict[str, Any]:
    """The options of a question's tools."""
    return {"tools": list(question.tools)} if question.tools else {}
