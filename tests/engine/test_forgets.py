"""State of unknown validity must never be found in the prefix cache."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.engine_fakes import HashBackend, collect, expected_ids, make_engine, request

from camelid.errors import BackendError

PROMPT = [7, 3, 1, 4, 1, 5]


def test_rows_of_a_failed_step_are_never_found() -> None:
    async def work() -> None:
        engine = await make_engine(HashBackend(read_faults={0: BackendError("lost", backend="hash")}))
        stream = engine.submit(request(PROMPT))
        with pytest.raises(BackendError, match="lost"):
            await collect(stream)
        while await engine.step():
            pass  # steps in flight retire
        assert engine.cached_rows(PROMPT) == 0
        assert await collect(engine.submit(request(PROMPT))) == expected_ids(PROMPT, 8)

    asyncio.run(work())


def test_state_that_led_to_broken_logits_is_never_found() -> None:
    async def work() -> None:
        engine = await make_engine(HashBackend(statuses={6: "nan"}))
        stream = engine.submit(request(PROMPT))
        with pytest.raises(BackendError, match="not a number"):
            await collect(stream)
        while await engine.step():
            pass
        assert engine.cached_rows(PROMPT) == 0

    asyncio.run(work())
