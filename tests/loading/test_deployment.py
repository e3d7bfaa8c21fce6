"""A deployment on a backend of another geometry: page rows, row buckets and chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.backends.base import Backend, Program, Ticket
from camelid.backends.reference.backend import ReferenceBackend
from camelid.engine.kv_cache import KVCacheManager
from camelid.errors import RequestError
from camelid.loading import choose
from camelid.loading.deployment import Deployment
from camelid.loading.model_file import open_model
from camelid.loading.options import LoadOptions
from camelid.plan.plan import Plan
from camelid.plan.tiers import TAIL_WINDOW

BUCKETS, CHUNK, PARALLEL = (1, 2, 4, 8), 24, 4
N_FULL, LAST = 18, 5  # full prefill steps; prompt rows of the last one, which bucket 8 holds
GENERATED = 12  # tokens of an answer
PROMPT = [(7 * i + i * i // 5) % 300 + 3 for i in range(N_FULL * CHUNK + LAST)]
RELATED = [*PROMPT[:-9], 11, 12, 13]  # a cached prefix, which ends inside a page
GEOMETRIES: Mapping[str, Any] = {
    f"pages of {rows}": {"page_rows": rows, "row_buckets": BUCKETS, "chunk": CHUNK} for rows in (8, 32)
}


@dataclass(slots=True)
class Run:
    """Programs compiled and run, by entry and row capacity; answers; unused rows of the first answer."""

    page_rows: set[int] = field(default_factory=set[int])
    compiled: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    run: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    answers: list[Sequence[int]] = field(default_factory=list[Sequence[int]])
    unused_rows: int = 0


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(place, seed=5, hidden=64, head_dim=16, ffn=96, context=512)
    return place


def changed(backend: Backend, geometry: Mapping[str, Any], run: Run) -> Backend:
    """The backend with another geometry, and a record of its programs."""
    plain, compile_plan, run_program = backend.capabilities, backend.compile, backend.run

    async def compiled(plan: Plan) -> Program:
        run.page_rows |= {state.unit_rows for state in plan.states if state.kind == "paged"}
        run.compiled.setdefault(plan.key.entry, []).append(plan.key.capacity.rows)
        return await compile_plan(plan)

    def ran(program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        run.run.append((program.key.entry, program.key.capacity.rows))
        return run_program(program, step, inputs)

    backend.capabilities = lambda: replace(plain(), **geometry)
    backend.compile, backend.run = compiled, ran
    return backend


def run_of(path: Path, name: str, kv_type: str, geometry: Mapping[str, Any]) -> Run:
    """Greedy answers to both prompts on a backend of this geometry."""
    run, real = Run(), choose.open_backend
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "open_backend", lambda name: changed(real(name), geometry, run))
        with camelid.load(path, backend=name, kv_type=kv_type, parallel=PARALLEL) as llm:
            for prompt in (PROMPT, RELATED):
                done = llm.generate(prompt, max_tokens=GENERATED, temperature=0.0, ignore_eos=True)
                run.answers.append(done.token_ids)
                run.unused_rows = run.unused_rows or llm.counters.unused_rows
    return run


@pytest.fixture(scope="module", params=[(b, t) for b in ("reference", "cpu") for t in ("f32", "two-tier")])
def plain(request: Any, path: Path) -> tuple[str, str, Run]:
    """A backend, a KV cache type, and the run with the backend's own geometry."""
    name, kv_type = request.param
    return name, kv_type, run_of(path, name, kv_type, {})


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_no_token_depends_on_the_geometry(
    path: Path, plain: tuple[str, str, Run], geometry: Mapping[str, Any]
) -> None:
    name, kv_type, want = plain
    run = run_of(path, name, kv_type, geometry)
    assert run.answers == want.answers
    assert all(len(answer) == GENERATED for answer in run.answers)
    assert (want.page_rows, run.page_rows) == ({16}, {geometry["page_rows"]})


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_programs_are_compiled_per_bucket_and_the_smallest_one_runs(
    path: Path, geometry: Mapping[str, Any]
) -> None:
    run = run_of(path, "cpu", "f32", geometry)
    assert run.compiled == {"decode": [1, 2, 4], "mixed": [1, 2, 4, 8, 24]}
    first = run.run[: N_FULL + GENERATED]
    assert first == [("mixed", CHUNK)] * N_FULL + [("mixed", 8)] + [("decode", 1)] * (GENERATED - 1)
    assert run.unused_rows == 8 - LAST


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_kv_rows_are_pages_of_the_backend(path: Path, geometry: Mapping[str, Any]) -> None:
    model = asyncio.run(open_model(path)).model
    capabilities = replace(ReferenceBackend().capabilities(), **geometry)

    def cache(kv_rows: int) -> KVCacheManager:
        return Deployment.of(model, LoadOptions(kv_rows=kv_rows), capabilities).kv_cache()

    rows = geometry["page_rows"]
    assert cache(480).max_rows == 480
    assert cache(2 * rows - 1).max_rows == rows
    with pytest.raises(RequestError, match=f"expected at least {rows}, the rows of a page"):
        cache(rows - 1)


def test_the_prompt_reaches_beyond_the_tail_of_two_tiers() -> None:
    assert len(RELATED) > TAIL_WINDOW + 2 * max(g["page_rows"] for g in GEOMETRIES.values())
