"""Results that stay on the device, as arrays for DLPack's consumers: torch, CuPy, JAX.

An array outlives its backend: the device closes with the last one.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any

from camelid.errors import BackendError
from camelid_native.cuda.device import Device
from camelid_native.cuda.dlpack import DeviceId, capsule_of


class Lender:
    """The arrays of one device. A consumer frees its array in any thread."""

    def __init__(self, device: Device) -> None:
        self._device, self._lock = device, Lock()
        self._n_lent, self._is_closed = 0, False

    def array(self, rows: int, cols: int) -> CudaArray:
        """A new array of zeros. Raises OutOfMemoryError."""
        at = self._device.allocate(max(4 * rows * cols, 4))
        with self._lock:
            self._n_lent += 1
        return CudaArray(self, self._device, at, rows, cols)

    def take_back(self, at: int) -> None:
        """Frees an array's memory; a lost device has nothing to free."""
        with suppress(BackendError):
            self._device.free(at)
        with self._lock:
            self._n_lent -= 1
            is_last = self._is_closed and not self._n_lent
        if is_last:
            with suppress(BackendError):
                self._device.close()

    def close(self) -> None:
        """Closes the device, now or with the last array."""
        with self._lock:
            self._is_closed = True
            is_last = not self._n_lent
        if is_last:
            self._device.close()


class CudaArray:
    """Rows of float32 on a device, [rows, cols], zero until a step fills them.

    `torch.from_dlpack` and `cupy.from_dlpack` use the memory in place, which is freed with its last user.
    """

    def __init__(self, lender: Lender, device: Device, at: int, rows: int, cols: int) -> None:
        self.shape = (rows, cols)
        self._lender, self._device, self._at = lender, device, at
        self._mark: Any = None
        device.fill(at, 0, 4 * rows * cols)
        self.written()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape[0]}x{self.shape[1]} f32 on {self._device.facts().name}>"

    def __dlpack_device__(self) -> DeviceId:
        return self._device.facts().dlpack

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """A capsule of the memory, after the steps that fill it: so any `stream` of the consumer is right."""
        self._settle()
        return capsule_of(self, self._at, self.shape, self.__dlpack_device__())

    def take(self, device: Device, row: int, n_rows: int, cols: int) -> int:
        """The address of rows that a step is to fill.

        Raises BackendError for other rows than the array has, and on another device.
        """
        if device is not self._device:
            raise BackendError(
                "cuda: the array is of a device that was closed or lost; make a new one", backend="cuda"
            )
        if cols != self.shape[1] or not 0 <= row <= self.shape[0] - n_rows:
            raise BackendError(
                f"cuda: a step returns {n_rows} rows of {cols} for row {row} on, and the array is "
                f"{self.shape[0]}x{self.shape[1]}",
                backend="cuda",
            )
        return self._at + 4 * cols * row

    def written(self) -> None:
        """Notes that everything enqueued so far fills the array."""
        mark, self._mark = self._mark, self._device.mark()
        if mark is not None:
            self._device.forget(mark)

    def _settle(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            self._device.wait(mark)

    def __del__(self) -> None:
        with suppress(BackendError):
            self._settle()
        self._lender.take_back(self._at)
