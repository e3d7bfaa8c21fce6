"""Requests that are refused at submission, and unusual valid requests."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.engine.test_faults import PROMPT, end, engine_of, run
from tests.support.engine_fakes import VOCAB, HashBackend, collect, expected_ids, make_engine, request

from camelid.engine.request import Request
from camelid.engine.state_transfer import ExportedState
from camelid.errors import ContextOverflowError, RequestError
from camelid.sampling.params import SamplingParams


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (request([]), RequestError, "prompt is empty"),
        (request([1, VOCAB]), RequestError, f"token {VOCAB} is outside the vocabulary of {VOCAB}"),
        (request([-1]), RequestError, "outside the vocabulary"),
        (request([1], 0), RequestError, "max_tokens is 0"),
        (request([1], True), RequestError, "max_tokens is True"),
        (request([1] * 64, None), ContextOverflowError, "64 prompt tokens and 1 to answer .* context of 64"),
        (request([1] * 60, 5), ContextOverflowError, "60 prompt tokens and 5"),
    ],
)
def test_impossible_request_is_refused_at_once(asked: Request, error: type[Exception], words: str) -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend())
        with pytest.raises(error, match=words):
            engine.submit(asked)
        assert engine.is_idle
        assert engine.counters.requests == 0

    asyncio.run(main())


def test_overflow_carries_its_numbers() -> None:
    async def main() -> ContextOverflowError:
        engine = await make_engine(HashBackend())
        with pytest.raises(ContextOverflowError) as caught:
            engine.submit(request([1] * 60, 5))
        return caught.value

    error = asyncio.run(main())
    assert (error.n_tokens, error.context_length) == (65, 64)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prompt_ids": (1, 1.5)}, "prompt token 1.5 is outside the vocabulary"),
        ({"prompt_ids": ("a",)}, "prompt token 'a' is"),
        ({"prompt_ids": (True,)}, "prompt token True is"),
        ({"prompt_ids": (None,)}, "prompt token None is"),
        ({"n_keep": -1, "overflow": "shift"}, "n_keep is -1, expected an integer from 0"),
        ({"n_keep": "x"}, "n_keep is 'x', expected an integer from 0"),
        ({"priority": 1.5}, "priority is 1.5, expected an integer$"),
        ({"choice": -1}, "choice is -1, expected an integer from 0 up to 4294967295"),
        ({"choice": 1 << 32}, "choice is 4294967296"),
        ({"sampling": SamplingParams(seed=0, logit_bias=((VOCAB, 1.0),))}, f"logit_bias names token {VOCAB}"),
        ({"salt": b"mine"}, "cache_salt is bytes, expected text"),
        ({"timeout_s": 10**400}, "timeout_s is int, expected seconds above 0"),
        ({"queue_timeout_s": float("nan")}, "queue_timeout_s is nan"),
        ({"timeout_s": True}, "timeout_s is True"),
    ],
)
def test_values_that_no_step_encodes_are_refused_at_once(more: dict[str, Any], words: str) -> None:
    async def work() -> None:
        engine = await engine_of()
        with pytest.raises(RequestError, match=words):
            engine.submit(replace(request(PROMPT), **more))
        await end(engine)

    run(work())


@pytest.mark.parametrize(
    "more", [{"salt": "\ud800"}, {"priority": 10**500}, {"max_tokens": 10**50, "overflow": "stop"}]
)
def test_unusual_valid_requests_are_served(more: dict[str, Any]) -> None:
    async def work() -> None:
        engine = await engine_of(None, 8, 3, 32)
        for _ in range(2):
            ids = await collect(engine.submit(replace(request(PROMPT), **more)))
            assert ids[:8] == expected_ids(PROMPT, 8)
        await end(engine)

    run(work())


@pytest.mark.parametrize("choice", [-1, 1 << 32, True, "a", 1.5])
def test_forks_need_a_choice_that_a_step_encodes(choice: Any) -> None:
    async def work() -> None:
        engine = await engine_of()
        parent = engine.submit(request(PROMPT, 12))
        await anext(parent)
        with pytest.raises(RequestError, match="choice is"):
            await engine.fork(parent.id, choice=choice)
        assert len(await collect(parent)) == 11
        await end(engine)

    run(work())


@pytest.mark.parametrize("token_ids", [[-1] * 20, [VOCAB] * 20, ["a"] * 20, [1.5] * 20])
def test_state_of_invalid_token_ids_is_refused(token_ids: Any) -> None:
    async def work() -> None:
        engine = await engine_of()
        with pytest.raises(RequestError, match="outside the vocabulary"):
            engine.cached_rows(token_ids)
        with pytest.raises(RequestError, match="outside the vocabulary"):
            await engine.export_rows(token_ids)
        with pytest.raises(RequestError, match="outside the vocabulary"):
            await engine.import_rows(token_ids, ExportedState(8, {}, {}))

    run(work())


@pytest.mark.parametrize(
    ("exported", "words"),
    [
        (ExportedState(len(PROMPT) + 1, {}, {}), "has 14 rows of 13 tokens"),
        (ExportedState(-1, {}, {}), "has -1 rows"),
        (ExportedState(8, {}, {}), "has 0 units of kv, but its rows need 2"),
        (ExportedState(8, {"kv": [b""] * 3}, {"kv": 0}), "has 3 units of kv"),
    ],
)
def test_state_of_another_size_than_its_tokens_is_refused(exported: ExportedState, words: str) -> None:
    async def work() -> None:
        engine = await engine_of()
        with pytest.raises(RequestError, match=words):
            await engine.import_rows(PROMPT, exported)
        assert engine.cached_rows(PROMPT) == 0
        await end(engine)

    run(work())
