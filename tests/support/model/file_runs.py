"""Loads models of any file format and runs them on a backend without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.model.runs import Logits, Steps, cuts, make_plan, make_state, start

from camelid.backends.base import Backend
from camelid.backends.reference.backend import ReferenceBackend
from camelid.formats.gguf import open_gguf
from camelid.formats.hf_config import open_hf
from camelid.formats.source import drive
from camelid.loading.hf_directory import checkpoint_of_directory
from camelid.model.arch import Model
from camelid.model.checkpoint import checkpoint_of_gguf
from camelid.model.read import read_model
from camelid.model.spec_reader import at_context
from camelid.plan.fuse import fuse
from camelid.plan.plan import Plan

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
) -> Logits:
    """Logits of every row: in the given steps, or all sequences in each step, up to `chunk` rows of each."""
    lengths = [len(ids) for ids in sequences]
    steps, longest = steps or cuts(chunk, *lengths), max(lengths)
    model = at_context(loaded.model, context or longest)
    stages = backend.capabilities().cuts
    whole = make_plan(model, max(map(sum, steps)), len(sequences), context=longest, cuts=stages, dtype=dtype)
    plan = fuse(edit(whole), fused)
    state = make_state(plan.states, context=longest, n_sequences=len(sequences))
    started = await start(backend, [plan], state, sources=loaded.sources, adapter=adapter)
    logits = await started.feed([started.open_stream(ids) for ids in sequences], steps)
    await backend.close()
    return logits


def reference_logits(
    loaded: Loaded, sequences: Sequence[Sequence[int]], chunk: int = MAX_ROWS, **how: Any
) -> Logits:
    return asyncio.run(run(ReferenceBackend(), loaded, sequences, chunk, **how))
