"""The engine's times of concurrent steps and of cached prompts."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from tests.support.engine_fakes import STATES, HashBackend, collect, open_engine, request

from camelid.engine.engine import StepEngine
from camelid.engine.metrics import StepStats
from camelid.engine.programs import Limits
from camelid.requests.output_text import Completion

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9]


class Ticks:
    """A clock that advances by one second per reading."""

    def __init__(self) -> None:
        self._seconds = count()

    def __call__(self) -> float:
        return float(next(self._seconds))


def ticking(ticks: Ticks) -> StepEngine:
    return asyncio.run(open_engine(HashBackend(), STATES, Limits(8, 3, 64), n_pages=None, clock=ticks))


def answer(engine: StepEngine, n: int) -> Completion:
    stream = engine.submit(request(PROMPT, n))
    asyncio.run(collect(stream))
    return stream.completion


def test_no_second_is_counted_for_two_steps() -> None:
    """A step that overlaps another counts from the end of the other."""
    ticks, seen = Ticks(), list[StepStats]()
    engine = ticking(ticks)
    engine.hooks.append(seen.append)
    began = ticks()
    answer(engine, 20)
    assert engine.counters.max_in_flight == 2
    assert 0 < sum(facts.seconds for facts in seen) <= ticks() - began


def test_prompt_speed_counts_computed_rows_only() -> None:
    engine = ticking(Ticks())
    answer(engine, 3)
    done = answer(engine, 3)
    n_new = len(PROMPT) - done.usage.cached_tokens
    assert 0 < n_new < len(PROMPT)
    assert done.timings.prefill_tps == pytest.approx(n_new / (done.timings.ttft_s - done.timings.queue_s))
