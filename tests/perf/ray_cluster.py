"""Replicas on a two-node Ray cluster of this machine: throughput, the cost of a hop, kills under load.

`python -m tests.perf.ray_cluster` (needs `camelid[ray]` and httpx). The figures are in tests/perf/ray.md.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import os
import signal
import statistics
import time
from typing import Any

import httpx
import ray.serve as serve
from tests.support.ray_load import CHAT, FRONT, N_CLIENTS, body, cluster, load, n_running, pids_of

import camelid.ray

URL = "http://127.0.0.1:8313"
N_REQUESTS = 96


def deploy(n: int) -> None:
    """Runs `n` replicas of one thread each, one per node."""
    started = time.monotonic()
    places = {"actor_options": {"num_cpus": 0.5, "resources": {"seat": 1}}, "gate_options": FRONT}
    serve.run(camelid.ray.app("cria", replicas=n, backend="cpu", threads=1, **places))
    report(f"{n} replicas ready", time.monotonic() - started, "s")


def throughput(n: int) -> None:
    """Tokens a second of `n` replicas, the middle of three runs."""
    load(URL, N_REQUESTS)
    runs = [tally.n_tokens / seconds for tally, seconds in (load(URL, N_REQUESTS) for _ in range(3))]
    report(f"{n} replicas, {N_CLIENTS} clients", statistics.median(runs), "tok/s")


def hop() -> None:
    """Milliseconds of a request without work, and of a first event."""
    with httpx.Client(base_url=URL, timeout=60) as client:
        report(
            "GET /live through proxy, gate and replica, p50",
            1e3 * median_s(lambda: client.get("/live")),
            "ms",
        )
        report("first event of a stream, p50", 1e3 * median_s(lambda: first_event(client)), "ms")


def first_event(client: httpx.Client) -> None:
    with client.stream("POST", CHAT, json=body(0) | {"max_tokens": 1}) as reply:
        next(reply.iter_raw())


def median_s(call: Any, n: int = 100) -> float:
    times = list[float]()
    for _ in range(n):
        started = time.monotonic()
        call()
        times.append(time.monotonic() - started)
    return statistics.median(times)


def replica_pids(nodes: Any) -> list[int]:
    return pids_of(nodes, "ray::ServeReplica:default:replica")


def struck(name: str, expected: dict[int, str], strike: Any) -> None:
    """Load under a strike: every answer whole, and equal to that of a quiet run."""
    tally, seconds = load(URL, N_REQUESTS, strike)
    differ = [i for i, text in tally.texts.items() if text != expected[i]]
    print(f"{name}: {seconds:.1f} s; whole {dict(tally.whole)}; attempts that failed {dict(tally.errors)}; "
          f"lost {len(tally.lost)}; unequal {len(differ)}", flush=True)  # fmt: skip
    assert not tally.lost, tally.lost
    assert not differ, differ
    assert "cut without an error" not in tally.errors


def report(name: str, value: float, unit: str) -> None:
    print(f"{name}: {value:.3g} {unit}", flush=True)


def main() -> None:
    """Every measurement, on one cluster."""
    with cluster(8313, report=lambda name, s: report(name, s, "s")) as nodes:
        deploy(1)
        hop()
        throughput(1)
        deploy(2)
        throughput(2)
        expected = load(URL, N_REQUESTS)[0].texts
        struck("replica killed", expected, lambda: os.kill(replica_pids(nodes)[0], signal.SIGKILL))
        recovered(nodes, 2)
        struck(
            "node killed",
            expected,
            lambda: nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False),
        )


def recovered(nodes: Any, n: int) -> None:
    """Waits until `n` replicas run again."""
    started = time.monotonic()
    while n_running() < n or len(replica_pids(nodes)) < n:
        assert time.monotonic() - started < 60, serve.status()
        time.sleep(0.1)
    report("until the replica was back", time.monotonic() - started, "s after the load")


if __name__ == "__main__":
    main()
