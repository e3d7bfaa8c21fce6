"""Uploads through pinned memory: one half is filled while the device copies the other."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from camelid.errors import BackendError
from camelid_native.cuda.device import Device
from camelid_native.cuda.holdings import Holdings

HALF_BYTES = 8 << 20


class Staging:
    """Two halves of pinned memory, used in turns."""

    def __init__(self, device: Device) -> None:
        self._device, self._holdings = device, Holdings(device)
        with self._holdings.building():
            self._halves = [self._holdings.pinned(HALF_BYTES) for _ in range(2)]
        self._marks: list[Any] = [None, None]
        self._turn = 0

    def upload(self, to: int, data: npt.NDArray[np.uint8]) -> None:
        """Enqueues the copy of bytes to the device; `data` is free afterwards."""
        flat = np.ascontiguousarray(data).reshape(-1)
        for start in range(0, flat.size, HALF_BYTES):
            self._piece(to + start, flat[start : start + HALF_BYTES])

    def download(self, at: int, n_bytes: int) -> bytes:
        """Bytes of the device, after everything enqueued so far."""
        self.settle()
        pieces: list[bytes] = []
        for start in range(0, n_bytes, HALF_BYTES):
            size = min(HALF_BYTES, n_bytes - start)
            self._device.copy(self._halves[0][0], at + start, size)
            self._device.wait(self._device.mark())
            pieces.append(bytes(self._halves[0][1][:size]))
        return b"".join(pieces)

    def settle(self) -> None:
        """Waits for all uploads."""
        for turn in range(2):
            self._wait(turn)

    def close(self) -> None:
        """Frees the memory, after the copies in flight."""
        for turn in range(2):
            with suppress(BackendError):  # of a lost device
                self._wait(turn)
        self._holdings.close()

    def _piece(self, to: int, data: npt.NDArray[np.uint8]) -> None:
        turn, self._turn = self._turn, 1 - self._turn
        self._wait(turn)
        at, held = self._halves[turn]
        held[: data.size] = data.data
        self._device.copy(to, at, data.size)
        self._marks[turn] = self._device.mark()

    def _wait(self, turn: int) -> None:
        mark, self._marks[turn] = self._marks[turn], None
        if mark is not None:
            self._device.wait(mark)
