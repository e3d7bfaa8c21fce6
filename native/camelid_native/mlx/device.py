"""The device of MLX: which one, its name and promise, and its free memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from camelid.errors import RequestError
from camelid_native.mlx.arrays import mx

ADAPTERS = ("", "cpu", "gpu")
CACHE_BYTES = 256 << 20  # a step's arrays, for the next step


@dataclass(frozen=True, slots=True)
class Facts:
    """A device as MLX names it. `handle` is MLX's."""

    handle: Any
    name: str
    is_gpu: bool


def device_of(adapter: str) -> Facts:
    """The device of an adapter: "cpu", "gpu", or "" for MLX's default. Raises RequestError for another."""
    has_gpu = mx.metal.is_available()
    if adapter not in ADAPTERS or (adapter == "gpu" and not has_gpu):
        known = "cpu, gpu" if has_gpu else "cpu"
        raise RequestError(f"adapter is {adapter!r}, but MLX has here: {known}", field="adapter")
    is_gpu = has_gpu and adapter != "cpu"
    handle = mx.Device(mx.gpu if is_gpu else mx.cpu)
    facts = mx.device_info(handle)
    return Facts(handle, f"{facts['device_name']} by MLX {mx.__version__}", is_gpu)


PROMISE = "A"
# MLX's own ops with sums. On a GPU the number of rows chooses their kernel, and so the order of sums.
WITHOUT = (
    "attend_rows", "bonus_rwkv7", "conv1d", "length", "mix", "pool", "scan_delta", "scan_mamba2",
    "scan_rwkv6", "scan_rwkv7",
)  # fmt: skip


def promise_of(is_gpu: bool) -> str:
    """The promise of a device: on the CPU of all ops, on a GPU of those with kernels in `metal/`."""
    return f"{PROMISE}; none of models with {', '.join(WITHOUT)}" if is_gpu else PROMISE


def bound_cache() -> int:
    """Bounds the freed arrays that MLX keeps, which may else fill a GPU; returns the bound before."""
    before = mx.set_cache_limit(CACHE_BYTES)
    if before < CACHE_BYTES:
        mx.set_cache_limit(before)
    return int(before)


def most_bytes(facts: Facts) -> int:
    """Bytes of the device: a GPU's recommended working set, or the machine's memory."""
    if facts.is_gpu:
        return int(mx.device_info(facts.handle)["max_recommended_working_set_size"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(facts: Facts) -> int | None:
    """Bytes that a model may take of a GPU's working set; None on the CPU."""
    return max(most_bytes(facts) - mx.get_active_memory(), 0) if facts.is_gpu else None
