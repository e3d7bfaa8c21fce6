"""Results that stay on the device, as arrays for DLPack's consumers: torch, CuPy, JAX.

An array outlives its backend: the device closes with the last one, unless it was lost.
"""

from __future__ import annotations

from contextlib import suppress
from threading import RLock
from typing import Any

from camelid.errors import BackendError
from camelid_native.cuda.device import Device
from camelid_native.cuda.dlpack import HOST, DeviceId, capsule_of

ABSENT: Any = object()


class Lender:
    """The arrays of one device. A consumer may free its array in any thread."""

    def __init__(self, device: Device, device_id: DeviceId) -> None:
        """`device_id` is the device in DLPack's terms."""
        self.device, self.device_id, self.lock = device, device_id, RLock()
        self.is_lost = self._is_closed = False
        self._marks: dict[int, Any] = {}  # events after the steps that fill an array, by address
        self._n_lent = 0

    def array(self, rows: int, cols: int) -> CudaArray:
        """A new array of zeros. Raises OutOfMemoryError."""
        at = self.device.allocate(max(4 * rows * cols, 4))
        with self.lock:
            self._n_lent += 1
        return CudaArray(self, at, rows, cols)

    def written(self, at: int) -> None:
        """Notes that everything enqueued so far fills an array."""
        with self.lock:
            mark = self.device.mark()
            self._forget(at)
            self._marks[at] = mark

    def settle(self, at: int) -> None:
        """Waits for the steps that fill an array."""
        with self.lock:
            mark = self._marks.pop(at, None)
            if mark is not None:
                self.device.wait(mark)

    def free(self, at: int) -> None:
        """Frees an array's memory; a lost device has nothing to free."""
        with self.lock, suppress(BackendError):
            self._n_lent -= 1
            if self.is_lost:
                return
            with suppress(BackendError):
                self.settle(at)
            self.device.free(at)
            if self._is_closed and not self._n_lent:
                self.device.close()

    def _forget(self, at: int) -> None:
        mark = self._marks.pop(at, None)
        if mark is not None:
            with suppress(BackendError):  # of a lost device
                self.device.forget(mark)

    def close(self) -> None:
        """Closes the device, now or with the last array."""
        with self.lock:
            self._is_closed = True
            if not self._n_lent:
                self.device.close()

    def abandon(self) -> None:
        """Closes a lost device, whose arrays have no memory any more."""
        with self.lock:
            self.is_lost = True
            for at in [*self._marks]:
                self._forget(at)
            self.device.close()


class CudaArray:
    """Rows of float32 on a device, [rows, cols], zero until a step fills them.

    `torch.from_dlpack` and `cupy.from_dlpack` use the memory in place, which is freed with its last user.
    """

    def __init__(self, lender: Lender, at: int, rows: int, cols: int) -> None:
        self.shape = (rows, cols)
        self._lender, self._at = lender, at
        lender.device.fill(at, 0, 4 * rows * cols)
        self.written()

    @property
    def is_lost(self) -> bool:
        """True if the device was lost, and the array with it."""
        return self._lender.is_lost

    def __dlpack_device__(self) -> DeviceId:
        return self._lender.device_id

    def __dlpack__(
        self, *, stream: Any = ABSENT, dl_device: Any = None, copy: bool | None = None, **_: Any
    ) -> Any:
        """A capsule of the memory, after the steps that fill it: so any `stream` of the consumer is right.

        Raises BufferError for a copy, another device, a consumer without streams (NumPy) of a GPU's memory,
        and a lost array.
        """
        if copy or dl_device not in (None, self._lender.device_id):
            raise BufferError(
                f"the array is shared in place, on device {self._lender.device_id}; copy it there"
            )
        if stream is ABSENT and self._lender.device_id[0] not in HOST:
            raise BufferError("the array is in a GPU's memory: use torch or CuPy, or logits() for NumPy")
        self._lender.settle(self._at)
        if self.is_lost:  # also while this thread waited
            raise BufferError("the array was lost with its device; compute it again")
        return capsule_of(self, self._at, self.shape, self._lender.device_id)

    def rows_at(self, device: Device, row: int, n_rows: int, cols: int) -> int:
        """The address of rows that a step is to fill.

        Raises BackendError for other rows than the array has, and on another device.
        """
        if device is not self._lender.device:
            raise BackendError(
                "cuda: the array is of a device that was closed or lost; make a new one", backend="cuda"
            )
        if cols != self.shape[1] or not 0 <= row <= self.shape[0] - n_rows:
            raise BackendError(
                f"cuda: the step returns {n_rows} rows of {cols} floats for row {row} on of an array "
                f"{self.shape[0]}x{self.shape[1]}; make an array with room for them",
                backend="cuda",
            )
        return self._at + 4 * cols * row

    def written(self) -> None:
        """Notes that everything enqueued so far fills the array."""
        self._lender.written(self._at)

    def __del__(self) -> None:
        self._lender.free(self._at)
