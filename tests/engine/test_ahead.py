"""Run-ahead depth: only short decode steps run more than two ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.engine_fakes import STATES, HashBackend, collect, expected_ids, open_engine, request

from camelid.engine.engine import StepEngine
from camelid.engine.metrics import StepStats
from camelid.engine.pace import RUN_AHEAD_S, RunAhead, rows_ahead
from camelid.engine.programs import DECODE, MIXED, Limits
from camelid.engine.results import Clock
from camelid.plan.plan import StateSpec

DEEP = 8
RECURRENT = StateSpec("recurrent", "recurrent", (0,), (("conv", 6), ("scan", 8)), 1)
PROMPT = tuple(range(3, 40))  # five chunks


class Paced(HashBackend):
    """A device with steps of `step_s` each by its own clock; records the steps in flight at each
    submission.
    """

    def __init__(self, step_s: float) -> None:
        super().__init__(depth=DEEP)
        self.step_s, self.now = step_s, 0.0
        self.n_ended = self.n_looks = 0
        self.beside: list[list[str]] = []

    def run(self, program: Any, step: bytes, inputs: Any = None) -> Any:
        ticket = super().run(program, step, inputs)
        self.beside.append(self.entries[self.n_ended :])
        return ticket

    async def read(self, ticket: Any) -> Any:
        result = await super().read(ticket)
        n_more = self.reads[-1] + 1 - self.n_ended
        if n_more > 0:
            self.n_ended += n_more
            self.n_looks += 1
            self.now += n_more * self.step_s
        return result


def engine_of(backend: Paced, states: Sequence[StateSpec] = STATES) -> StepEngine:
    limits = Limits(8, 3, 256)
    return asyncio.run(open_engine(backend, states, limits, n_pages=None, clock=lambda: backend.now))


def answer(engine: StepEngine, n: int) -> None:
    assert asyncio.run(collect(engine.submit(request([5], n)))) == expected_ids([5], n)


@pytest.mark.parametrize(
    ("most", "seconds", "steps"),
    [
        (8, (), 2),
        (1, (), 1),
        (8, (1e-6,), 8),
        (8, (0.0,), 2),
        (1, (1e-6,), 1),
        (8, (RUN_AHEAD_S / 5,), 5),
        (3, (RUN_AHEAD_S / 5,), 3),
        (8, (RUN_AHEAD_S,), 2),
        (8, (10.0,), 2),
        (8, (10.0, *[RUN_AHEAD_S / 6.5] * 60), 6),  # old times fade
        (8, (RUN_AHEAD_S / 4.5, RUN_AHEAD_S / 2), 3),  # the average moves by a fifth
    ],
)
def test_depth_by_step_times(most: int, seconds: tuple[float, ...], steps: int) -> None:
    ahead = RunAhead(most)
    for each in seconds:
        ahead.observe(each)
    assert ahead.steps() == steps


@pytest.mark.parametrize(("depth", "rows"), [(1, 100), (2, 200), (3, 201), (8, 206)])
def test_rows_in_flight(depth: int, rows: int) -> None:
    assert rows_ahead(100, depth) == rows


def test_short_steps_retire_four_at_a_time() -> None:
    backend, seen = Paced(1e-3), list[StepStats]()
    engine = engine_of(backend)
    engine.hooks.append(seen.append)
    answer(engine, 200)
    assert engine.counters.max_in_flight == DEEP
    assert 200 / 4 <= backend.n_looks <= 200 / 4 + 5
    assert {round(facts.seconds, 9) for facts in seen} == {1e-3}, "each step has its own time"


def test_long_steps_retire_one_at_a_time() -> None:
    backend = Paced(RUN_AHEAD_S)
    engine = engine_of(backend)
    answer(engine, 50)
    assert (engine.counters.max_in_flight, backend.n_looks) == (2, 50)


def test_prompts_do_not_run_ahead() -> None:
    """Beside a prompt's chunk, at most one step runs before the next chunk, and none after it."""
    backend = Paced(1e-3)
    engine = engine_of(backend)

    async def main() -> None:
        first = engine.submit(request([5], 100))
        for _ in range(20):
            await anext(first)
        others = [engine.submit(request(PROMPT[n:], 20)) for n in range(2)]
        await asyncio.gather(*map(collect, [first, *others]))

    asyncio.run(main())
    deep = [beside for beside in backend.beside if len(beside) > 2]
    assert deep
    assert all(set(beside[:-1]) == {DECODE} for beside in deep)
    assert max(beside.count(MIXED) for beside in backend.beside) == 2
    assert sum(step == MIXED for step in backend.entries) > 5


class NoDraft:
    async def propose(self, token_ids: Sequence[int], most: int, sampling: Any) -> tuple[int, ...]:
        return ()


def test_a_speculating_request_keeps_its_turns() -> None:
    """Run-ahead of a plain request would delay the turns of a speculating request."""
    backend = Paced(1e-3)
    engine = engine_of(backend)
    plain = engine.submit(request([5], 100))
    waiting = engine.submit(request([6], 100, proposer=NoDraft))
    assert len(asyncio.run(collect(plain))) == 100
    assert len(engine._sequences[waiting.id].answer_ids) >= 45
    asyncio.run(collect(waiting))
    answer(engine, 50)
    assert engine.counters.max_in_flight == DEEP, "a request alone did not run ahead again"


def test_results_read_before_a_cancellation_are_kept() -> None:
    """A device may return its results only once."""
    backend = Paced(1e-3)
    engine = engine_of(backend)

    async def main() -> None:
        stream = engine.submit(request([5], 60))
        for _ in range(20):
            await anext(stream)
        looks = asyncio.create_task(engine.step())
        while len(backend.reads) == len(backend.entries[: backend.n_ended]):
            await asyncio.sleep(0)
        looks.cancel()
        await asyncio.wait([looks])
        assert looks.cancelled()
        await collect(stream)

    asyncio.run(main())
    assert sorted(backend.reads) == list(range(60))


def test_recurrent_state_is_kept_for_two_steps() -> None:
    """A third step would overwrite the state at the end of an answer, which the prefix cache needs."""
    engine = engine_of(Paced(1e-3), (*STATES, RECURRENT))
    assert len(asyncio.run(collect(engine.submit(request([5], 50))))) == 50
    assert engine.counters.max_in_flight == 2


def test_time_between_tokens_that_arrive_together() -> None:
    times = iter([0.0, *(4.0 * (i // 4) for i in range(42))])
    clock = Clock(lambda: next(times))
    for _ in range(41):
        clock.token()
    assert clock.timings(1, 41).inter_token_s == 1.0
