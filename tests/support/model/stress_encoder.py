"""Runs models with an encoder: whole requests in one step, then a decoder's rows in separate steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.support.model.runs import Steps, Stream, make_plan, make_state, start
from tests.support.model.stress_runs import CONTEXT, Edit

from camelid.backends.reference.backend import ReferenceBackend
from camelid.engine.kv_cache import KVCacheManager
from camelid.model.arch import Model
from camelid.model.decoder import declare_states, lower
from camelid.plan.plan import Plan
from camelid.plan.step import (
    FROM_ID,
    Capacity,
    ProgramKey,
    Step,
    StepRow,
    StepSampling,
    StepSequence,
)

PAGES = CONTEXT // 16
Places = Sequence[tuple[int, ...]]  # for each row: its position, its type
Request = tuple[Sequence[int], Places]
Pair = tuple[Sequence[int], Sequence[int]]  # encoder ids, decoder ids


def encode_plan(model: Model, n_rows: int, n_sequences: int, kv_type: str = "f32") -> Plan:
    capacity = Capacity(rows=n_rows, sequences=n_sequences, outputs=n_rows, updates=n_sequences * PAGES)
    key = ProgramKey(entry="encode", capacity=capacity)
    return lower(model, key, declare_states(model.spec, kv_type))


def places(n: int) -> Places:
    return [(i,) for i in range(n)]


def embed(
    model: Model, requests: Sequence[Request], *, edit: Edit | None = None, each_row: bool = False
) -> list[Any]:
    """Outputs of one step for all requests: an embedding [C] per request, or one per row [T, C]."""
    return asyncio.run(_embed(model, requests, edit or (lambda plan: plan), each_row))


async def _embed(model: Model, requests: Sequence[Request], edit: Edit, each_row: bool) -> list[Any]:
    plan = edit(encode_plan(model, sum(len(ids) for ids, _ in requests), len(requests)))
    state = make_state(plan.states, context=CONTEXT, n_sequences=len(requests))
    started = await start(ReferenceBackend(), [plan], state)
    streams = [started.open_stream(ids, static_rows=len(ids)) for ids, _ in requests]
    step = whole_step(state, streams, requests)
    firsts = [(sequence.first_row, n, 0) for n, sequence in enumerate(step.sequences)]
    step.outputs = [(i, row.sequence, 0) for i, row in enumerate(step.rows)] if each_row else firsts
    found = await started.run("encode", step)
    values = [np.asarray(row.logits) for row in found]
    assert {(row.token_id, row.status) for row in found} == {(0, "ok")}
    if not each_row:
        return values
    return np.split(np.stack(values), np.cumsum([len(ids) for ids, _ in requests])[:-1])


def decode(
    model: Model,
    pairs: Sequence[Pair],
    steps: Steps,
    *,
    edit: Edit | None = None,
    cross_rows: int = 0,
    kv_type: str = "f32",
) -> list[Any]:  # [T, V] for each pair
    """Logits of every decoder row, after all encoders ran in one step.

    `cross_rows` is added to the encoder length that decoders receive.
    """
    return asyncio.run(_decode(model, pairs, steps, edit or (lambda plan: plan), cross_rows, kv_type))


async def _decode(
    model: Model, pairs: Sequence[Pair], steps: Steps, edit: Edit, cross_rows: int, kv_type: str
) -> list[Any]:
    encoder = edit(encode_plan(model, sum(len(source) for source, _ in pairs), len(pairs), kv_type))
    decoder = edit(make_plan(model, max(map(sum, steps)), len(pairs), context=CONTEXT, kv_type=kv_type))
    states = declare_states(model.spec, kv_type)
    state = make_state(states, context=CONTEXT, n_sequences=len(pairs))
    started = await start(ReferenceBackend(), [encoder, decoder], state)
    streams = [started.open_stream(target, static_rows=len(source)) for source, target in pairs]
    requests = [(source, places(len(source))) for source, _ in pairs]
    assert await started.run("encode", whole_step(state, streams, requests)) == []
    for stream in streams:
        stream.allocation.static_rows += cross_rows
    return await started.feed(streams, steps)


def whole_step(state: KVCacheManager, streams: Sequence[Stream], requests: Sequence[Request]) -> Step:
    """A step with all rows of the requests, and no outputs."""
    step = Step()
    for number, (stream, (ids, at)) in enumerate(zip(streams, requests, strict=True)):
        first = len(step.rows)
        change = state.grow(stream.allocation, 0, 0)
        assert change is not None
        step.updates += change.updates
        groups = state.words(stream.allocation, 0)
        step.sequences.append(StepSequence(first_row=first, rows=len(ids), groups=groups, sampling=number))
        step.sampling.append(StepSampling())
        row = StepRow(source=FROM_ID, value=0, sequence=number, state_row=0, positions=())
        step.rows += [row._replace(value=ids[i], state_row=i, positions=at[i]) for i in range(len(ids))]
    return step
