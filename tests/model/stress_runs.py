"""Runs stress shapes on the reference: prompts in any cut and company, steps dropped, plans edited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from camelid.backends.reference.backend import ReferenceBackend
from camelid.model.arch import Model
from camelid.model.decoder import declare_states, lower
from camelid.model.spec import ModelSpec
from camelid.plan.plan import Op, Plan, View
from camelid.plan.step import (
    FROM_ID,
    Capacity,
    ProgramKey,
    Step,
    StepRow,
    StepSampling,
    StepSequence,
    encode_step,
)
from camelid.plan.weights import inline_f32
from camelid.state import PAGED, Seat, StateManager

CONTEXT = 64
Edit = Callable[[Plan], Plan]
Steps = Sequence[tuple[int, ...]]  # of each step: how many rows of each prompt


def random_weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Any]:
    """Float32 values by name: gains near 1, matrices that keep the size of what they multiply."""
    rng = np.random.default_rng(seed)

    def values(name: str, shape: tuple[int, ...]) -> Any:
        drawn = rng.standard_normal(shape)
        return 1.0 + 0.3 * drawn if name.endswith("norm") else drawn * shape[-1] ** -0.5

    return {name: values(name, shape).astype(np.float32) for name, shape in shapes.items()}


def make_model(spec: ModelSpec, weights: Mapping[str, Any]) -> Model:
    return Model(spec, {name: inline_f32(name, a.ravel().tolist(), a.shape) for name, a in weights.items()})


def make_plan(model: Model, n_rows: int, n_sequences: int = 1) -> Plan:
    paged = [state for state in declare_states(model.spec) if state.kind in PAGED]
    pages = n_sequences * sum(CONTEXT // state.unit_rows for state in paged)
    capacity = Capacity(rows=n_rows, sequences=n_sequences, outputs=n_rows, updates=pages)
    return lower(model, ProgramKey(entry="mixed", capacity=capacity, features=frozenset({"all_logits"})))


@dataclass(slots=True)
class Stream:
    """A prompt on its way: the seat that it holds, how many of its rows were run, their logits."""

    prompt: Sequence[int]
    seat: Seat
    held: int
    logits: list[Any]


def run(
    model: Model,
    prompts: Sequence[Sequence[int]],
    steps: Steps,
    *,
    edit: Edit | None = None,
    drop: bool = False,
) -> list[Any]:  # [T, V] of each prompt
    """Logits of every row. Slots are poisoned at first; `drop` runs each step once more before, with other
    tokens, as one whose rows are not wanted after all."""
    return asyncio.run(_run(model, prompts, steps, edit or (lambda plan: plan), drop))


async def _run(
    model: Model, prompts: Sequence[Sequence[int]], steps: Steps, edit: Edit, drop: bool
) -> list[Any]:
    plan = edit(make_plan(model, max(map(sum, steps)), len(prompts)))
    state = StateManager(plan.states, context=CONTEXT, n_sequences=len(prompts))
    backend = ReferenceBackend()
    await backend.load(list(plan.weights().values()), {})
    await backend.allocate(plan.states, state.sizes())
    await _poison(backend, state)
    program = await backend.compile(plan)
    streams = [_stream(state, prompt) for prompt in prompts]
    for counts in steps:
        step = make_step(state, streams, counts)
        if drop:
            backend.run(program, encode_step(_other_tokens(step), plan.layout))
        rows = await backend.read(backend.run(program, encode_step(step, plan.layout)))
        retire(streams, counts, [np.asarray(row.logits) for row in rows])
    return [np.stack(stream.logits) for stream in streams]


def _stream(state: StateManager, prompt: Sequence[int]) -> Stream:
    seat = state.open_seat(len(prompt))
    assert seat is not None
    return Stream(prompt, seat, 0, [])


async def _poison(backend: ReferenceBackend, state: StateManager) -> None:
    for name, pool in state.sizes().items():
        for unit in range(pool.units if name == "recurrent" else 0):
            n_floats = len(await backend.read_state(name, unit)) // 4
            await backend.write_state(name, unit, np.full(n_floats, np.nan, np.float32).tobytes())


def make_step(state: StateManager, streams: Sequence[Stream], counts: tuple[int, ...]) -> Step:
    step = Step()
    for stream, n in zip(streams, counts, strict=True):
        if n:
            _add_rows(step, state, stream, n)
    return step


def _add_rows(step: Step, state: StateManager, stream: Stream, n: int) -> None:
    first, number, end = len(step.rows), len(step.sequences), stream.held + n
    step.updates += state.grow(stream.seat, end)
    for i in range(stream.held, end):
        row = StepRow(source=FROM_ID, value=stream.prompt[i], sequence=number, state_row=i, positions=(i,))
        step.outputs.append((len(step.rows), number, i + 1))
        step.rows.append(row)
    groups = state.words(stream.seat, stream.held)
    step.sequences.append(StepSequence(first_row=first, rows=n, groups=groups, sampling=number))
    step.sampling.append(StepSampling())


def _other_tokens(step: Step) -> Step:
    rows = [replace(row, value=row.value ^ 1) for row in step.rows]
    return replace(step, rows=rows)


def retire(streams: Sequence[Stream], counts: tuple[int, ...], logits: list[Any]) -> None:
    rows = iter(logits)
    for stream, n in zip(streams, counts, strict=True):
        if n:
            StateManager.advance(stream.seat)
            stream.held += n
            stream.logits += [next(rows) for _ in range(n)]


def edit_ops(plan: Plan, change: Callable[[Op], Op | None]) -> Plan:
    """The plan with each op replaced; None leaves it out."""
    (stage,) = plan.stages
    ops = tuple(changed for op in stage.ops if (changed := change(op)) is not None)
    assert ops != stage.ops, "the edit found nothing to do"
    return replace(plan, stages=(replace(stage, ops=ops),))


def bypass(plan: Plan, is_meant: Callable[[Op], bool], role: str) -> Plan:
    """Without those ops: who read what they wrote reads their operand of this role."""
    instead: dict[View, View] = {}

    def change(op: Op) -> Op | None:
        operands = tuple((r, instead.get(o, o) if isinstance(o, View) else o) for r, o in op.operands)
        op = replace(op, operands=operands)
        if is_meant(op):
            instead[op.view("y")] = op.view(role)
            return None
        return op

    return edit_ops(plan, change)


def with_attr(plan: Plan, name: str, *, where: Callable[[Op], bool] | None = None, **changes: Any) -> Plan:
    """The plan with other attributes on the ops of that name, or on those of them that are meant."""

    def change(op: Op) -> Op:
        attrs = tuple((a, changes.get(a, value)) for a, value in op.attrs)
        return replace(op, attrs=attrs) if op.name == name and (where is None or where(op)) else op

    return edit_ops(plan, change)


def reads(op: Op, role: str, buffer: str) -> bool:
    """Whether the operand of this role is a buffer of that name, whatever its number."""
    return op.has(role) and op.view(role).buffer.name.split(".")[0] == buffer


def cuts(n: int, chunk: int) -> Iterator[tuple[int]]:
    """One prompt of n rows in chunks."""
    return ((min(chunk, n - start),) for start in range(0, n, chunk))
