"""State is updated in place: peak memory stays flat over a thousand steps. A decode step's graph is small.

And what is loaded, replaced and freed.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from time import thread_time
from typing import Any

import pytest
from tests.mlx.decoding import CRIA, Decoder, opened
from tests.support.exhaustive import exhaustive
from tests.support.model.runs import make_plan, make_state, start
from tests.support.parity.case_tools import array, empty, weight

import camelid
from camelid.backends.base import OpenSpec, PoolSize
from camelid.backends.common.op_runner import OpCase, case_plan
from camelid.errors import BackendError, OutOfMemoryError
from camelid.loading.model_file import open_model
from camelid.plan.step import Step, encode_step
from camelid_native.mlx.backend import MlxBackend, open_backend

CONTEXT, N_UNITS = 64, 512  # 8 pools of 4 MiB
POOL_BYTES = N_UNITS * 16 * 128 * 4
N_LAPS = 16  # of 64 positions: 1,024 steps


def extra_over(n_laps: int) -> int:
    """Bytes of peak memory beside weights and state, while laps of steps run."""
    from camelid_native.mlx.arrays import mx

    async def laps() -> int:
        gc.collect()  # arrays of earlier tests are no part of the difference
        before, backend = mx.get_active_memory(), open_backend()
        decoder = await opened(backend, CONTEXT, N_UNITS)
        used = backend.memory()
        mx.reset_peak_memory()
        for _ in range(n_laps):
            await decoder.run(CONTEXT)
        peak = mx.get_peak_memory()
        await backend.close()
        return peak - before - used.weight_bytes - used.state_bytes

    return asyncio.run(laps())


@pytest.mark.exhaustive
@pytest.mark.slow
def test_peak_memory_is_flat_over_a_thousand_steps() -> None:
    extra = extra_over(N_LAPS)
    print(f"{extra / 2**20:.2f} MiB beside weights and state; a pool has {POOL_BYTES / 2**20:.0f} MiB")
    assert extra < POOL_BYTES // 2


@pytest.mark.slow
def test_a_kept_reference_to_state_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted error: the arrays of the last step are held while the next one is submitted."""
    from camelid_native.mlx.programs import Graph, MlxProgram

    kept: list[list[Any]] = [[]]
    build = MlxProgram.build

    def keeping(self: MlxProgram, *step: Any) -> Graph:
        kept[0] = [array[:] for array in self.states.arrays.values()]
        return build(self, *step)

    monkeypatch.setattr(MlxProgram, "build", keeping)
    extra = extra_over(1)
    print(f"{extra / 2**20:.2f} MiB beside weights and state")
    assert extra > 4 * POOL_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "context", "kv_type"),
    [(64, 512, "f32"), (1, 2048, "f16"), (16, 1024, "q8_0"), exhaustive((64, 1024, "two-tier"))],
)
def test_the_forecast_bounds_the_memory_of_a_step(
    n_rows: int, context: int, kv_type: str, on_cpu: None
) -> None:
    """Attention's gathered rows, of one layer at a time; the bound is at most twice the use."""
    extra, forecast = asyncio.run(_used_by_prompt(n_rows, context, kv_type))
    print(f"{extra / 2**20:.1f} MiB, forecast {forecast / 2**20:.1f} MiB")
    assert extra <= forecast <= 2 * extra


async def _used_by_prompt(n_rows: int, context: int, kv_type: str) -> tuple[int, int]:
    """Peak bytes beside weights and state of a step of a prompt, and their forecast."""
    from camelid_native.mlx.arrays import mx

    gc.collect()
    file, backend, before = await open_model(str(CRIA)), open_backend(), mx.get_active_memory()
    plan = make_plan(file.model, n_rows, context=context, kv_type=kv_type, features=frozenset())
    state = make_state(plan.states, context=context, n_sequences=1)
    started = await start(backend, [plan], state, sources=file.sources)
    forecast, used = backend.forecast({"prompt": plan}, state.sizes()), backend.memory()
    mx.reset_peak_memory()
    await started.ask(started.open_stream([5] * n_rows), n_rows, [n_rows - 1])
    peak = mx.get_peak_memory()
    await backend.close()
    return peak - before - used.weight_bytes - used.state_bytes, forecast.programs[
        "prompt"
    ] + used.arena_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampling", "most"),
    [({}, 360), ({"temperature": 1.0}, 430)],
    ids=["greedy", "drawn"],
)
def test_a_decode_graph_is_small(sampling: Any, most: int, compiled: None, on_cpu: None) -> None:
    """The graph of cria's decode step by compiled functions; building one calls no compiler of the system."""
    seconds, n_primitives = asyncio.run(_built(sampling))
    print(f"cria's decode graph: {1e3 * seconds:.2f} ms of host time, {n_primitives} primitives")
    assert n_primitives <= most


async def _built(sampling: Any) -> tuple[float, int]:
    from camelid_native.mlx.arrays import mx

    backend = open_backend()
    decoder = await opened(backend, 512, 33, **sampling)
    found = await backend._opened().worker.call(lambda: _build_times(decoder, mx))  # type: ignore[reportPrivateUsage]
    await backend.close()
    return found


def _count(mx: Any, arrays: list[Any]) -> int:
    """Primitives of a graph, by its drawing."""
    drawing = StringIO()
    mx.export_to_dot(drawing, *arrays)
    return drawing.getvalue().count("shape=rectangle")


def _build_times(decoder: Decoder, mx: Any) -> tuple[float, int]:
    """The least seconds of a build, without the first, which traces; and the primitives of the graph."""
    program, step, times = decoder.program.handle, decoder.step(33), list[float]()
    state = dict(program.states.arrays)
    for _ in range(400):
        program.states.arrays.update(state)
        start = thread_time()
        graph = program.build(step, {}, [])
        times.append(thread_time() - start)
    n_primitives = _count(mx, [*graph.results, *program.states.arrays.values()])
    program.states.arrays.update(state)
    return min(times[1:]), n_primitives


# ---- Loaded, replaced, freed

CASE = OpCase(
    op="linear",
    views={"y": empty(2, 64), "x": array(1, 2, 64)},
    weights={"weight": weight("q8_0", 2, 64, 64)},
)
POOLS: Mapping[str, PoolSize] = {
    "other": PoolSize(2, 2, 1),
    "kv": PoolSize(2, 2, 1),
    "tokens": PoolSize(2),
}
WEIGHT_BYTES = 4 * 64 * 64  # of the product's, on a CPU


async def opened_backend() -> MlxBackend:
    backend = open_backend()
    await backend.open(OpenSpec())
    return backend


def test_a_gpu_shares_a_file_s_pages(on_gpu: None) -> None:
    """Each mapped weight; a copy would be counted."""
    with camelid.load(str(CRIA), backend="mlx", context=CONTEXT) as llm:
        counters = llm.memory().counters
    assert counters["shared_block_bytes"] and not counters["copied_block_bytes"]


def test_weights_are_checked_beside_those_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two weights and a half: NumPy's array and MLX's at once are two."""
    from camelid_native.mlx import opened as module

    (one,) = case_plan(CASE)[0].weights().values()

    async def run() -> None:
        backend = await opened_backend()
        monkeypatch.setattr(module, "most_bytes", lambda _: WEIGHT_BYTES * 5 // 2)
        try:
            for _ in range(2):  # the second load replaces the first
                await backend.load([one], {})
            with pytest.raises(OutOfMemoryError, match=f"the weights need {3 * WEIGHT_BYTES:,} bytes"):
                await backend.load([replace(one, name="second")], {})
            assert backend.memory().weight_bytes == WEIGHT_BYTES
        finally:
            await backend.close()

    asyncio.run(run())


def test_a_step_behind_a_queued_allocation_is_stale() -> None:
    plan, _ = case_plan(CASE)

    async def run() -> None:
        backend, go = await opened_backend(), threading.Event()
        await backend.load(list(plan.weights().values()), {})
        await backend.allocate(plan.states, POOLS)
        program = await backend.compile(plan)
        waiting = asyncio.create_task(backend._opened().worker.call(go.wait))  # type: ignore[reportPrivateUsage]
        allocation = asyncio.create_task(backend.allocate(plan.states, POOLS))
        await asyncio.sleep(0)
        ticket = backend.run(program, encode_step(Step(), plan.layout))
        go.set()
        with pytest.raises(BackendError, match="stale; compile it again"):
            await backend.read(ticket)
        await asyncio.gather(waiting, allocation)
        await backend.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ("[metal::malloc] Attempting to allocate 9 bytes, more than the maximum", OutOfMemoryError),
        ("[METAL] Command buffer execution failed", BackendError),
    ],
)
def test_what_mlx_refuses_is_named(
    told: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    from camelid_native.mlx.arrays import mx

    plan, _ = case_plan(CASE)

    def fail(*_: object) -> None:
        raise RuntimeError(told)

    async def run() -> None:
        backend = await opened_backend()
        with monkeypatch.context() as patch:
            patch.setattr(mx, "eval", fail)
            for work in (
                lambda: backend.load(list(plan.weights().values()), {}),
                lambda: backend.allocate(plan.states, POOLS),
            ):
                with pytest.raises(error, match=r"mlx: MLX refused the weights.*; "):
                    await work()
        await backend.close()

    asyncio.run(run())


def test_close_after_a_failure_of_the_device_ends_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from camelid_native.mlx.arrays import mx

    plan, _ = case_plan(CASE)

    def fail() -> None:
        raise RuntimeError("[METAL] Command buffer execution failed")

    async def run() -> None:
        before = (set(threading.enumerate()), mx.set_cache_limit(1 << 30))
        backend = await opened_backend()
        await backend.load(list(plan.weights().values()), {})
        with monkeypatch.context() as patch:
            patch.setattr(mx, "synchronize", fail)
            await backend.close()
        left = {thread.name for thread in set(threading.enumerate()) - before[0]}
        assert not left & {"mlx", "mlx-results_0"}
        assert mx.set_cache_limit(before[1]) == 1 << 30 and not backend.memory().weight_bytes

    asyncio.run(run())
