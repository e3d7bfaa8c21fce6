"""A loaded model for learning: token ids of questions and answers, and keys of contexts."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from camelid.engine.adapters import RequestAdapter
from camelid.engine.programs import ENCODE
from camelid.engine.request import Request
from camelid.errors import CamelidError, RequestError
from camelid.learning.contexts import DIM
from camelid.learning.features import question_text, question_vector
from camelid.learning.items import Exchange, Message, same_answer, text_of
from camelid.learning.rows import Contexts
from camelid.learning.vectors import Kernels
from camelid.loading.start import RunningModel
from camelid.model.adapter import Adapter
from camelid.model.features import has_features
from camelid.requests.build import RequestBuilder
from camelid.requests.output_text import Completion
from camelid.sampling.params import SamplingParams

PRIORITY = -1_000_000  # below every request of a user
REST_S, LOOK_S = 0.25, 0.01  # the longest wait for requests of users, and between two looks
GREEDY = SamplingParams(temperature=0.0, seed=0)


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """A running engine from another thread or its own.

    `ran` runs a request and returns its rows and its completion; `on_engine` awaits work on the engine's
    thread.
    """

    running: RunningModel
    ran: Callable[[Request], Awaitable[tuple[Sequence[Any], Completion]]]
    on_engine: Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]

    async def rows(self, request: Request) -> Sequence[Any]:
        """The rows of a request, its programs compiled first."""
        return (await self._ran(request))[0]

    async def completion(self, request: Request) -> Completion:
        """The completion of a request, its programs compiled first."""
        return (await self._ran(request))[1]

    async def prepare(self, request: Request) -> None:
        """Compiles the programs of a request. Raises BackendError, OutOfMemoryError."""
        for program in request.programs:
            if program not in self.running.engine.programs:
                await self.on_engine(self.running.compile(program))

    async def _ran(self, request: Request) -> tuple[Sequence[Any], Completion]:
        await self.prepare(request)
        rows, done = await self.ran(request)
        if done.finish_reason == "cancelled":
            raise RequestError("the model was closed while learning read a prompt", field="model")
        if done.finish_reason == "timeout":
            raise RequestError(
                "the time of the request passed while learning read its prompt; raise timeout_s or "
                "queue_timeout_s, or load without learning",
                field="timeout_s",
            )
        return rows, done


class ModelSide(Protocol):
    """A loaded model, as learning sees it."""

    def vector(self, question: str) -> array[float]:
        """The vector of a question."""
        ...

    async def contexts(self, exchange: Exchange, answer: Message, kernels: Kernels) -> Contexts | None:
        """The contexts of an answer; None if the conversation no longer fits the model."""
        ...


class EngineSide:
    """As `ModelSide`, on a running engine."""

    def __init__(self, builder: RequestBuilder, access: EngineAccess) -> None:
        self._builder, self.access = builder, access

    def vector(self, question: str) -> array[float]:
        """As `ModelSide.vector`."""
        return question_vector(self._builder.tokenizer.encode(question_text(question)))

    async def rest(self) -> None:
        """Waits until no request runs; after REST_S, work goes on beside requests."""
        ends = time.monotonic() + REST_S
        while not self.access.running.engine.is_idle and time.monotonic() < ends:
            await asyncio.sleep(LOOK_S)

    async def contexts(self, exchange: Exchange, answer: Message, kernels: Kernels) -> Contexts | None:
        """As `ModelSide.contexts`: one pass over prompt and answer, behind all other requests."""
        await self.rest()
        try:
            prompt, target = self.target_ids(exchange, answer)
            return await self._read(prompt, target, kernels)
        except CamelidError:
            return None  # such as a conversation longer than this context; the item still counts as a turn

    def target_ids(self, exchange: Exchange, answer: Message) -> tuple[list[int], list[int]]:
        """Token ids of the prompt and of the right answer with the token that ends it.

        An answer that the model gave keeps the ids that the model drew.
        """
        tokenizer = self._builder.tokenizer
        ids = list(exchange.answer_ids) if same_answer(answer, exchange.answer) else []
        if not exchange.messages[0].get("role"):  # a plain text
            text = tokenizer.encode(text_of(answer))
            return list(exchange.prompt_ids), [*(ids or text), *sorted(tokenizer.eos_ids)[:1]]
        options: dict[str, object] = {"tools": list(exchange.tools)} if exchange.tools else {}
        messages = list(exchange.messages)
        prompt = self._builder.chat.prompt(messages, **options).token_ids
        options["add_generation_prompt"] = False
        whole = self._builder.chat.prompt([*messages, answer], **options).token_ids
        tail = whole[len(prompt) :] if whole[: len(prompt)] == prompt else tokenizer.encode(text_of(answer))
        n = next((i for i, token in enumerate(tail) if token in tokenizer.eos_ids), len(tail))
        ends = tail[n : n + 1] or sorted(tokenizer.eos_ids)[:1]
        return prompt, [*(ids or tail[:n]), *ends]

    async def _read(self, prompt: list[int], target: list[int], kernels: Kernels) -> Contexts:
        def score(row: int, logits: memoryview[float], _: float) -> bytes:
            return kernels.sketch(logits, DIM).tobytes() if row >= len(prompt) - 1 else b""

        request = Request(
            prompt_ids=(*prompt, *target[:-1]),
            all_logits=True,
            score=score,
            sampling=GREEDY,
            priority=PRIORITY,
            reuses=False,
        )
        return Contexts(tuple(target), b"".join(await self.access.rows(request)))

    @cached_property
    def invocation(self) -> tuple[int, ...]:
        """The header that the chat template gives an answer; empty if there is none."""
        if self.access.running.file.template is None:
            return ()
        messages = [{"role": "user", "content": "?"}]
        bare = self._builder.chat.prompt(messages, add_generation_prompt=False).token_ids
        whole = self._builder.chat.prompt(messages).token_ids
        return tuple(whole[len(bare) :]) if whole[: len(bare)] == bare else ()

    @property
    def has_features(self) -> bool:
        """True for a model whose prompts have features."""
        return has_features(self.access.running.file.model.spec)

    async def features(self, prompt_ids: Sequence[int], of: Request | None = None) -> list[Any]:
        """Features of the tokens of a prompt's last message. Raises as `token_features`."""
        return await self.token_features(prompt_ids, last_message(prompt_ids, self.invocation), of)

    async def token_features(
        self, token_ids: Sequence[int], n_rows: int, of: Request | None = None
    ) -> list[Any]:
        """Features of the last `n_rows` tokens (`model/features.py`), each float32 [depths * C].

        A text is cut at its beginning to the rows of a step. They are read with the priority and the time of
        the request that waits for them, if one does. Raises RequestError for a model without features.
        """
        running = self.access.running
        if not self.has_features:
            raise RequestError(
                f"{running.file.spec.name!r:.200} has no features: its layers have windows, state, or biases "
                "of scores",
                field="model",
            )
        ids = tuple(token_ids[-running.engine.limits.feature_rows :])
        n = min(n_rows, len(ids))
        own = Request(prompt_ids=ids, encodes=True, n_encoded=n, sampling=GREEDY, reuses=False)
        request = _in_place(own, of)
        assert request.programs == (ENCODE,), "features are the entry encode of a decoder"
        return list(await self.access.rows(request))

    async def draft(self, prompt_ids: Sequence[int], n: int, of: Request | None = None) -> str:
        """The text of the first n greedy tokens of the base's answer; a prompt that is too long is cut.

        They have the priority, the time and the prefix cache of the request that waits for them, if one does.
        """
        tokenizer = self._builder.tokenizer
        most = self.access.running.engine.context - 1
        own = Request(
            prompt_ids=tuple(prompt_ids[-most:]), sampling=GREEDY, max_tokens=n, eos_ids=tokenizer.eos_ids,
            overflow="stop",
        )  # fmt: skip
        request = _in_place(own, of)
        if of:
            request = replace(request, salt=of.salt, reuses=of.reuses)
        return tokenizer.decode((await self.access.completion(request)).token_ids[:n])

    async def sketch(self, prompt_ids: Sequence[int], kernels: Kernels) -> array[float]:
        """The sketch of the logits after a prompt, behind all other requests.

        A prompt beyond the context, such as one of a longer context, is cut at its beginning.
        """
        sketcher, most = Sketcher(kernels=kernels), self.access.running.engine.context - 1
        own = Request(
            prompt_ids=tuple(prompt_ids[-most:]), sampling=GREEDY, max_tokens=1, priority=PRIORITY,
            reuses=False, probe=sketcher,
        )  # fmt: skip
        await self.access.rows(own)
        return sketcher.found()

    async def load(self, adapter: Adapter) -> None:
        """Loads an adapter that no request can name. Raises as `RunningModel.add_adapter`."""
        await self.access.on_engine(self.access.running.add_adapter(adapter, is_private=True))

    async def unload(self, name: str) -> None:
        """Unloads a private adapter; requests that run with it run on."""
        self.access.running.adapters.remove_private(name)

    def select(self, name: str, prompt_ids: Sequence[int]) -> RequestAdapter | None:
        """The loaded adapter for a request. Raises RequestError if it was unloaded."""
        return self.access.running.adapters.select_private(name, prompt_ids)


@dataclass(slots=True, kw_only=True)
class Sketcher:
    """A `Probe` that keeps a sketch of the logits and goes on."""

    kernels: Kernels
    sketch: array[float] | None = None

    def see(self, logits: memoryview[float]) -> None:
        """As `Probe.see`."""
        self.sketch = self.kernels.sketch(logits, DIM)

    async def redirected(self, request: Request) -> Request | None:  # noqa: ARG002 - the protocol's
        """As `Probe.redirected`: None."""
        return None

    def found(self) -> array[float]:
        """The sketch. Raises RequestError if the request ended without logits."""
        if self.sketch is None:
            raise RequestError("the model was closed while learning read a prompt", field="model")
        return self.sketch


def _in_place(request: Request, of: Request | None) -> Request:
    """The request with the priority and the time of the one that waits for it; without one, behind all."""
    if of is None:
        return replace(request, priority=PRIORITY)
    return replace(request, priority=of.priority, timeout_s=of.timeout_s, queue_timeout_s=of.queue_timeout_s)


def last_message(token_ids: Sequence[int], invocation: Sequence[int]) -> int:
    """The number of tokens from the last message's beginning to the prompt's end.

    The last invocation is the header of the answer; its first token begins every message. Without one, the
    whole prompt counts as the last message.
    """
    begins = [i for i, token in enumerate(token_ids) if invocation and token == invocation[0]]
    return len(token_ids) - begins[-2] if len(begins) > 1 else len(token_ids)
