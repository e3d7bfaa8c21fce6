"""A model in stages on a two-node Ray cluster of this machine: the cost of a hop, throughput, kills.

`python -m tests.perf.ray_stages` (needs `camelid[ray]`, gguf, httpx); the figures are in tests/perf/ray.md.
"""
# pyright: reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import ray
import ray.serve as serve
from tests.support.gguf_files import write_tiny_llama
from tests.support.ray_load import FRONT, cluster, load, pids_of
from tests.support.stage_answers import answers
from tests.support.stages import TOKEN, stage_process

import camelid.ray
from camelid.backends.base import OpenSpec
from camelid.backends.remote.backend import RemoteBackend, stages_at
from camelid.loading.options import LoadOptions
from camelid.loading.start import start
from camelid.ray.stages import Cut, Stages

PORT = 8314
URL = f"http://127.0.0.1:{PORT}"
N_REQUESTS, N_SEQUENCES, N_TOKENS, N_RUNS = 96, 8, 32, 3
SIZES = (16 << 10, 1 << 20, 8 << 20)
# The shape of a 135M model; random weights cost as much as trained ones.
SHAPE: dict[str, Any] = {
    "n_layers": 30, "hidden": 576, "n_heads": 9, "n_kv_heads": 3, "head_dim": 64, "ffn": 1536, "vocab": 4096,
    "context": 512,
}  # fmt: skip
SEAT = {"num_cpus": 0.5, "resources": {"seat": 1}}


class Sink:
    """An actor that takes bytes, through Ray's objects."""

    def put(self, data: bytes) -> int:
        return len(data)


def report(name: str, value: float, unit: str = "s") -> None:
    print(f"{name}: {value:.3g} {unit}", flush=True)


async def median_us(call: Callable[[], Awaitable[object]], n: int) -> float:
    times = list[float]()
    for _ in range(n):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


async def hops() -> None:
    """Microseconds of bytes and a short reply: a stage over ZeroMQ, and an actor through Ray's objects."""
    actor = cast("Any", ray).remote(Sink).options(num_cpus=0.5).remote()
    with stage_process("sink") as (_, address):
        backend = RemoteBackend(address, TOKEN)
        await backend.open(OpenSpec())
        for size in SIZES:
            data, n = bytes(size), 300 if size < 1 << 20 else 40
            by_socket = await median_us(lambda data=data: backend.write_state("kv", 1, data), n)
            by_objects = await median_us(lambda data=data: actor.put.remote(data), n)
            report(f"{size >> 10} kB to a stage and its reply, ZeroMQ", by_socket, "us")
            report(f"{size >> 10} kB to an actor and its reply, Ray's objects", by_objects, "us")
        await backend.close()


async def throughput(path: Path, name: str, cut: Cut | None, depth: int | None) -> Any:
    """Tokens a second of the engine alone, the middle of some runs; the answers of the first."""
    options = LoadOptions(backend="cpu", threads=1, parallel=N_SEQUENCES, max_in_flight=depth)
    stages = Stages(cut) if cut else None
    running = await start(path, options, stages=stages.backends if stages else None)
    found = await answers(running, N_SEQUENCES, 4)  # warm
    rates = list[float]()
    for _ in range(N_RUNS):
        began = time.monotonic()
        found = await answers(running, N_SEQUENCES, N_TOKENS)
        rates.append(sum(map(len, found)) / (time.monotonic() - began))
    report(name, statistics.median(rates), "tok/s")
    if stages:
        counters = running.backend.memory().counters
        report("  steps under way at once", running.engine.counters.max_in_flight, "")
        report("  stages at work at once", counters["stages_at_once"], "")
    await running.close()
    if stages:
        stages.close()
    return found


async def paced(n: int, depth: int | None) -> None:
    """Tokens a second of `n` stages whose steps take 2 ms a row each, which needs no processor."""
    options = LoadOptions(backend="cpu", threads=1, parallel=N_SEQUENCES, max_in_flight=depth)
    with ExitStack() as opened:
        addresses = [opened.enter_context(stage_process("paced"))[1] for _ in range(n)]

        async def find() -> list[RemoteBackend]:
            return stages_at(addresses, TOKEN)

        running = await start("cria", options, stages=find)
        began = time.monotonic()
        found = await answers(running, N_SEQUENCES, N_TOKENS, longer=0)
        rate = sum(map(len, found)) / (time.monotonic() - began)
        at_once = running.backend.memory().counters["stages_at_once"]
        report(f"{n} stages of 2 ms a row, {depth or n} steps under way, {at_once} at work", rate, "tok/s")
        await running.close()


async def throughputs() -> None:
    """One process, two stages with one step under way, and two stages with two."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "135m.gguf"
        write_tiny_llama(path, seed=1, **SHAPE)
        cut = Cut(2, "cpu", {**SEAT, "scheduling_strategy": "SPREAD"})
        whole = await throughput(path, "one process, 1 thread", None, None)
        one = await throughput(path, "2 stages of 1 thread, 1 step under way", cut, 1)
        two = await throughput(path, "2 stages of 1 thread, 2 steps under way", cut, None)
        assert whole == one == two, "stages change bits"


def struck(name: str, expected: dict[int, str], strike: Any) -> None:
    """Load under a strike: every answer whole, and equal to that of a quiet run."""
    tally, seconds = load(URL, N_REQUESTS, strike)
    print(f"{name}: {seconds:.1f} s; whole {dict(tally.whole)}; attempts that failed {dict(tally.errors)}; "
          f"lost {len(tally.lost)}; unequal {tally.texts != expected}", flush=True)  # fmt: skip
    assert not tally.lost, tally.lost
    assert tally.texts == expected
    assert "cut without an error" not in tally.errors


def served(nodes: Any) -> None:
    """The application in two stages: its throughput, and a stage and a node killed under load."""
    began = time.monotonic()
    words = {"backend": "cpu", "threads": 1, "parallel": 8, "actor_options": FRONT, "gate_options": FRONT}
    serve.run(camelid.ray.app("cria", stages=2, stage_options=SEAT, **words))
    report("application in 2 stages ready", time.monotonic() - began)
    tally, seconds = load(URL, N_REQUESTS)
    report("cria in 2 stages over HTTP, 8 clients", tally.n_tokens / seconds, "tok/s")
    report("  a quiet run", seconds)
    struck("stage killed", tally.texts, lambda: os.kill(pids_of(nodes, "ray::Stage")[0], signal.SIGKILL))
    lost = nodes.list_all_nodes()[-1]
    struck("node killed", tally.texts, lambda: nodes.remove_node(lost, allow_graceful=False))


def main() -> None:
    """Every measurement, on one cluster."""
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with cluster(PORT, 2, report) as nodes:
        asyncio.run(hops())
        for n, depth in ((2, 1), (2, None), (4, 1), (4, None)):
            asyncio.run(paced(n, depth))
        asyncio.run(throughputs())
        served(nodes)


if __name__ == "__main__":
    main()
