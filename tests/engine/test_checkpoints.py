"""Checkpoints of recurrent state: where they are, how long they last, and that they change no bit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.test_kv_cache import allocate_for, grown
from tests.engine.test_promises import WILD, as_bits
from tests.support.engine_fakes import GREEDY, PAGE_ROWS, STATES, HashBackend, collect, open_engine
from tests.support.exhaustive import share_of
from tests.support.hf_models import load_case, write_hf
from tests.support.parity.adapters import need_driver
from tests.support.promise_runs import SITUATIONS, Case, alone

from camelid.engine.checkpoints import checkpoints_of
from camelid.engine.kv_cache import KVCacheManager
from camelid.engine.prefix_cache import PrefixHit
from camelid.engine.programs import Limits
from camelid.engine.request import Request
from camelid.loading.model_file import open_model
from camelid.plan.plan import StateSpec

RECURRENT = StateSpec("recurrent", "recurrent", (0, 1), (("conv", 6), ("scan", 8)), 1)
TOKENS = list(range(1, 81))
MISS = PrefixHit(0, 0, b"", {}, {})


def test_checkpoints_double_and_end_at_the_last_page() -> None:
    assert checkpoints_of(80, MISS, 4, 8) == {8, 16, 32, 64}, "the last page, 76, is near 64"
    assert checkpoints_of(100, MISS, 4, 8) == {8, 16, 32, 64, 96}
    assert checkpoints_of(20, MISS, 4, 64) == {16}
    assert checkpoints_of(16, MISS, 4, 64) == frozenset(), "a hit leaves at least one row to compute"
    assert checkpoints_of(1, MISS, 4, 8) == frozenset()


def test_checkpoints_begin_behind_the_hit_and_mark_where_prompts_part() -> None:
    hit = replace(MISS, n_rows=18, n_full=4)
    assert checkpoints_of(80, hit, 4, 8) == {18, 32, 64}
    assert checkpoints_of(80, replace(MISS, n_known=44), 4, 8) == {8, 16, 32, 44, 64}
    assert checkpoints_of(80, replace(hit, n_known=16), 4, 8) == {18, 32, 64}


def manager(states: tuple[StateSpec, ...], n_sequences: int = 1) -> KVCacheManager:
    return KVCacheManager(states, context=100, n_sequences=n_sequences, first_checkpoint=8)


def run_prompt(state: KVCacheManager, tokens: list[int], chunk: int = 40) -> int:
    """Computes a prompt in chunks that end at checkpoints. Returns the number of rows computed."""
    allocation = allocate_for(state, tokens)
    row = allocation.n_cached
    while row < len(tokens):
        end = row + state.rows_to_checkpoint(allocation, row, min(chunk, len(tokens) - row))
        grown(state, allocation, row, end)
        state.advance(allocation, end)
        state.retire_rows(allocation, tokens, end)
        row = end
    state.free(allocation, tokens, row)
    return len(tokens) - allocation.n_cached


@pytest.mark.parametrize("states", [(*STATES, RECURRENT), (RECURRENT, STATES[-1])], ids=["hybrid", "pure"])
def test_a_prompt_is_computed_from_the_last_checkpoint_that_it_shares(states: tuple[StateSpec, ...]) -> None:
    state = manager(states)
    assert run_prompt(state, TOKENS) == 80
    assert run_prompt(state, [*TOKENS[:70], *range(200, 210)]) == 80 - 64
    assert run_prompt(state, [*TOKENS[:70], *range(300, 310)]) <= 80 - 64, "its slot was given to a sequence"
    assert state.is_idle


def test_the_second_prompt_leaves_a_checkpoint_where_it_parts() -> None:
    """The first prompt's pages tell where."""
    state = manager((*STATES, RECURRENT))
    run_prompt(state, TOKENS[:60])
    assert run_prompt(state, [*TOKENS[:25], *range(200, 235)]) == 60 - 16
    assert run_prompt(state, [*TOKENS[:25], *range(300, 335)]) == 60 - 24


def test_checkpoints_take_no_slot_that_a_sequence_needs() -> None:
    state = manager((*STATES, RECURRENT), n_sequences=2)
    run_prompt(state, TOKENS)
    first, second = allocate_for(state, TOKENS), allocate_for(state, list(range(200, 280)))
    for end in range(first.n_cached + 1, 80):
        grown(state, first, end - 1, end)
        grown(state, second, 0, end)
        for allocation in (first, second):
            state.advance(allocation, end)
    assert not {*first.slots["recurrent"]} & {*second.slots["recurrent"]}


async def computed_rows(states: tuple[StateSpec, ...]) -> list[int]:
    """Prompt rows that the engine computes for three prompts with 70 rows in common."""
    engine = await open_engine(
        HashBackend(depth=2), states, Limits(16, 1, 100), n_pages=None, first_checkpoint=2 * PAGE_ROWS
    )
    rows: list[int] = []
    for tail in (TOKENS[70:], range(200, 210), range(300, 310)):
        before = engine.counters.prefill_rows
        request = Request(prompt_ids=(*TOKENS[:70], *tail), sampling=GREEDY, max_tokens=3)
        await collect(engine.submit(request))
        rows.append(engine.counters.prefill_rows - before)
    assert engine.is_idle
    return rows


def test_the_engine_ends_prefill_chunks_at_checkpoints() -> None:
    first, second, third = asyncio.run(computed_rows((*STATES, RECURRENT)))
    assert (first, second, third) == (80, 80 - 64, 80 - 68)


FAMILIES = ["falcon_h1", "lfm2", "mamba2", "nemotron_h", "plamo2", "qwen3_next", "rwkv6", "rwkv7"]
# A bound of the KV cache preempts no sequence of a model without one, or with windows alone.
RUNS = [(name, how) for name in FAMILIES for how in ("begun alike", "prefix found", "speculated")]
RUNS += [(name, "preempted") for name in FAMILIES if name not in ("mamba2", "plamo2", "rwkv6", "rwkv7")]
RUNS_ON_WEBGPU = [("mamba2", "prefix found"), ("qwen3_next", "speculated")]
RUNS_ON_WEBGPU += [run for run in RUNS if run not in RUNS_ON_WEBGPU]


@pytest.mark.parametrize(("name", "situation"), share_of(RUNS, 5))
@pytest.mark.parametrize("backend", share_of(["cpu", "reference"]))
def test_no_bit_changes(
    name: str, backend: str, situation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camelid.engine.kv_cache.FIRST_PAGES", 1)
    check_bits(name, backend, situation, tmp_path)


@pytest.mark.parity
@pytest.mark.parametrize(("name", "situation"), share_of(RUNS_ON_WEBGPU))
def test_no_bit_changes_on_webgpu(
    name: str, situation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("camelid.engine.kv_cache.FIRST_PAGES", 1)
    check_bits(name, "webgpu", situation, tmp_path, need_driver("llvmpipe"))


def check_bits(name: str, backend: str, situation: str, folder: Path, adapter: str = "") -> None:
    """Asserts that the situation does not change the answer."""
    file = asyncio.run(open_model(str(write_hf(folder / name, load_case(name)))))
    case = Case(
        model=file.model,
        sources=file.sources,
        backend=backend,
        adapter=adapter,
        sampling=WILD,
        context=96,
        n_prompt=48,
    )
    want = asyncio.run(alone(case))
    got = asyncio.run(SITUATIONS[situation](replace(case, answer=tuple(i for i, _ in want))))
    assert as_bits(got) == as_bits(want)
