"""Runs models of any source on the reference without an engine: several sequences, in chunks of any size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camelid.backends.base import Backend, OpenSpec
from camelid.backends.reference.backend import ReferenceBackend
from camelid.formats.gguf import open_gguf
from camelid.formats.hf_config import open_hf
from camelid.formats.source import drive
from camelid.model.arch import Model
from camelid.model.checkpoint import checkpoint_of_gguf
from camelid.model.decoder import declare_states, lower
from camelid.model.facts import at_context
from camelid.model.hf import checkpoint_of_hf
from camelid.model.read import read_model
from camelid.plan.fuse import fuse
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
from camelid.state import Seat, StateManager

Logits = list[NDArray[np.float32]]  # of each sequence [T, V]
MAX_ROWS = 64  # rows a step


@dataclass(frozen=True)
class Loaded:
    """A model and where the bytes of its weights are."""

    model: Model
    sources: Mapping[str, str]


def load_hf(path: Path) -> Loaded:
    directory = open_hf(path)
    model = drive(read_model(checkpoint_of_hf(directory)), _no_bytes)
    return Loaded(model, {name: str(file) for name, file in directory.files.items()})


def load_gguf(path: Path) -> Loaded:
    with path.open("rb") as file:
        read = read_model(checkpoint_of_gguf(open_gguf(path)))
        model = drive(read, lambda offset, n: (file.seek(offset), file.read(n))[1])
    return Loaded(model, {"model": str(path)})


def _no_bytes(offset: int, n: int) -> bytes:
    raise AssertionError("a directory's facts travel inside its checkpoint")


@dataclass
class Running:
    """One sequence: its ids, its seat, rows done so far."""

    token_ids: Sequence[int]
    seat: Seat
    done: int = 0


async def run(
    backend: Backend,
    loaded: Loaded,
    sequences: Sequence[Sequence[int]],
    chunk: int = MAX_ROWS,
    *,
    context: int = 0,
    fused: frozenset[str] = frozenset(),
    adapter: str = "",
) -> Logits:
    """Logits of every row; all sequences in each step, up to `chunk` rows of each."""
    longest = max(map(len, sequences))
    model = at_context(loaded.model, context or longest)
    key = ProgramKey(
        entry="mixed",
        capacity=Capacity(
            rows=chunk * len(sequences), sequences=len(sequences), outputs=chunk * len(sequences), updates=64
        ),
        features=frozenset({"all_logits"}),
    )
    plan = fuse(lower(model, key), fused)
    await backend.open(OpenSpec(adapter=adapter))
    await backend.load(list(plan.weights().values()), loaded.sources)
    state = StateManager(declare_states(model.spec), context=longest, n_sequences=len(sequences))
    await backend.allocate(state.states, state.sizes())
    program = await backend.compile(plan)
    seats = [state.open_seat(len(ids)) for ids in sequences]
    running = [Running(ids, seat) for ids, seat in zip(sequences, seats, strict=True) if seat]
    logits: list[list[Any]] = [[] for _ in sequences]
    while any(r.done < len(r.token_ids) for r in running):
        step, owners = _step(running, state, chunk)
        rows = await backend.read(backend.run(program, encode_step(step, plan.layout)))
        for owner, row in zip(owners, rows, strict=True):
            logits[owner].append(np.array(row.logits))
    await backend.close()
    return [np.stack(rows) for rows in logits]


def _step(running: Sequence[Running], state: StateManager, chunk: int) -> tuple[Step, list[int]]:
    step, owners = Step(), list[int]()
    for number, r in enumerate(running):
        ids = r.token_ids[r.done : r.done + chunk]
        first = len(step.rows)
        if ids:
            step.updates += state.grow(r.seat, r.done + len(ids))
        groups = state.words(r.seat, r.done)
        step.sequences.append(StepSequence(first_row=first, rows=len(ids), groups=groups, sampling=number))
        step.sampling.append(StepSampling())
        for i, token_id in enumerate(ids):
            at = r.done + i
            row = StepRow(source=FROM_ID, value=token_id, sequence=number, state_row=at, positions=(at,))
            step.rows.append(row)
            step.outputs.append((first + i, number, at + 1))
            owners.append(number)
        r.done += len(ids)
    return step, owners


def reference_logits(
    loaded: Loaded, sequences: Sequence[Sequence[int]], chunk: int = MAX_ROWS, **how: Any
) -> Logits:
    return asyncio.run(run(ReferenceBackend(), loaded, sequences, chunk, **how))
