"""Checks of backends with adapters: bits of rows without one, the reference's logits, groups added later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.hf_models import nmse
from tests.support.model.file_runs import Loaded, load_gguf
from tests.support.model.runs import Logits, Started, Steps, cuts, make_plan, make_state, start
from tests.support.parity.adapter_runs import bits, run
from tests.support.parity.cases_adapters import adapter_cases

from camelid.backends.base import Backend, PoolSize
from camelid.backends.common.op_runner import OpCase, OpResult
from camelid.backends.reference.backend import ReferenceBackend
from camelid.errors import BackendError
from camelid.loading.quantize.run import QuantizeOptions, quantize
from camelid.model.spec_reader import at_context
from camelid.plan.adapters import AdapterLayout, adapter_layout
from camelid.plan.op_rows_adapters import LOW_RANK

VOCAB = 48  # of the smallest model
LENGTHS = (19, 7, 12, 3)
PROMPTS = [[(7 * i * i + 3 * i + number) % VOCAB for i in range(n)] for number, n in enumerate(LENGTHS)]
NONE, SLOTS = (0, 0, 0, 0), (2, 0, 1, 1)  # of each prompt
MANY = 20  # rows of a capacity whose kernels are those of prompts


def _steps() -> Steps:
    """Prompts beside prompts and single rows, then single rows of all."""
    chunks = [(9, 4, 5, 1), (7, 1, 1, 1)]
    left = [n - sum(chunk[i] for chunk in chunks) for i, n in enumerate(LENGTHS)]
    return [*chunks, *(tuple(int(i < n) for n in left) for i in range(max(left)))]


# By name: steps of up to 19 rows, and of up to 8, for which kernels differ.
STEPS: Mapping[str, Steps] = {"many": _steps(), "few": cuts(2, *LENGTHS)}


def check_adapters(
    backend: Backend,
    loaded: Loaded,
    fused: frozenset[str] = frozenset(),
    *,
    steps: str = "many",
    bound: float | None = None,
) -> None:
    """Asserts that rows without an adapter have the bits of the program without any, alone and among others,
    and that all rows equal the reference's within an NMSE of `bound` (None: not compared).
    """
    runs = run(backend, loaded, PROMPTS, STEPS[steps], [NONE, SLOTS], fused=fused)
    none, mixed = runs.adapted
    assert bits(none) == bits(runs.plain)
    changed = [a != b for a, b in zip(bits(mixed), bits(runs.plain), strict=True)]
    assert changed == [slot > 0 for slot in SLOTS]
    if bound is not None:
        (want,) = run(ReferenceBackend(), loaded, PROMPTS, STEPS[steps], [SLOTS]).adapted
        assert nmse(mixed, want) <= bound < nmse(runs.plain, want)


def quantized(source: Path, folder: Path, to: str) -> Loaded:
    """A model in a type of `camelid quantize`."""
    quantize(source, folder / f"{to}.gguf", QuantizeOptions(to=to))
    return load_gguf(folder / f"{to}.gguf")


def check_company(run_cases: Callable[[list[OpCase]], Sequence[OpResult]]) -> None:
    """Asserts that a row has the same bits alone, in programs for few and for many rows, as beside rows of
    other slots; and that rows without an adapter keep those that they had.
    """
    for case in (case for case in adapter_cases() if case.op in LOW_RANK and not case.of_outputs):
        together, *each = [one.views["y"] for one in run_cases([case, *_alone(case)])]
        for row, owner in enumerate(_owners(case)):
            one, other = each[2 * row][0], each[2 * row + 1][0]
            assert np.array_equal(one, together[row]) and np.array_equal(other, together[row])
            assert case.adapter_slots[owner] or np.array_equal(one, case.views["y"][row])


def _alone(case: OpCase) -> Iterator[OpCase]:
    """Each row of a case alone, in programs for one row and for many."""
    for row, owner in enumerate(_owners(case)):
        views = {role: array[row : row + 1] for role, array in case.views.items()}
        one = replace(case, views=views, lengths=(1,), adapter_slots=(case.adapter_slots[owner],))
        yield one
        yield replace(one, spare=MANY)


def _owners(case: OpCase) -> list[int]:
    """The sequence of each row."""
    return [number for number, n in enumerate(case.lengths) for _ in range(n)]


def check_added_groups(backend: Backend, loaded: Loaded) -> None:
    """Asserts that groups of state added between two steps change no unit and no bit, and that programs stay
    valid until a known name replaces all state.
    """
    whole, parts = asyncio.run(_added(backend, loaded))
    assert bits(parts) == bits(whole)


async def _added(backend: Backend, loaded: Loaded) -> tuple[Logits, Logits]:
    """Logits of prompts in one go, and with groups added between two steps."""
    steps, model = STEPS["few"], at_context(loaded.model, max(LENGTHS))
    plan = make_plan(model, max(map(sum, steps)), len(LENGTHS), context=max(LENGTHS))
    state = make_state(plan.states, context=max(LENGTHS), n_sequences=len(LENGTHS))
    layout = adapter_layout([plan], 8)
    pools = {spec.name: PoolSize(2) for spec in layout.states}
    try:
        started = await start(backend, [plan], state, sources=loaded.sources)
        streams = [started.open_stream(ids) for ids in PROMPTS]
        whole = await started.feed(streams, steps)
        for stream in streams:
            state.free(stream.allocation, (), stream.held)
        streams = [started.open_stream(ids) for ids in PROMPTS]
        await started.feed(streams, steps[:3])
        before = await _units(backend, started)
        await backend.allocate(layout.states, pools)
        assert await _units(backend, started) == before
        await _check_slots(backend, layout)
        parts = await started.feed(streams, steps[3:])
        await backend.allocate(layout.states[:1], pools)
        state.free(streams[0].allocation, (), streams[0].held)
        with pytest.raises(BackendError, match="compile it again"):
            await started.feed([started.open_stream(PROMPTS[0])], [(1,)])
    finally:
        await backend.close()
    return whole, parts


async def _units(backend: Backend, started: Started) -> list[bytes]:
    """All units but the first, which is trash."""
    sizes = started.state.sizes()
    return [await backend.read_state(name, i) for name, size in sizes.items() for i in range(1, size.units)]


async def _check_slots(backend: Backend, layout: AdapterLayout) -> None:
    """Slots are zeros at first, and are read as they were written."""
    for spec in layout.states:
        assert await backend.read_state(spec.name, 1) == bytes(spec.unit_bytes)
        data = np.arange(spec.unit_bytes // 4, dtype=np.float32).tobytes()
        await backend.write_state(spec.name, 1, data)
        assert await backend.read_state(spec.name, 1) == data
