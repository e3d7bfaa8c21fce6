"""Whole models with activations in f16 and bf16: an error the size of their rounding, half the bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.llama_cases import CASES, FILE, TOKEN_IDS
from tests.support.model.file_runs import Loaded, load_gguf, run
from tests.support.model.runs import make_plan
from tests.support.parity.compare import nmse

from camelid.backends.base import Ticket
from camelid.backends.reference.backend import ReferenceBackend
from camelid.plan.memory import buffer_bytes, plan_arena
from camelid.plan.plan import Plan

UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7}  # of the last place, relative to the number
FUSED = frozenset({"add_norm", "linear_glu"})


class Kept(ReferenceBackend):
    """A backend that keeps the rows of every buffer after the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Mapping[str, Any] = {}

    async def read(self, ticket: Ticket) -> Any:
        self.rows = ticket.handle.values
        return await super().read(ticket)

    async def close(self) -> None:
        """Keeps its rows for later reads."""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: Any) -> Loaded:
    folder: Path = tmp_path_factory.mktemp("dtypes")
    case = CASES[1]
    case.write(folder / "m.gguf", json.loads(FILE.read_text())[case.name]["rope_factors"])
    return load_gguf(folder / "m.gguf")


def logits(loaded: Loaded, dtype: str, backend: Any = None, chunk: int = 48, **how: Any) -> Any:
    return asyncio.run(run(backend or Kept(), loaded, [TOKEN_IDS], chunk, dtype=dtype, **how))[0]


def stores(plan: Plan) -> int:
    """Number of written views: each is rounded once."""
    return sum(op.name not in ("tables", "kv_write", "sample") for op in plan.ops)


def test_the_error_of_logits_matches_the_rounding(llama: Loaded) -> None:
    """One store's rounding has an NMSE of at most unit^2 / 12. The roundings of all stores add up, weighted
    by norms and softmax: the sum exceeds one store's, stays below four times all, and scales with unit^2.
    """
    exact, found = logits(llama, "f32"), dict[str, float]()
    n_stores = stores(make_plan(llama.model, 48, context=48))
    for dtype, unit in UNITS.items():
        found[dtype] = nmse(logits(llama, dtype), exact)
        print(f"{dtype}: NMSE {found[dtype]:.1e} after {n_stores} stores of {unit**2 / 12:.1e}")
        assert unit**2 / 12 < found[dtype] < 4 * n_stores * unit**2 / 12
    assert 0.7 < found["bf16"] / found["f16"] / (UNITS["bf16"] / UNITS["f16"]) ** 2 < 1.4


@pytest.mark.parametrize("dtype", UNITS)
def test_chunks_and_single_rows_give_identical_bits(llama: Loaded, dtype: str) -> None:
    whole = logits(llama, dtype)
    for chunk in (13, 1):
        assert np.array_equal(logits(llama, dtype, chunk=chunk), whole)


@pytest.mark.parametrize("dtype", UNITS)
def test_a_fused_plan_rounds_less_often(llama: Loaded, dtype: str) -> None:
    plain, fused = logits(llama, dtype), logits(llama, dtype, fused=FUSED)
    exact = logits(llama, "f32")
    assert 0.0 < nmse(fused, plain) < 2 * nmse(plain, exact)
    assert nmse(fused, exact) < 2 * nmse(plain, exact)
    assert np.array_equal(logits(llama, dtype, fused=frozenset({"add_norm"})), plain), (
        "add_norm changed a store"
    )


@pytest.mark.parametrize("dtype", UNITS)
def test_the_arena_halves(llama: Loaded, dtype: str) -> None:
    """Except one row's logits and padding."""
    small, full = (make_plan(llama.model, 64, context=64, n_outputs=1, dtype=d) for d in (dtype, "f32"))
    logits_bytes = buffer_bytes(full.ops[-1].view("logits").buffer, full)
    sizes = [plan_arena(plan).n_bytes for plan in (small, full)]
    assert abs(sizes[1] - 2 * sizes[0]) <= logits_bytes, sizes
    for buffer in {view.buffer for op in small.ops for _, view in op.views() if view.rows == "T"}:
        assert buffer_bytes(replace(buffer, dtype="f32"), small) == 2 * buffer_bytes(buffer, small)


@pytest.mark.parametrize("dtype", UNITS)
def test_the_reference_holds_rows_of_the_dtype(llama: Loaded, dtype: str) -> None:
    backend = Kept()
    logits(llama, dtype, backend)
    sizes = {name: rows.itemsize for name, rows in backend.rows.items()}
    assert sizes.pop("logits") == 4 and len(sizes) > 10 and {*sizes.values()} == {2}
