"""One sequence in state of any kv_type, whose rows are destroyed as soon as no query needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tests.support.model.runs import make_plan

from camelid.backends.base import OpenSpec, PoolSize, Program
from camelid.backends.reference.backend import ReferenceBackend
from camelid.formats.quants import row_bytes
from camelid.model.arch import Model
from camelid.plan.plan import PAGE_ROWS, StateSpec
from camelid.plan.step import FROM_ID, Step, StepRow, StepSampling, StepSequence, encode_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Rows outside all later windows, and the next `n_more` rows, become NaN after each step.

    With `is_declared`, the step declares its first kept row, so that kernels read no earlier row.
    """

    n_more: int = 0
    is_declared: bool = True


@dataclass(frozen=True, slots=True)
class _Run:
    backend: ReferenceBackend
    program: Program
    prompt: Sequence[int]
    gone: dict[str, int] = field(default_factory=dict[str, int])  # destroyed rows, by group

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return self.program.plan.states

    @property
    def n_pages(self) -> int:
        return -(-len(self.prompt) // PAGE_ROWS)


def run(model: Model, prompt: Sequence[int], chunk: int, kv_type: str, loss: Loss | None = None) -> Any:
    """Logits [T, V] of every row, `chunk` rows per step."""
    return asyncio.run(_run(model, prompt, chunk, kv_type, loss))


async def _run(model: Model, prompt: Sequence[int], chunk: int, kv_type: str, loss: Loss | None) -> Any:
    plan = make_plan(model, chunk, context=len(prompt), kv_type=kv_type)
    backend, n_pages = ReferenceBackend(), -(-len(prompt) // PAGE_ROWS)
    await backend.open(OpenSpec())
    await backend.load(list(plan.weights().values()), {})
    await backend.allocate(plan.states, {s.name: PoolSize(n_pages + 1, 2, n_pages) for s in plan.states})
    this = _Run(backend, await backend.compile(plan), prompt)
    logits: list[Any] = []
    for held in range(0, len(prompt), chunk):
        step = _step(this, held, prompt[held : held + chunk], loss is not None and loss.is_declared)
        rows = await backend.read(backend.run(this.program, encode_step(step, plan.layout)))
        logits += [np.array(row.logits) for row in rows]
        for state in plan.states if loss else ():
            await _lose(this, state, held + len(rows) + 1 - state.window + (loss.n_more if loss else 0))
    return np.stack(logits)


def _step(this: _Run, held: int, token_ids: Sequence[int], is_declared: bool) -> Step:
    step = Step(outputs=[(i, 0, held + i + 1) for i in range(len(token_ids))], sampling=[StepSampling()])
    step.rows = [
        StepRow(source=FROM_ID, value=token, sequence=0, state_row=held + i, positions=(held + i,))
        for i, token in enumerate(token_ids)
    ]
    groups = tuple((1, this.gone.get(s.name, 0) if is_declared else 0, held) for s in this.states)
    step.sequences = [StepSequence(first_row=0, rows=len(token_ids), groups=groups)]
    if not held:
        paged = [group for group, state in enumerate(this.states) if state.kind != "ring"]
        pages = range(this.n_pages)
        step.updates = [(group, 1, page, this.n_pages - page) for group in paged for page in pages]
    return step


async def _lose(this: _Run, state: StateSpec, end: int) -> None:
    """Fills rows before `end` with bytes 255, NaN in every kv_type, if the group has a window."""
    first = this.gone.get(state.name, 0)
    if not state.window or end <= first:
        return
    this.gone[state.name] = end
    for page in range(first // PAGE_ROWS, -(-end // PAGE_ROWS)):
        unit, n_rows = this.n_pages - page, min(end - page * PAGE_ROWS, PAGE_ROWS)
        data = bytearray(await this.backend.read_state(state.name, unit))
        for at, each in _tensors(state):
            data[at : at + n_rows * each] = b"\xff" * (n_rows * each)
        await this.backend.write_state(state.name, unit, bytes(data))


def _tensors(state: StateSpec) -> Iterator[tuple[int, int]]:
    """Offset of each layer's tensors in a unit's bytes, and the bytes of a row."""
    at = 0
    for _, cols in state.tensors * len(state.layers):
        each = row_bytes(state.kv_type, cols)
        yield at, each
        at += each * state.unit_rows
