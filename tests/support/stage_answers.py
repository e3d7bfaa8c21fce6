"""Answers of one engine to many requests at once, as bits to compare."""

from __future__ import annotations

import asyncio
from typing import Any

from camelid.engine.request import Request
from camelid.loading.start import RunningModel
from camelid.sampling.params import SamplingParams


async def answers(
    running: RunningModel, n: int = 12, n_tokens: int = 24, longer: int = 15
) -> list[list[tuple[int, float]]]:
    """Token ids and log-probabilities; prompts grow by `longer`, every second is penalised."""

    async def one(i: int) -> Any:
        events = running.engine.submit(request(i, n_tokens, longer))
        return [(event.token_id, event.logprob) async for event in events if event.token_id is not None]

    return await asyncio.gather(*map(one, range(n)))


def request(i: int, n_tokens: int, longer: int) -> Request:
    prompt = tuple(3 + (7 * i + j * j) % 300 for j in range(4 + longer * i))
    penalty = 1.3 if i % 2 else 1.0
    return Request(
        prompt_ids=prompt,
        max_tokens=n_tokens,
        sampling=SamplingParams(seed=i, temperature=0.8, repeat_penalty=penalty),
    )
