"""Loads models of any file format and runs them on a backend without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.hf_models import halves
from tests.support.model.runs import Logits, Steps, cuts, make_plan, make_state, start
from tests.support.model.stress_encoder import places, whole_step

from camelid.backends.base import Backend
from camelid.backends.reference.backend import ReferenceBackend
from camelid.formats.gguf import open_gguf
from camelid.formats.hf_config import open_hf
from camelid.formats.source import drive
from camelid.loading.hf_directory import checkpoint_of_directory
from camelid.model.arch import Model
from camelid.model.checkpoint import checkpoint_of_gguf
from camelid.model.decoder import declare_states, lower
from camelid.model.read import read_model
from camelid.model.spec_reader import at_context
from camelid.plan.fuse import fuse
from camelid.plan.plan import PAGE_ROWS, Plan
from camelid.plan.step import Capacity, ProgramKey

MAX_ROWS = 64  # rows per step


@dataclass(frozen=True)
class Loaded:
    """A model with the sources of its weights."""

    model: Model
    sources: Mapping[str, str]


def load_hf(path: Path) -> Loaded:
    directory = open_hf(path)
    model = drive(read_model(checkpoint_of_directory(directory)), _no_bytes)
    return Loaded(model, {name: str(file) for name, file in directory.files.items()})


def load_gguf(path: Path) -> Loaded:
    with path.open("rb") as file:
        read = read_model(checkpoint_of_gguf(open_gguf(path)))
        model = drive(read, lambda offset, n: (file.seek(offset), file.read(n))[1])
    return Loaded(model, {"model": str(path)})


def _no_bytes(offset: int, n: int) -> bytes:
    raise AssertionError("a directory's facts are part of its checkpoint")


async def run(
    backend: Backend,
    loaded: Loaded,
    sequences: Sequence[Sequence[int]],
    chunk: int = MAX_ROWS,
    *,
    steps: Steps = (),
    context: int = 0,
    fused: frozenset[str] = frozenset(),
    adapter: str = "",
    edit: Callable[[Plan], Plan] = lambda plan: plan,
    dtype: str = "f32",
    types: Sequence[Sequence[int]] = (),
) -> Logits:
    """Logits of every row: in the given steps, or all sequences in each step, up to `chunk` rows of each.

    The backend is closed, after an error too.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(backend.close)
        lengths = [len(ids) for ids in sequences]
        steps, longest = steps or cuts(chunk, *lengths), max(lengths)
        model = at_context(loaded.model, context or longest)
        if model.spec.is_encoder_decoder:
            how = {"chunk": chunk, "fused": fused, "adapter": adapter, "edit": edit, "dtype": dtype}
            return await transduce(backend, replace(loaded, model=model), sequences, **how)
        if model.spec.embeds:
            how = {"fused": fused, "adapter": adapter, "edit": edit, "dtype": dtype}
            return await encode(backend, replace(loaded, model=model), sequences, types, **how)
        stages = backend.capabilities().cuts
        whole = make_plan(
            model, max(map(sum, steps)), len(sequences), context=longest, cuts=stages, dtype=dtype
        )
        plan = fuse(edit(whole), fused)
        state = make_state(plan.states, context=longest, n_sequences=len(sequences))
        started = await start(backend, [plan], state, sources=loaded.sources, adapter=adapter)
        return await started.feed([started.open_stream(ids) for ids in sequences], steps)


async def transduce(
    backend: Backend,
    loaded: Loaded,
    sequences: Sequence[Sequence[int]],
    *,
    chunk: int,
    fused: frozenset[str],
    adapter: str,
    edit: Callable[[Plan], Plan],
    dtype: str,
) -> Logits:
    """Logits of the decoder's rows of each sequence, after one step of all encoders."""
    model, pairs, n = loaded.model, [halves(ids) for ids in sequences], len(sequences)
    longest, steps = max(map(len, sequences)), cuts(chunk, *(len(target) for _, target in pairs))
    encoder = encode_plan(model, sum(len(source) for source, _ in pairs), n, dtype)
    decoder = make_plan(model, max(map(sum, steps)), n, context=longest, dtype=dtype)
    state = make_state(decoder.states, context=longest, n_sequences=n)
    plans = [fuse(edit(plan), fused) for plan in (encoder, decoder)]
    started = await start(backend, plans, state, sources=loaded.sources, adapter=adapter)
    streams = [started.open_stream(target, static_rows=len(source)) for source, target in pairs]
    step = whole_step(state, streams, [(source, places(len(source))) for source, _ in pairs])
    assert await started.run("encode", step) == []
    return await started.feed(streams, steps)


def encode_plan(model: Model, n_rows: int, n_sequences: int = 1, dtype: str = "f32") -> Plan:
    """A step of so many rows in all; its outputs are all rows, or one per sequence with a pooling. With a
    decoder behind the encoder, the step may fill a page more than the rows of each sequence.
    """
    assert model.spec.encoder is not None
    n_outputs = n_sequences if model.spec.encoder.pooling else n_rows
    n_pages = n_sequences - (-n_rows // PAGE_ROWS) if model.spec.layers else 0
    capacity = Capacity(rows=n_rows, sequences=n_sequences, outputs=n_outputs, updates=n_pages)
    key = ProgramKey(entry="encode", capacity=capacity)
    return lower(model, key, declare_states(model.spec), dtype=dtype)


async def encode(
    backend: Backend,
    loaded: Loaded,
    sequences: Sequence[Sequence[int]],
    types: Sequence[Sequence[int]],
    *,
    fused: frozenset[str],
    adapter: str,
    edit: Callable[[Plan], Plan],
    dtype: str,
) -> Logits:
    """Hidden states of every row, or the pooled row or scores of each sequence, all in one step."""
    encoder, types = loaded.model.spec.encoder, types or [[0] * len(ids) for ids in sequences]
    plan = fuse(edit(encode_plan(loaded.model, sum(map(len, sequences)), len(sequences), dtype)), fused)
    state = make_state(plan.states, context=max(map(len, sequences)), n_sequences=len(sequences))
    started = await start(backend, [plan], state, sources=loaded.sources, adapter=adapter)
    streams = [started.open_stream(ids) for ids in sequences]
    places = [
        (ids, [(i, t)[: plan.layout.n_channels] for i, t in enumerate(kinds)])
        for ids, kinds in zip(sequences, types, strict=True)
    ]
    step = whole_step(state, streams, places)
    each = [(i, row.sequence, 0) for i, row in enumerate(step.rows)]
    is_pooled = encoder is not None and encoder.pooling != ""
    firsts = [(s.first_row, i, 0) for i, s in enumerate(step.sequences)]
    step.outputs = firsts if is_pooled else each
    rows = np.stack([np.asarray(row.logits) for row in await started.run("encode", step)])
    counts = [1 if is_pooled else len(ids) for ids in sequences]
    return np.split(rows, np.cumsum(counts)[:-1])


def reference_logits(
    loaded: Loaded, sequences: Sequence[Sequence[int]], chunk: int = MAX_ROWS, **how: Any
) -> Logits:
    return asyncio.run(run(ReferenceBackend(), loaded, sequences, chunk, **how))
