"""A decode loop at waist 2: a sequence that runs ahead, each id taken from the ring, two steps in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.model.runs import make_plan

import camelid
from camelid.backends.base import Backend, OpenSpec, PoolSize, Program, Ticket
from camelid.loading.model_file import open_model
from camelid.plan.plan import PAGE_ROWS
from camelid.plan.step import FROM_ID, FROM_RING, Step, StepRow, StepSampling, StepSequence, encode_step

CRIA = Path(camelid.__file__).with_name("data") / "cria.gguf"
FIRST_ID, SLOT = 1, 1


@dataclass(frozen=True, slots=True)
class Decoder:
    """An opened backend with cria's decode program."""

    backend: Backend
    program: Program
    sampling: StepSampling

    async def run(self, n_steps: int, first: int = 0) -> list[int]:
        """Token ids of these positions."""
        ids, flying = list[int](), deque[Ticket]()
        for position in range(first, first + n_steps):
            flying.append(self.backend.run(self.program, self.step(position)))
            if len(flying) == 2:
                ids.append(await self._id(flying.popleft()))
        return [*ids, await self._id(flying.popleft())]

    async def _id(self, ticket: Ticket) -> int:
        (row,) = await self.backend.read(ticket)
        return row.token_id

    def step(self, position: int) -> bytes:
        """The step of a position. Its page is the one after the last step's."""
        plan, (page, place) = self.program.plan, divmod(position, PAGE_ROWS)
        groups = tuple((SLOT, SLOT * (s.kind == "ring"), position) for s in plan.states)
        paged = [number for number, state in enumerate(plan.states) if state.kind == "paged"]
        source, places = FROM_RING if position else FROM_ID, (position,)
        row = StepRow(source=source, value=FIRST_ID, sequence=0, state_row=position, positions=places)
        step = Step(
            rows=[row],
            sequences=[StepSequence(first_row=0, rows=1, groups=groups)],
            sampling=[self.sampling],
            outputs=[(0, 0, position + 1)],
            updates=[(number, 1, page, page + 1) for number in paged if not place],
        )
        return encode_step(step, plan.layout)


async def opened(backend: Backend, context: int, n_units: int, **sampling: Any) -> Decoder:
    """Cria's decode program on a backend, with pools of so many pages."""
    file = await open_model(str(CRIA))
    plan = make_plan(file.model, 1, context=context, features=frozenset())
    await backend.open(OpenSpec())
    await backend.load(list(plan.weights().values()), file.sources)
    paged, slots = PoolSize(n_units, 2, -(-context // PAGE_ROWS)), PoolSize(2)
    await backend.allocate(plan.states, {s.name: slots if s.kind == "ring" else paged for s in plan.states})
    return Decoder(backend, await backend.compile(plan), StepSampling(**sampling))


def decoded(backend: Backend, n_steps: int, **sampling: Any) -> list[int]:
    """Ids of the first steps."""

    async def run() -> list[int]:
        decoder = await opened(backend, n_steps, -(-n_steps // PAGE_ROWS) + 1, **sampling)
        ids = await decoder.run(n_steps)
        await backend.close()
        return ids

    return asyncio.run(run())
