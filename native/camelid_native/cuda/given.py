"""Boundary buffers that a step is given: bytes of the host, or arrays of the DLPack protocol."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from camelid.backends.common.boundary import input_buffers
from camelid.plan.plan import Plan
from camelid_native.cuda.device import Device
from camelid_native.cuda.dlpack import Borrowed, borrowed
from camelid_native.cuda.staging import Staging

Given = Mapping[str, Any]  # bytes or an array, by the buffer's name


def taken(plan: Plan, inputs: Given | None, device: Device) -> dict[str, bytes | Borrowed]:
    """The inputs, arrays as their memory. Raises BackendError as `borrowed`."""
    dtypes = {buffer.name: buffer.dtype for buffer in input_buffers(plan)}
    return {name: _one(data, dtypes.get(name, "f32"), device) for name, data in (inputs or {}).items()}


def _one(data: Any, dtype: str, device: Device) -> bytes | Borrowed:
    if not hasattr(data, "__dlpack__"):
        return data
    return borrowed(data, dtype, device.facts().dlpack, device.stream())


def write(
    inputs: Mapping[str, bytes | Borrowed], places: Mapping[str, int], device: Device, staging: Staging
) -> Sequence[Borrowed]:
    """Enqueues the copies of inputs to their places. Returns the arrays that the device has yet to read."""
    unread: list[Borrowed] = []
    for name, data in inputs.items():
        if isinstance(data, Borrowed) and data.device == device.facts().dlpack:
            device.copy(places[name], data.at, data.n_bytes)
            unread.append(data)
        elif data:
            staging.upload(places[name], _bytes(data))
    return unread


def _bytes(data: bytes | Borrowed) -> Any:
    if not isinstance(data, Borrowed):
        return np.frombuffer(data, np.uint8)
    memory = (ctypes.c_ubyte * data.n_bytes).from_address(data.at)
    return np.ctypeslib.as_array(memory)
