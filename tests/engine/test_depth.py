"""Steps in flight: at least one, at most the backend's limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.engine_fakes import HashBackend, ShortSteps, collect, expected_ids, make_engine, request

from camelid.backends.base import Capabilities
from camelid.errors import RequestError


@pytest.mark.parametrize("asked", [0, -1, 3, True, "2"])
def test_a_depth_beyond_the_backends_limit_is_refused(asked: Any) -> None:
    with pytest.raises(RequestError, match=r"max_in_flight is .* from 1 to 2, .* backend 'hash'") as caught:
        asyncio.run(make_engine(HashBackend(depth=2), max_in_flight=asked))
    assert caught.value.field == "max_in_flight"


@pytest.mark.parametrize(("asked", "depth"), [(None, 2), (1, 1), (2, 2)])
def test_depth_defaults_to_the_backends(asked: int | None, depth: int) -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend(depth=2), max_in_flight=asked)
        assert await collect(engine.submit(request([5], 12))) == expected_ids([5], 12)
        assert engine.counters.max_in_flight == depth

    asyncio.run(main())


def test_closing_a_stream_waits_for_its_steps_in_flight() -> None:
    async def main() -> None:
        engine = await make_engine(HashBackend(depth=4), clock=ShortSteps())
        stream = engine.submit(request([5], 30))
        for _ in range(5):
            await anext(stream)
        await stream.aclose()
        assert engine.counters.max_in_flight == 4
        assert engine.is_idle

    asyncio.run(main())


def test_capabilities_are_not_built_for_each_row() -> None:
    class Counting(HashBackend):
        asked = 0

        def capabilities(self) -> Capabilities:
            Counting.asked += 1
            return super().capabilities()

    async def main() -> None:
        engine = await make_engine(Counting())
        before = Counting.asked
        await collect(engine.submit(request([5], 12)))
        assert Counting.asked == before

    asyncio.run(main())
