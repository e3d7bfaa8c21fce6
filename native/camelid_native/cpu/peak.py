"""Peak int8 throughput of this machine, the arithmetic upper bound of prefill."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from camelid_native.cpu.api import Library

ROUNDS = 1 << 20  # takes a few milliseconds
REPETITIONS = 5


def peak_gflops(library: Library, n_threads: int) -> float:
    """Peak of all threads in 10^9 int8 operations per second, two per multiply-add; best of REPETITIONS."""
    with ThreadPoolExecutor(n_threads) as pool:

        def run() -> float:
            start = perf_counter()
            n = sum(pool.map(library.multiply, [ROUNDS] * n_threads))
            return n / (perf_counter() - start) / 1e9

        return max(run() for _ in range(REPETITIONS))
