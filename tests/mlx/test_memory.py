"""State is updated in place: peak memory stays flat over a thousand steps. And the host time of a step."""

from __future__ import annotations

import asyncio
from io import StringIO
from time import thread_time
from typing import Any

import pytest
from tests.mlx.decoding import CRIA, Decoder, opened
from tests.support.exhaustive import exhaustive
from tests.support.model.runs import make_plan, make_state, start

from camelid.loading.model_file import open_model
from camelid_native.mlx.backend import open_backend

pytestmark = pytest.mark.slow

CONTEXT, N_UNITS = 64, 512  # 8 pools of 4 MiB
POOL_BYTES = N_UNITS * 16 * 128 * 4
N_LAPS = 16  # of 64 positions: 1,024 steps


def extra_over(n_laps: int) -> int:
    """Bytes of peak memory beside weights and state, while laps of steps run."""
    from camelid_native.mlx.arrays import mx

    async def laps() -> int:
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


def test_peak_memory_is_flat_over_a_thousand_steps() -> None:
    extra = extra_over(N_LAPS)
    print(f"{extra / 2**20:.2f} MiB beside weights and state; a pool has {POOL_BYTES / 2**20:.0f} MiB")
    assert extra < POOL_BYTES // 2


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


@pytest.mark.parametrize(
    ("n_rows", "context", "kv_type"),
    [(64, 512, "f32"), (1, 2048, "f16"), (16, 1024, "q8_0"), exhaustive((64, 1024, "two-tier"))],
)
def test_the_forecast_bounds_the_memory_of_a_step(n_rows: int, context: int, kv_type: str) -> None:
    """Attention's gathered rows, of one layer at a time; the bound is at most twice the use."""
    extra, forecast = asyncio.run(_used_by_prompt(n_rows, context, kv_type))
    print(f"{extra / 2**20:.1f} MiB, forecast {forecast / 2**20:.1f} MiB")
    assert extra <= forecast <= 2 * extra


async def _used_by_prompt(n_rows: int, context: int, kv_type: str) -> tuple[int, int]:
    """Peak bytes beside weights and state of a step of a prompt, and their forecast."""
    from camelid_native.mlx.arrays import mx

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


@pytest.mark.parametrize(
    ("sampling", "most_s", "most"),
    [({}, 0.5e-3, 360), ({"temperature": 1.0}, 1e-3, 430)],
    ids=["greedy", "drawn"],
)
def test_host_time_of_a_decode_graph(sampling: Any, most_s: float, most: int, compiled: None) -> None:
    """The graph of cria's decode step by compiled functions; building one calls no compiler of the system."""
    seconds, n_primitives = asyncio.run(_built(sampling))
    print(f"cria's decode graph: {1e3 * seconds:.2f} ms of host time, {n_primitives} primitives")
    assert seconds <= most_s and n_primitives <= most


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
