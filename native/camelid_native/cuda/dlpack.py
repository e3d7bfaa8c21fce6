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
from camelid.plan.plan import Buffer

DeviceId = tuple[int, int]  # a DLDeviceType, and a number among its devices
CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, MANAGED = 1, 2, 3, 10, 11, 13
NAMES = {CPU: "cpu", CUDA: "cuda", ROCM: "rocm", MANAGED: "managed memory"}
HOST = frozenset({CPU, CUDA_HOST, ROCM_HOST})  # the processor's memory, also pinned
DTYPES = {"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16)}  # code and bits of an activation's dtype
UNREAD, USED = b"dltensor", b"used_dltensor"  # names of a capsule before and after its consumer


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
_clear_error = ctypes.PYFUNCTYPE(None)(("PyErr_Clear", ctypes.pythonapi))
_drop = ctypes.PYFUNCTYPE(None, c_void_p)(("Py_DecRef", ctypes.pythonapi))
_Deleter = ctypes.CFUNCTYPE(None, c_void_p)


@_Deleter
def _delete(managed: int) -> None:
    """Ends a loan: the deleter that a consumer calls."""
    _drop(Managed.from_address(managed).context)


@_Deleter
def _destroy(capsule: int) -> None:
    """Ends the loan of an unread capsule. Calls would fail beside an exception of its consumer."""
    _clear_error()
    if _is_named(capsule, UNREAD):
        _delete(_pointer(capsule, UNREAD))


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
    return _new(addressof(lent.managed), UNREAD, ctypes.cast(_destroy, c_void_p))


class Borrowed:
    """The memory of another library's array, `n_bytes` bytes from `at`, until it is deleted."""

    def __init__(self, capsule: Any) -> None:
        """Raises ValueError for another object than an unread capsule of version 0."""
        self._managed: Managed | None = None
        if not _is_named(id(capsule), UNREAD):
            raise ValueError("__dlpack__ returned no unread capsule 'dltensor'")
        self._managed = Managed.from_address(_pointer(id(capsule), UNREAD))
        _rename(id(capsule), USED)
        self._tensor: Tensor = self._managed.tensor
        self.shape = self._tensor.shape[: self._tensor.n_dims]
        self.at: int = (self._tensor.data or 0) + self._tensor.byte_offset
        self.device: DeviceId = (self._tensor.device_type, self._tensor.device_number)
        self.n_bytes: int = prod(self.shape) * self._tensor.bits // 8

    def __len__(self) -> int:
        return self.n_bytes

    @property
    def is_dense(self) -> bool:
        """True for rows without gaps, in order."""
        steps = [prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        found = self._tensor.strides[: len(self.shape)] if self._tensor.strides else steps
        return all(a == b for a, b, n in zip(found, steps, self.shape, strict=True) if n > 1)

    def fault(self, buffer: Buffer) -> str:
        """The reason why the array is no input of a buffer; "" if it is one."""
        dtype = (self._tensor.code, self._tensor.bits, self._tensor.lanes)
        if dtype != (*DTYPES[buffer.dtype], 1):
            return f"has another dtype (code, bits and lanes {dtype}) than {buffer.dtype}; convert it"
        if self.shape[-1:] != [buffer.cols]:
            return f"has the shape {self.shape}; [rows, {buffer.cols}] is expected"
        return "" if self.is_dense else "has gaps between its elements, or another order; copy it"

    def __del__(self) -> None:
        if self._managed is not None and self._managed.deleter:
            _Deleter(self._managed.deleter)(addressof(self._managed))


def borrowed(array: Any, buffer: Buffer, device: DeviceId, stream: int) -> Borrowed:
    """The memory of an array on a device or on the host, ready for what `stream` does next.

    Raises BackendError for an array of another device, dtype, shape or order.
    """
    found: DeviceId = tuple(map(int, array.__dlpack_device__()))  # pyright: ignore[reportAssignmentType]
    if found != device and found[0] not in HOST:
        kind, number = found
        raise BackendError(
            f"cuda: the array for the input {buffer.name!r} is on {NAMES.get(kind, kind)}:{number}, the "
            f"model on {NAMES[device[0]]}:{device[1]}; copy the array there first",
            backend="cuda",
        )
    try:
        held = Borrowed(array.__dlpack__(stream=None if found[0] in HOST else stream))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        told = f"cuda: the input {buffer.name!r} cannot be shared: {error}; copy the array, or give its bytes"
        raise BackendError(told, backend="cuda") from error
    if fault := held.fault(buffer):
        raise BackendError(f"cuda: the array for the input {buffer.name!r} {fault}", backend="cuda")
    return held
