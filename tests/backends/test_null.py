"""The null backend: scripted ids, steps that take effect late but in order, optional counting of work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from tests.support.model.stress.shapes import SHAPES

from camelid.backends.base import Program, Result
from camelid.backends.null.backend import NullBackend, QueuedStep, output_words
from camelid.engine.programs import DECODE, Limits, program_key
from camelid.model.decoder import lower
from camelid.plan.plan import Plan
from camelid.plan.step import Capacity, ProgramKey, Step, StepRow, StepSampling, StepSequence, encode_step

KEY = ProgramKey(entry="decode", capacity=Capacity(rows=4, sequences=2, outputs=4, updates=2))
PLAN = Plan(key=KEY, stages=(), states=())


class Noting(NullBackend):
    """Records the steps that have taken effect."""

    def __init__(self, late: Random | None) -> None:
        super().__init__(lambda sequence, position: 100 * sequence + position, late=late)
        self.done: list[int] = []

    def effect(self, work: QueuedStep) -> Result:
        self.done.append(work.number)
        return super().effect(work)


def encoded(outputs: Sequence[tuple[int, int, int]]) -> bytes:
    row = StepRow(source=0, value=1, sequence=0, state_row=0, positions=(0,))
    share = StepSequence(first_row=0, rows=1, groups=())
    return encode_step(Step(rows=[row], sequences=[share], outputs=list(outputs)), PLAN.layout)


def test_outputs_come_from_the_steps_words_alone() -> None:
    outputs = [(0, 0, 7), (0, 1, 9)]
    assert output_words(encoded(outputs), PLAN) == outputs
    assert output_words(encoded([]), PLAN) == []


@pytest.mark.parametrize("late", [None, 1, 2, 3])
def test_steps_take_effect_in_order_and_answer_by_script(late: int | None) -> None:
    async def main() -> Noting:
        backend = Noting(None if late is None else Random(late))
        program: Program = await backend.compile(PLAN)
        tickets = [backend.run(program, encoded([(0, 1, n), (0, 2, n)])) for n in range(20)]
        assert [t.n_outputs for t in tickets] == [2] * 20
        assert len(backend.done) == (0 if late else 20), "late steps wait for the event loop"
        for n, ticket in enumerate(tickets):
            rows = await backend.read(ticket)
            assert [row.token_id for row in rows] == [100 + n, 200 + n]
            assert await backend.read(ticket) is rows, "a read may be repeated"
        return backend

    backend = asyncio.run(main())
    assert backend.done == list(range(20))


def test_late_steps_run_ahead_of_their_reads_by_chance() -> None:
    async def main() -> set[int]:
        backend = Noting(Random(0))
        program = await backend.compile(PLAN)
        ahead: set[int] = set()
        for _ in range(30):
            tickets = [backend.run(program, encoded([(0, 0, 1)])) for _ in range(3)]
            await backend.read(tickets[0])
            ahead.add(len(backend.done) - 1 - tickets[0].handle.number)
            backend.finish()
        return ahead

    assert asyncio.run(main()) >= {0, 1}


@pytest.mark.parametrize("call", ["read_state", "write_state"])
def test_state_access_waits_for_earlier_steps(call: str) -> None:
    async def main() -> Noting:
        backend = Noting(Random(5))
        backend.run(await backend.compile(PLAN), encoded([]))
        await (backend.read_state("kv", 1) if call == "read_state" else backend.write_state("kv", 1, b""))
        return backend

    assert asyncio.run(main()).done == [0]


@pytest.mark.parametrize("counts", [True, False])
def test_counting_is_optional(counts: bool) -> None:
    plan = lower(SHAPES["mamba2"].model(), program_key(DECODE, Limits(4, 2, 64), 16))
    groups = tuple((1, 0, 0) for _ in plan.states)
    row = StepRow(source=0, value=1, sequence=0, state_row=0, positions=(0,))
    share = StepSequence(first_row=0, rows=1, groups=groups)
    step = Step(rows=[row], sequences=[share], sampling=[StepSampling()], outputs=[(0, 0, 1)])

    async def main() -> NullBackend:
        backend = NullBackend(counts=counts)
        backend.run(await backend.compile(plan), encode_step(step, plan.layout))
        return backend

    counters = asyncio.run(main()).memory().counters
    assert counters["runs"] == 1
    assert counters["ops"] == (len(plan.ops) if counts else 0)
    assert all((counters[name] > 0) == counts for name in ("bytes", "flops"))
