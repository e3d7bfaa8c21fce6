"""DLPack: arrays of a device that other libraries use in place, and arrays of theirs.

Source: https://dmlc.github.io/dlpack/latest/c_api.html and python_spec.html. Capsules are of version 0, which
every consumer takes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, addressof, c_char_p, c_int, c_int32, c_int64, c_uint8, c_void_p
from math import prod
from typing import Any, ClassVar

from camelid.errors import BackendError

DeviceId = tuple[int, int]  # a DLDeviceType, and a number among its devices
CPU, CUDA, ROCM = 1, 2, 10
NAMES = {CPU: "cpu", CUDA: "cuda", ROCM: "rocm"}
DTYPES = {"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16)}  # code and bits of an activation's dtype
GIVEN, TAKEN = b"dltensor", b"used_dltensor"  # names of a capsule before and after its consumer


class Tensor(Structure):
    """DLTensor."""

    _fields_: ClassVar[Any] = [
        ("data", c_void_p), ("device_type", c_int32), ("device_number", c_int32), ("n_dims", c_int32),
        ("code", c_uint8), ("bits", c_uint8), ("lanes", ctypes.c_uint16), ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Managed(Structure):
    """DLManagedTensor. `context` is the address of its `Lent`."""

    _fields_: ClassVar[Any] = [("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p)]


_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_is_named = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_drop = ctypes.PYFUNCTYPE(None, c_void_p)(("Py_DecRef", ctypes.pythonapi))
_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


@_Deleter
def _delete(managed: int) -> None:
    """Ends a loan: the deleter that a consumer calls."""
    _drop(Managed.from_address(managed).context)


@_Deleter
def _destroy(capsule: int) -> None:
    """Ends the loan of a capsule without a consumer."""
    if _is_named(capsule, GIVEN):
        _delete(_pointer(capsule, GIVEN))


class Lent:
    """A tensor in a consumer's hands, with its owner and the memory of its fields."""

    def __init__(self, owner: object, at: int, shape: Sequence[int], device: DeviceId) -> None:
        self.owner = owner
        self.shape = (c_int64 * len(shape))(*shape)
        tensor = Tensor(at, *device, len(shape), *DTYPES["f32"], 1, self.shape, None, 0)
        self.managed = Managed(tensor, id(self), ctypes.cast(_delete, c_void_p))


def capsule_of(owner: object, at: int, shape: Sequence[int], device: DeviceId) -> Any:
    """A capsule of contiguous float32 at an address, which keeps its owner."""
    lent = Lent(owner, at, shape, device)
    _keep(lent)  # until the deleter
    return _new(addressof(lent.managed), GIVEN, ctypes.cast(_destroy, c_void_p))


class Borrowed:
    """The memory of another library's array, `n_bytes` bytes from `at`, until it is deleted."""

    def __init__(self, capsule: Any) -> None:
        self._managed = Managed.from_address(_pointer(id(capsule), GIVEN))
        _rename(id(capsule), TAKEN)
        self._tensor: Tensor = self._managed.tensor
        self.shape = self._tensor.shape[: self._tensor.n_dims]
        self.at: int = (self._tensor.data or 0) + self._tensor.byte_offset
        self.device: DeviceId = (self._tensor.device_type, self._tensor.device_number)
        self.n_bytes: int = prod(self.shape) * self._tensor.bits // 8

    def __len__(self) -> int:
        return self.n_bytes

    def is_of(self, dtype: str) -> bool:
        """True for contiguous elements of an activation's dtype."""
        steps = [prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        found = self._tensor.strides[: len(self.shape)] if self._tensor.strides else steps
        is_dense = all(a == b for a, b, n in zip(found, steps, self.shape, strict=True) if n > 1)
        return is_dense and (self._tensor.code, self._tensor.bits, self._tensor.lanes) == (*DTYPES[dtype], 1)

    def __del__(self) -> None:
        if self._managed.deleter:
            _Deleter(self._managed.deleter)(addressof(self._managed))


def borrowed(array: Any, dtype: str, device: DeviceId, stream: int) -> Borrowed:
    """The memory of an array on a device or on the host, ready for what `stream` does next.

    Raises BackendError for an array of another dtype, order or device.
    """
    found: DeviceId = tuple(map(int, array.__dlpack_device__()))  # pyright: ignore[reportAssignmentType]
    if found != device and found[0] != CPU:
        kind, number = found
        raise BackendError(
            f"cuda: the array is on device {NAMES.get(kind, kind)}:{number}, the model on "
            f"{NAMES[device[0]]}:{device[1]}; copy the array there first",
            backend="cuda",
        )
    try:
        held = Borrowed(array.__dlpack__(stream=None if found[0] == CPU else stream))
    except (BufferError, TypeError, ValueError) as error:
        raise BackendError(f"cuda: the array cannot be shared: {error}", backend="cuda") from error
    if not held.is_of(dtype):
        told = f"cuda: the array has another dtype than {dtype}, or is not contiguous; convert or copy it"
        raise BackendError(told, backend="cuda")
    return held
