"""State of every kind, through a session file into a new engine, equals one full forward pass."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.api.sessions.test_file import SAVED, read
from tests.support.engine_fakes import GREEDY, collect
from tests.support.exhaustive import share_of
from tests.support.hf_models import load_case, write_hf
from tests.support.model.file_runs import Loaded, load_hf, reference_logits
from tests.support.model.stress.shapes import SHAPES
from tests.support.model.stress_runs import CONTEXT
from tests.support.parity.adapters import need_driver

from camelid.api.sessions.file import encode_session, rows_mismatch
from camelid.backends.base import OpenSpec
from camelid.backends.registry import open_backend
from camelid.engine.engine import StepEngine
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.programs import DECODE, MIXED, Limits, ProgramTable, program_key
from camelid.engine.request import Request
from camelid.model.decoder import declare_states, lower
from camelid.plan.plan import PAGE_ROWS
from camelid.requests.transcript import Segment

LIMITS = Limits(chunk=16, parallel=2)
# Shape -> group kinds that its file must contain.
KINDS = {
    "mamba2": {"paged", "recurrent"},
    "mamba2 alone": {"recurrent"},
    "qwen3next": {"paged", "recurrent"},
    "gpt_oss": {"paged", "window"},
    "deepseek2": {"paged"},
}
PROMPT = [5, 9, 30, 2, 77, 41, 8, 16, 3, 50, 61, 12, 7]
MORE = [40, 1, 22]


def loaded(name: str, folder: Path) -> Loaded:
    """A shape's model, or a golden model without attention."""
    if name == "mamba2 alone":
        return load_hf(write_hf(folder / "mamba2", load_case("mamba2")))
    return Loaded(SHAPES[name].model(), {})


async def engine_of(found: Loaded, name: str) -> StepEngine:
    model, backend = found.model, open_backend(name)
    await backend.open(OpenSpec(adapter=need_driver("llvmpipe") if name == "webgpu" else ""))
    plans = {entry: lower(model, program_key(entry, LIMITS, PAGE_ROWS)) for entry in (DECODE, MIXED)}
    state = KVCacheManager(declare_states(model.spec), context=CONTEXT, n_sequences=LIMITS.parallel)
    await backend.load(list(plans[MIXED].weights().values()), found.sources)
    await backend.allocate(state.states, state.sizes())
    programs = ProgramTable()
    for entry, plan in plans.items():
        programs.add(entry, [await backend.compile(plan)])
    return StepEngine(backend, programs, state, limits=LIMITS, vocab_size=model.spec.vocab_size)


async def answer(engine: StepEngine, token_ids: Sequence[int], n: int) -> list[int]:
    request = Request(prompt_ids=tuple(token_ids), sampling=GREEDY, max_tokens=n)
    return [*token_ids, *await collect(engine.submit(request))]


def greedy(found: Loaded, token_ids: Sequence[int], n: int) -> list[int]:
    """Argmax of one full forward pass for each of the last `n` ids."""
    (logits,) = reference_logits(found, [list(token_ids)], context=CONTEXT)
    return logits[-n - 1 : -1].argmax(axis=1).tolist()


async def moved(found: Loaded, n: int, backend: str = "reference") -> tuple[list[int], set[str]]:
    """A conversation's ids; the second half comes from an engine that restored the file."""
    states = declare_states(found.model.spec)
    first = await engine_of(found, backend)
    ids = await answer(first, PROMPT, n)
    exported = await first.export_rows(ids)
    assert exported.n_rows >= len(ids) - 1
    saved = replace(SAVED, transcript=(Segment("", tuple(ids)),))
    head, rows = read(b"".join(encode_session(saved, states, exported)))
    assert rows_mismatch(head, states) == ""
    second = await engine_of(found, backend)
    assert await second.import_rows(ids, rows) >= exported.n_rows
    ids = await answer(second, [*ids, *MORE], 6)
    assert second.counters.cached_rows >= exported.n_rows
    assert second.counters.prefill_rows <= len(MORE) + 1
    assert second.is_idle
    return ids, {state.kind for state in states if state.name in rows.units}


@pytest.mark.parametrize("n", [6, 40])
@pytest.mark.parametrize("name", KINDS)
def test_another_engine_continues_like_one_forward_pass(name: str, n: int, tmp_path: Path) -> None:
    found = loaded(name, tmp_path)
    ids, kinds = asyncio.run(moved(found, n))
    assert kinds == KINDS[name]
    assert ids[-6:] == greedy(found, ids, 6)


@pytest.mark.parity
@pytest.mark.parametrize("name", share_of(["mamba2 alone", "qwen3next"]))
def test_webgpu_continues_like_one_forward_pass_of_the_reference(name: str, tmp_path: Path) -> None:
    found = loaded(name, tmp_path)
    ids, kinds = asyncio.run(moved(found, 12, "webgpu"))
    assert kinds == KINDS[name]
    assert ids[-6:] == greedy(found, ids, 6)
    assert ids[len(PROMPT) : len(PROMPT) + 12] == greedy(found, ids[: len(PROMPT) + 12], 12)
