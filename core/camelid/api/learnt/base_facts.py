"""Answers and features of a loaded base model, for training from feedback and for the gate."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from camelid.api.learning import side_of
from camelid.api.llm import LLM
from camelid.backends.base import OpenSpec
from camelid.backends.registry import open_backend, processor_name
from camelid.engine.adapters import RequestAdapter
from camelid.engine.request import Request
from camelid.errors import ContextOverflowError, TemplateError
from camelid.learning.items import Exchange, Item, Message, question_of
from camelid.learning.model_side import GREEDY, PRIORITY, EngineSide, Sketcher
from camelid.learning.trained.acting import pooled, prefilter_features
from camelid.learning.trained.recipe import Known
from camelid.learning.training import Interrupted, Question
from camelid.learning.vectors import Kernels, fast_kernels
from camelid.model.adapter import Adapter
from camelid.requests.output_text import Completion, answer_message
from camelid.training.examples import Example
from camelid.training.settings import TrainingSettings
from camelid.training.train import Training, train

MOST_TOKENS = 256  # of an answer
OPTIONS: dict[str, Any] = {"temperature": 0.0, "seed": 0, "priority": PRIORITY, "overflow": "stop"}
Run = Callable[[Coroutine[Any, Any, Any]], Any]  # runs a coroutine on the model's event loop


@dataclass(frozen=True)
class BaseFacts:
    """A `recipe.Base` on a loaded model; what is known of a question is kept. `threads` train."""

    llm: LLM
    run: Run
    threads: int | None = 1
    kernels: Kernels = field(default_factory=fast_kernels)
    _known: dict[str, Known | None] = field(default_factory=dict[str, Known | None])

    @cached_property
    def side(self) -> EngineSide:
        """The model, as memory sees it."""
        return side_of(self.llm.running, self.llm.builder, self.llm.asubmit)

    @property
    def invocation(self) -> tuple[int, ...]:
        """As `Base.invocation`."""
        return self.side.invocation

    def known(self, questions: Sequence[Question], stop: Callable[[], bool]) -> list[Known | None]:
        """As `Base.known`."""
        fresh = {question.key: question for question in questions if question.key not in self._known}
        waiting, n = list(fresh.values()), self.llm.running.engine.limits.parallel
        for at in range(0, len(waiting), n):
            if stop():
                raise Interrupted
            self.run(self._learn(waiting[at : at + n]))
        return [self._known[question.key] for question in questions]

    async def _learn(self, questions: Sequence[Question]) -> None:
        await asyncio.gather(*map(self.of, questions))

    async def of(self, question: Question) -> Known | None:
        """Prompt, features and answer of a question; None for one that no longer fits the model."""
        if question.key not in self._known:
            self._known[question.key] = await self._ask(question)
        return self._known[question.key]

    async def _ask(self, question: Question) -> Known | None:
        try:
            request = self.request(question)
            features = pooled(await self.side.features(request.prompt_ids))
            sketcher = Sketcher(kernels=self.kernels)
            done, bits = await self.answered(replace(request, probe=sketcher))
        except (ContextOverflowError, TemplateError):
            return None
        ids = tuple(done.token_ids)
        ends = self._ends if done.finish_reason in ("stop", "tool_calls") else ()
        decode = self.llm.tokenizer.decode
        vector = self.side.vector(question_of(question.messages))
        return Known(
            prompt=request.prompt_ids, features=features,
            prefilter_features=prefilter_features(vector, sketcher.found()),
            answer=answer_message(done), answer_ids=(*ids, *ends), text=decode(ids),
            draft=lambda n: decode(ids[:n]), bits=bits,
        )  # fmt: skip

    @property
    def _ends(self) -> tuple[int, ...]:
        return tuple(sorted(self.llm.tokenizer.eos_ids)[:1])

    def request(self, question: Question) -> Request:
        """The greedy request of a question. Raises as the builder."""
        given = {"tools": list(question.tools)} if question.tools else {}
        messages: Any = list(question.messages)
        prompt = messages if messages[0].get("role") else str(messages[0]["content"])
        return self.llm.builder.request(prompt, {**OPTIONS, **given, "max_tokens": MOST_TOKENS})

    async def answered(self, request: Request) -> tuple[Completion, bytes]:
        """A completion, and a hash of its tokens and their probabilities."""
        seen, stream = hashlib.sha256(), await self.llm.asubmit(request)
        try:
            async for event in stream:
                seen.update(f"{event.token_id} {event.logprob!r}\n".encode())
        finally:
            await stream.aclose()
        return stream.completion, seen.digest()

    async def likelihood(self, exchange: Exchange, answer: Message, adapter: RequestAdapter | None) -> float:
        """The log-probability of an answer to a prompt."""
        prompt, target = self.side.target_ids(exchange, answer)
        whole, first = [*prompt, *target], len(prompt) - 1

        def score(row: int, logits: memoryview[float], log_sum_exp: float) -> float:
            return logits[whole[row + 1]] - log_sum_exp if row >= first else 0.0

        request = Request(
            prompt_ids=tuple(whole[:-1]), all_logits=True, score=score, sampling=GREEDY, priority=PRIORITY,
            reuses=False, adapter=adapter,
        )  # fmt: skip
        return sum(await self.side.access.rows(request))

    def target(self, item: Item) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """As `Base.target`."""
        assert item.approved, "an item that is learnt from has a right answer"
        prompt, target = self.side.target_ids(item.exchange, item.approved)
        return tuple(prompt), tuple(target)

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """As `Base.answer_ids`."""
        return (*self.llm.tokenizer.encode(text), *self._ends)

    def fit(
        self, examples: Sequence[Example], settings: TrainingSettings, stop: Callable[[], bool]
    ) -> tuple[Adapter, int] | None:
        """As `Base.fit`, on a backend of its own, which computes nothing between two steps."""

        async def work() -> Training:
            backend = open_backend(processor_name())
            await backend.open(OpenSpec(threads=self.threads))
            try:
                file = self.llm.running.file
                done = await train(
                    file.model,
                    file.sources,
                    backend,
                    examples=examples,
                    settings=settings,
                    report=lambda _: stop(),
                )
            finally:
                await backend.close()
            return done

        done = asyncio.run(work())
        return (done.adapter, len(done.steps)) if done.is_whole else None
