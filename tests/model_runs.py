"""Runs a GGUF model on a backend without an engine: prompts in, rows of logits out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from camelid.backends.base import Backend, OpenSpec, OutputRow, Pool
from camelid.formats.gguf import open_gguf
from camelid.formats.source import drive
from camelid.model.arch import Model
from camelid.model.decoder import lower
from camelid.model.read import read_model
from camelid.plan.fuse import fuse
from camelid.plan.plan import Plan
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
PAGES = 8


def load_model(path: Path) -> Model:
    """Parses the file and answers the model row's requests for bytes."""
    with path.open("rb") as file:
        return drive(read_model(open_gguf(path)), lambda offset, n: (file.seek(offset), file.read(n))[1])


def make_plan(model: Model, capacity: int, *, is_fused: bool = False, features: Any = ALL_LOGITS) -> Plan:
    counts = Capacity(rows=capacity, sequences=1, outputs=capacity, updates=PAGES)
    plan = lower(model, ProgramKey(entry="mixed", capacity=counts, features=features))
    return fuse(plan, {"add_norm", "linear_glu"}) if is_fused else plan


async def open_on(backend: Backend, plan: Plan, path: Path, adapter: str = "") -> Any:
    await backend.open(OpenSpec(adapter=adapter))
    await backend.load(list(plan.weights().values()), {"model": str(path)})
    await backend.allocate(plan.states, {"kv": Pool(PAGES + 1, 2, PAGES), "tokens": Pool(2)})
    return await backend.compile(plan)


def chunk_step(token_ids: Sequence[int], start: int) -> Step:
    """Rows `start ..` of one sequence, whose pages lie in reverse order; every row is an output."""
    rows = [
        StepRow(source=FROM_ID, value=token_id, sequence=0, state_row=start + i, positions=(start + i,))
        for i, token_id in enumerate(token_ids)
    ]
    sequence = StepSequence(first_row=0, rows=len(rows), groups=((1, 0, start), (1, 1, start)))
    updates = [(0, 1, i, PAGES - i) for i in range(PAGES)] if start == 0 else []
    outputs = [(i, 0, start + i + 1) for i in range(len(rows))]
    sampling = [StepSampling()]
    return Step(rows=rows, sequences=[sequence], outputs=outputs, sampling=sampling, updates=updates)


async def run_chunks(
    backend: Backend, path: Path, token_ids: Sequence[int], chunks: Sequence[int], **how: Any
) -> list[OutputRow]:
    """The output rows of a prompt given in chunks of these sizes."""
    adapter = how.pop("adapter", "")
    plan = make_plan(load_model(path), max(chunks), **how)
    program = await open_on(backend, plan, path, adapter)
    rows: list[OutputRow] = []
    for n in chunks:
        step = chunk_step(token_ids[len(rows) : len(rows) + n], len(rows))
        rows += await backend.read(backend.run(program, encode_step(step, plan.layout)))
    await backend.close()
    return rows


def logits_of(rows: Sequence[OutputRow]) -> Any:
    return np.stack([np.asarray(row.logits) for row in rows])  # [T, V]
