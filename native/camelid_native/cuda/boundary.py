"""Boundary buffers that a program writes for the next stage, copied to pinned memory of the step's slot.

The copies follow the step on the stream, so a later step of the program may run before they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, chain

from camelid.plan.plan import Plan
from camelid.plan.stages import boundary_bytes
from camelid_native.cuda.device import Device
from camelid_native.cuda.holdings import Holdings


class Boundary:
    """The buffers of one program, at `places` on the device by name."""

    def __init__(
        self, device: Device, holdings: Holdings, plan: Plan, places: Mapping[str, int], n_slots: int
    ) -> None:
        self._device, self._places = device, places
        self._buffers = tuple(chain.from_iterable(stage.outputs for stage in plan.stages[-1:]))
        sizes = [plan.rows[buffer.rows] * buffer.row_bytes for buffer in self._buffers]
        *starts, n_bytes = accumulate(sizes, initial=0)
        self._starts = {buffer.name: start for buffer, start in zip(self._buffers, starts, strict=True)}
        self._slots = [holdings.pinned(n_bytes) for _ in range(n_slots if n_bytes else 0)]

    def copy(self, slot: int, step: bytes) -> None:
        """Enqueues the copies of a step's rows."""
        if not self._buffers:
            return
        for name, n in boundary_bytes(self._buffers, step).items():
            if n:
                self._device.copy(self._slots[slot][0] + self._starts[name], self._places[name], n)

    def read(self, slot: int, step: bytes) -> dict[str, bytes]:
        """The copied bytes by name, after the step."""
        sizes = boundary_bytes(self._buffers, step)
        return {name: self._bytes(slot, self._starts[name], n) for name, n in sizes.items()}

    def _bytes(self, slot: int, start: int, n: int) -> bytes:
        return bytes(self._slots[slot][1][start : start + n])
