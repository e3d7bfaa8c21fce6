"""Runs prompts on a backend without an engine, in any chunks and batches; returns the logits of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.base import Backend, OpenSpec, OutputRow
from camelid.engine.allocation import PAGED, CacheAllocation
from camelid.engine.kv_cache import KVCacheManager
from camelid.model.arch import Model
from camelid.model.decoder import declare_states, lower
from camelid.plan.plan import Plan, StateSpec
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

ALL_LOGITS = frozenset({"all_logits"})
Logits = list[NDArray[np.float32]]  # for each prompt [T, V]
Sources = Mapping[str, str]
NOWHERE: Sources = {}  # for models with inline weights
Steps = Sequence[tuple[int, ...]]  # for each step: rows of each prompt


def make_plan(
    model: Model,
    n_rows: int,
    n_sequences: int = 1,
    *,
    context: int,
    features: frozenset[str] = ALL_LOGITS,
    kv_type: str = "f32",
    cuts: tuple[int, ...] = (),
    n_outputs: int = 0,
    dtype: str = "f32",
) -> Plan:
    """A mixed step of so many rows in all, in stages, its activations stored as `dtype`. One step may fill
    all pages, and asks for all rows, or for no more than `n_outputs`."""
    states = declare_states(model.spec, kv_type)
    paged = [state for state in states if state.kind in PAGED]
    pages = n_sequences * sum(-(-context // state.unit_rows) for state in paged)
    capacity = Capacity(rows=n_rows, sequences=n_sequences, outputs=n_outputs or n_rows, updates=pages)
    key = ProgramKey(entry="mixed", capacity=capacity, features=features)
    return lower(model, key, states, cuts=cuts, dtype=dtype)


def make_state(states: Sequence[StateSpec], *, context: int, n_sequences: int) -> KVCacheManager:
    """State after a first allocation was freed: the next allocations get pages in reverse order."""
    state = KVCacheManager(states, context=context, n_sequences=n_sequences)
    allocation = state.allocate(range(context))
    assert allocation is not None
    state.grow(allocation, 0, context)
    state.free(allocation, (), 0)
    return state


@dataclass(slots=True)
class Stream:
    """A prompt in progress: its allocation, its rows so far, its logits, and its adapter's slot."""

    prompt: Sequence[int]
    allocation: CacheAllocation
    held: int
    logits: list[Any]
    adapter: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """A backend with weights and state, and for each entry a program with its plan."""

    backend: Backend
    state: KVCacheManager
    programs: Mapping[str, tuple[Any, Plan]]

    def open_stream(self, prompt: Sequence[int], *, static_rows: int = 0) -> Stream:
        allocation = self.state.allocate(prompt, reuses=False, static_rows=static_rows)
        assert allocation is not None
        return Stream(prompt, allocation, 0, [])

    async def run(self, entry: str, step: Step) -> Sequence[OutputRow]:
        return await self.backend.read(self._submit(entry, step))

    def _submit(self, entry: str, step: Step) -> Any:
        program, plan = self.programs[entry]
        return self.backend.run(program, encode_step(step, plan.layout))

    async def ask(self, stream: Stream, n_rows: int, wanted: Sequence[int]) -> Sequence[OutputRow]:
        """Runs the next rows of a prompt in one step that outputs the `wanted` rows."""
        step = _make_step(self.state, [stream], (n_rows,))
        step.outputs = [step.outputs[i] for i in wanted]
        rows = await self.run("mixed", step)
        stream.held += n_rows
        self.state.advance(stream.allocation, stream.held)
        return rows

    async def feed(self, streams: Sequence[Stream], steps: Steps, *, drop: bool = False) -> Logits:
        """Runs the steps. `drop` submits each step once more before, with other tokens and unused outputs."""
        for counts in steps:
            step = _make_step(self.state, streams, counts)
            if drop:
                self._submit("mixed", _other_tokens(step))
            rows = await self.run("mixed", step)
            _retire(self.state, streams, counts, [np.array(row.logits) for row in rows])
        return [np.stack(stream.logits) for stream in streams]


async def start(
    backend: Backend,
    plans: Sequence[Plan],
    state: KVCacheManager,
    *,
    sources: Sources = NOWHERE,
    adapter: str = "",
) -> Started:
    """Loads the plans' weights and compiles their programs."""
    weights = {name: weight for plan in plans for name, weight in plan.weights().items()}
    await backend.open(OpenSpec(adapter=adapter))
    await backend.load(list(weights.values()), sources)
    await backend.allocate(state.states, state.sizes())
    return Started(backend, state, {plan.key.entry: (await backend.compile(plan), plan) for plan in plans})


def _make_step(state: KVCacheManager, streams: Sequence[Stream], counts: tuple[int, ...]) -> Step:
    step = Step()
    for stream, n in zip(streams, counts, strict=True):
        if n:
            _add_rows(step, state, stream, n)
    return step


def _add_rows(step: Step, state: KVCacheManager, stream: Stream, n: int) -> None:
    first, number, end = len(step.rows), len(step.sequences), stream.held + n
    change = state.grow(stream.allocation, stream.held, end)
    assert change is not None
    step.updates += change.updates
    for i in range(stream.held, end):
        row = StepRow(source=FROM_ID, value=stream.prompt[i], sequence=number, state_row=i, positions=(i,))
        step.outputs.append((len(step.rows), number, i + 1))
        step.rows.append(row)
    groups = state.words(stream.allocation, stream.held)
    step.sequences.append(
        StepSequence(first_row=first, rows=n, groups=groups, sampling=number, adapter=stream.adapter)
    )
    step.sampling.append(StepSampling())


def _other_tokens(step: Step) -> Step:
    rows = [row._replace(value=row.value ^ 1) for row in step.rows]
    return replace(step, rows=rows)


def _retire(
    state: KVCacheManager, streams: Sequence[Stream], counts: tuple[int, ...], logits: list[Any]
) -> None:
    rows = iter(logits)
    for stream, n in zip(streams, counts, strict=True):
        if n:
            state.advance(stream.allocation, stream.held + n)
            stream.held += n
            stream.logits += [next(rows) for _ in range(n)]


def cuts(chunk: int, *lengths: int) -> Steps:
    """All prompts in each step, up to `chunk` rows of each."""
    starts = range(0, max(lengths), chunk)
    return [tuple(max(0, min(chunk, n - start)) for n in lengths) for start in starts]
