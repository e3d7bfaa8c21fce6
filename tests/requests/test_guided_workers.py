"""Guided answers of cria with worker processes: the same tokens; no stream waits for another's grammar."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

import camelid
from camelid.api.llm import LLM
from camelid.errors import RequestError
from camelid.requests import grammar_process, idle_child
from camelid.text.grammar.masks import Masks

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "n": {"type": "integer", "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blau"]}, "maxItems": 3},
    },
    "required": ["name", "n", "tags"],
}
WAYS: list[dict[str, Any]] = [
    {"json_schema": SCHEMA},
    {"response_format": {"type": "json_object"}},
    {"regex": "([a-f]{3}-[0-9]{2,5} ){1,4}"},
    {"grammar": 'root ::= ("yes" | "no" | x)+\nx ::= "(" root ")"'},
    {"choice": ["yes", "no", "perhaps"]},
]
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.9, "order": ["temperature"]},
    {"temperature": 1.1, "top_k": 40, "top_p": 0.9},
    {"mirostat": 2},
]
SLOW = {"enum": [f"word {i}" for i in range(20_000)]}  # half a minute
FREE: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def slowed(delay: str) -> str:
    """The command of a worker whose masks take a while."""
    return idle_child.COMMAND.replace(
        "import main;",
        "import GrammarWorker, JOBS, main; import time; mask = GrammarWorker.mask;"
        f" JOBS[b'mask'] = lambda *job: ({delay}, mask(*job))[1];",
    )


SLEEPY, BUSY = slowed("time.sleep(0.1)"), slowed("[0 for _ in iter(int, 1) if _]")


def asks(seed: int, n: int) -> list[dict[str, Any]]:
    """Random requests: a constraint, a way of sampling, a seed."""
    rng = random.Random(seed)
    return [
        {
            **rng.choice(WAYS), **rng.choice(SAMPLINGS),
            "seed": rng.randrange(1 << 30), "max_tokens": rng.randrange(1, 50),
        }
        for _ in range(n)
    ]  # fmt: skip


async def answers(llm: LLM, requests: list[dict[str, Any]]) -> list[list[int]]:
    """The tokens of requests that run together."""
    done = await asyncio.gather(*(llm.agenerate("A list:", **asked) for asked in requests))
    return [completion.token_ids for completion in done]


def with_workers(
    work: Callable[[LLM], Awaitable[Any]], limit_s: float = grammar_process.LIMIT_S, **options: Any
) -> Any:
    async def run() -> Any:
        async with await camelid.aload("cria", context=256, parallel=8, **options) as llm:
            llm._builder.constraints.start_workers(limit_s=limit_s)
            await llm.astart_grammar_workers()
            return await work(llm)

    return asyncio.run(run())


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_tokens_are_the_same_with_and_without_workers(backend: str) -> None:
    requests = asks(5, 24 if backend == "cpu" else 8)

    async def work(llm: LLM) -> list[list[int]]:
        with patch.object(Masks, "_mask", side_effect=AssertionError("this process computed a mask")):
            found = await answers(llm, requests)
        assert llm.counters.late_masks > 5, "some masks were late"
        assert llm.is_idle
        return found

    found = with_workers(work, backend=backend)
    with camelid.load("cria", context=256, parallel=8, backend=backend) as alone:
        assert found == [alone.generate("A list:", **asked).token_ids for asked in requests]
        assert alone.counters.late_masks == 0
    assert len({tuple(ids) for ids in found}) > 4, "the requests differ"


def test_a_stream_goes_on_while_a_schema_compiles() -> None:
    async def work(llm: LLM) -> int:
        guided = asyncio.create_task(llm.agenerate("A list:", json_schema=SLOW))
        n_meanwhile = 0
        async for _ in llm.astream("A story:", max_tokens=200, **FREE):
            n_meanwhile += not len(llm._builder.constraints.kept)
        guided.cancel()
        await asyncio.wait([guided])
        return n_meanwhile

    assert with_workers(work) == 200


def test_a_stream_goes_on_while_masks_are_late() -> None:
    async def work(llm: LLM) -> None:
        guided = asyncio.create_task(llm.agenerate("A list:", regex="[a-f]{3}-[0-9]{2}", temperature=0))
        n_tokens = 0
        async for _ in llm.astream("A story:", max_tokens=150, **FREE):
            n_tokens += not guided.done()
        assert n_tokens > 60, "the free stream waited for masks"
        assert len((await guided).text) == 6
        assert llm.counters.late_masks >= 3

    with patch.object(idle_child, "COMMAND", SLEEPY):
        with_workers(work)


def test_a_late_mask_does_not_hold_a_cancelled_or_timed_out_request() -> None:
    async def work(llm: LLM) -> None:
        asked: dict[str, Any] = {"regex": "[a-f]{300}", "temperature": 1, "top_k": 40}
        late = await llm.agenerate("A list:", timeout_s=0.25, **asked)
        assert late.finish_reason == "timeout"
        stream = llm.astream("A list:", **asked)
        async for _ in stream:
            break
        await stream.aclose()
        assert llm.is_idle

    with patch.object(idle_child, "COMMAND", SLEEPY):
        with_workers(work)


def test_a_mask_beyond_the_limit_ends_its_request_alone() -> None:
    async def work(llm: LLM) -> None:
        guided = asyncio.create_task(llm.agenerate("A list:", regex="[a-f]{3}", temperature=0))
        free = await llm.agenerate("A story:", max_tokens=40, **FREE)
        assert len(free.token_ids) == 40
        with pytest.raises(RequestError) as caught:
            await guided
        assert caught.value.code == "schema_too_costly"
        assert llm.is_idle

    # The limit is processor time, of which a busy machine may give an idle worker little.
    with patch.object(idle_child, "COMMAND", BUSY), patch.object(grammar_process, "PATIENCE", 10_000):
        with_workers(work, limit_s=0.5)
