"""Row buckets: a step runs the smallest program that holds it, and no answer depends on the bucket."""

from __future__ import annotations

import asyncio
from math import inf

import pytest
from tests.support.engine_fakes import HashBackend, collect, expected_ids, make_engine, request

from camelid.engine.programs import DECODE, MIXED, Limits, program_keys
from camelid.errors import PlanError

PROMPTS = ([5, 6, 7], [4, 2], [9, 8, 7, 6, 5, 4, 3, 2, 1, 9, 8, 7])


@pytest.mark.parametrize("buckets", [(), (1, 2, 4), (3,), (2, 5, 64)])
def test_each_step_runs_the_smallest_bucket_that_holds_it(buckets: tuple[int, ...]) -> None:
    async def main() -> None:
        backend = HashBackend(row_buckets=buckets)
        engine = await make_engine(backend)
        streams = [engine.submit(request(prompt, 9)) for prompt in PROMPTS]
        for prompt, stream in zip(PROMPTS, streams, strict=True):
            assert await collect(stream) == expected_ids(prompt, 9)
        most = {"decode": 3, "mixed": 8}
        for entry, (n_rows, capacity) in zip(backend.entries, backend.rows, strict=True):
            sizes = sorted({*(b for b in buckets if b < most[entry]), most[entry]})
            fitting = next((size for size in sizes if n_rows <= size), inf)
            assert capacity >= fitting, "no step is larger than its program"
            assert entry == "mixed" or capacity == fitting
        unused = sum(capacity - n_rows for n_rows, capacity in backend.rows)
        assert engine.counters.unused_rows == unused

    asyncio.run(main())


def test_buckets_save_rows() -> None:
    async def unused(buckets: tuple[int, ...]) -> int:
        engine = await make_engine(HashBackend(row_buckets=buckets))
        await collect(engine.submit(request([5, 6, 7], 9)))
        return engine.counters.unused_rows

    assert asyncio.run(unused((1, 2, 4))) < asyncio.run(unused(()))


def test_a_step_beyond_the_largest_program_is_refused() -> None:
    async def main() -> None:
        backend = HashBackend()
        engine = await make_engine(backend)
        engine.limits = Limits(16, 3, 64)
        engine._scheduler.limits = engine.limits
        with pytest.raises(PlanError):
            await collect(engine.submit(request(list(range(1, 13)), 2)))

    asyncio.run(main())


def test_keys_are_the_buckets_below_the_most_rows_and_the_most_rows() -> None:
    limits = Limits(8, 3, 64)
    rows = {
        p: [k.capacity.rows for k in program_keys(p, limits, 4, row_buckets=(4, 1, 99, 8))]
        for p in (DECODE, MIXED)
    }
    assert rows == {DECODE: [1, 3], MIXED: [1, 4, 8]}
