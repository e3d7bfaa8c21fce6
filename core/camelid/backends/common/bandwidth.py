"""Measured memory bandwidth and float32 speed of this machine, the yardsticks of benchmark results."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

SIZE = 256 << 20  # larger than the caches


def read_gbps(n_bytes: int = SIZE, repetitions: int = 3) -> float:
    """GB/s of a NumPy read of `n_bytes` by all cores, the best of `repetitions`."""
    import numpy as np

    n_threads = os.cpu_count() or 1
    parts = np.array_split(np.ones(n_bytes // 8, np.uint64), n_threads)
    with ThreadPoolExecutor(n_threads) as pool:

        def read() -> float:
            start = perf_counter()
            list(pool.map(np.bitwise_or.reduce, parts))  # NumPy releases the GIL during the reduction
            return perf_counter() - start

        return n_bytes / min(read() for _ in range(repetitions)) / 1e9


def multiply_gflops(n: int = 1024, repetitions: int = 3) -> float:
    """GFLOP/s of NumPy's float32 product of two [n, n] matrices, the best of `repetitions`."""
    import numpy as np

    a = np.ones((n, n), np.float32)

    def multiply() -> float:
        start = perf_counter()
        np.matmul(a, a)
        return perf_counter() - start

    return 2 * n**3 / min(multiply() for _ in range(repetitions)) / 1e9
