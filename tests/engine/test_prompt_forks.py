"""Several choices of one prompt: forks that share its KV cache draw as separate requests do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from camelid.api.llm import LLM, Completion, Event
from camelid.api.load import aload
from camelid.engine.request import Request
from camelid.engine.stream import Stream
from camelid.requests.build import RequestBuilder

PROMPT = "Tell me a story about a llama that crossed the mountains in winter."
N_CHOICES = 4


async def separate_ids(llm: LLM, request: Request) -> list[list[int]]:
    """The answers of separate requests, one per choice, each prefilled in full."""
    answers: list[list[int]] = []
    for choice in range(N_CHOICES):
        stream = llm._engine.submit(replace(request, choice=choice, reuses=False))
        answers.append(await ids_of(stream))
    return answers


async def ids_of(stream: Stream[Event, Completion]) -> list[int]:
    return [event.token_id async for event in stream if event.token_id is not None]


async def forked_ids(llm: LLM, request: Request, n_late: int) -> list[list[int]]:
    """The answers of one request and its forks after `n_late` tokens."""
    parent = llm._engine.submit(request)
    first = [(await anext(parent)).token_id for _ in range(n_late)]
    children = [
        await llm._engine.fork(parent.id, choice=choice, whole=False) for choice in range(1, N_CHOICES)
    ]
    rest = await asyncio.gather(*map(ids_of, (parent, *children)))
    return [first + rest[0], *rest[1:]]


@pytest.mark.parametrize("n_late", [1, 3])
@pytest.mark.parametrize("options", [{}, {"logprobs": 2}, {"repeat_penalty": 1.3}])
def test_forks_of_a_prompt_draw_as_separate_requests(options: dict[str, float], n_late: int) -> None:
    async def work() -> None:
        async with await aload("cria", backend="cpu", parallel=N_CHOICES) as llm:
            everything = {"max_tokens": 12, "temperature": 1.5, "seed": 7, "ignore_eos": True, **options}
            builder: RequestBuilder = llm._builder
            request = builder.request(PROMPT, everything)
            await llm._ready(request)
            wanted = await separate_ids(llm, request)
            assert len({tuple(ids) for ids in wanted}) == N_CHOICES
            before = llm.counters.prefill_rows
            assert await forked_ids(llm, request, n_late) == wanted
            assert llm.counters.forks == N_CHOICES - 1
            assert llm.counters.prefill_rows - before < 2 * request.n_prompt  # no fork prefills the prompt
            assert llm.is_idle

    asyncio.run(work())
