"""Boundary buffers that a step is given: bytes of the host, or arrays of the DLPack protocol."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from camelid.backends.common.boundary import input_buffers
from camelid.plan.plan import Plan
from camelid_native.cuda.device import Device
from camelid_native.cuda.dlpack import Borrowed, DeviceId, borrowed
from camelid_native.cuda.staging import Staging

Given = Mapping[str, Any]  # bytes or an array, by the buffer's name
Shared = bytes | Borrowed


def shared_inputs(plan: Plan, inputs: Given, device: Device, own: DeviceId) -> dict[str, Shared]:
    """The inputs, arrays as their memory. Raises BackendError as `borrowed`."""
    buffers = {buffer.name: buffer for buffer in input_buffers(plan)}
    found: dict[str, Shared] = dict(inputs)
    for name, data in found.items():
        if name in buffers and hasattr(data, "__dlpack__"):
            found[name] = borrowed(data, buffers[name], own, device.stream())
    return found


def write(
    inputs: Mapping[str, Shared], places: Mapping[str, int], device: Device, own: DeviceId, staging: Staging
) -> Sequence[Borrowed]:
    """Enqueues the copies of inputs to their places. Returns the arrays that the device has yet to read."""
    unread: list[Borrowed] = []
    for name, data in inputs.items():
        if isinstance(data, Borrowed) and data.device == own:
            device.copy(places[name], data.at, data.n_bytes)
            unread.append(data)
        elif data:
            staging.upload(places[name], _bytes(data))
    return unread


def _bytes(data: Shared) -> Any:
    if not isinstance(data, Borrowed):
        return np.frombuffer(data, np.uint8)
    memory = (ctypes.c_ubyte * data.n_bytes).from_address(data.at)
    return np.ctypeslib.as_array(memory)
