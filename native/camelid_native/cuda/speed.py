"""The yardsticks of a GPU: the bandwidth of its memory, measured, and its arithmetic peak by its clock."""

from __future__ import annotations

from time import perf_counter

from camelid_native.cuda.device import Device, Facts
from camelid_native.cuda.holdings import Holdings

COPY_BYTES = 256 << 20  # more than a cache has
N_COPIES, REPETITIONS = 4, 3
# int8 operations of the matrix instructions per processor and clock, two per multiply-add, without sparsity:
# from the peaks that NVIDIA states for T4, A100, RTX 3090, RTX 4090, H100, B200 and RTX 5090.
INT8_OPS = {
    "sm_75": 2048, "sm_80": 4096, "sm_86": 2048, "sm_89": 2048, "sm_90": 8192, "sm_100": 16384,
    "sm_120": 2048,
}  # fmt: skip


def copy_gbps(device: Device) -> float:
    """GB/s that copies on the device read and write, the best of several; 0.0 without free memory."""
    if device.free_bytes() < 2 * COPY_BYTES:
        return 0.0
    holdings = Holdings(device)
    with holdings.building():
        to, at = (holdings.allocate(COPY_BYTES) for _ in range(2))
        best = min(_copy_s(device, to, at) for _ in range(REPETITIONS))
    holdings.close()
    return 2 * COPY_BYTES * N_COPIES / best / 1e9


def _copy_s(device: Device, to: int, at: int) -> float:
    """Seconds of the copies between two marks."""
    device.copy(to, at, COPY_BYTES)
    device.wait(device.mark())
    start = perf_counter()
    for _ in range(N_COPIES):
        device.copy(to, at, COPY_BYTES)
    device.wait(device.mark())
    return perf_counter() - start


def peak_gops(facts: Facts) -> float:
    """int8 operations in 10^9 per second; 0.0 for an architecture without a row."""
    return INT8_OPS.get(facts.arch, 0) * facts.n_processors * facts.clock_khz / 1e6
