"""WebGPU's limits: the defaults of every device, and the check of buffers against a device's limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from camelid.errors import OutOfMemoryError
from camelid.plan.op_rows_adapters import FEATURE

# The defaults of the WebGPU specification, section "Limits".
DEFAULTS: dict[str, int] = {
    "maxBufferSize": 256 << 20,
    "maxStorageBufferBindingSize": 128 << 20,
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeWorkgroupStorageSize": 16 << 10,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupsPerDimension": 65535,
    "minStorageBufferOffsetAlignment": 256,
}

# Limits that are requested beyond the defaults if the adapter has more: two bound the size of a model, and
# kernels_qkv.py needs ten to thirteen bindings.
WANTED = ("maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage")

SLOTS = f"state/{FEATURE}"  # begin of the names of buffers of adapters
SMALLER = "a smaller context or quantization"


def most_bytes(limits: Mapping[str, int]) -> int:
    """The largest buffer that a binding holds whole."""
    return min(limits["maxBufferSize"], limits["maxStorageBufferBindingSize"])


def check_buffers(section: Mapping[str, Any], limits: Mapping[str, int]) -> None:
    """Raises OutOfMemoryError with the first buffer that exceeds the device's limits."""
    for buffer in section["buffers"]:
        bound = buffer.get("bound", buffer["bytes"])
        name = buffer["name"]
        way = "fewer adapters at a time or lower ranks" if name.startswith(SLOTS) else SMALLER
        _check(f"{name} binds", bound, limits["maxStorageBufferBindingSize"], way)
        _check(f"{name} needs", buffer["bytes"], limits["maxBufferSize"], way)


def _check(what: str, want: int, limit: int, way: str) -> None:
    if want > limit:
        raise OutOfMemoryError(
            f"{what} {want:,} bytes, this device allows at most {limit:,}; "
            f"use {way}, another device, or --backend reference",
            want_bytes=want,
            limit_bytes=limit,
        )
