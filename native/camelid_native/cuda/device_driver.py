"""A device by the driver's own interface, through ctypes: libcuda on NVIDIA, libamdhip64 on AMD.

Both have the same functions under other names; where their arguments differ, `Api.arguments` says how. No
package is needed, and tests run every line over a stand-in of the library.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any

from camelid.errors import BackendError, DeviceLostError, OutOfMemoryError
from camelid_native.cuda import dlpack
from camelid_native.cuda.device import Facts, Grid

WAY_OUT = "; install the GPU's driver"
NON_BLOCKING, NO_TIMING, RELAXED = 1, 2, 2  # flags of streams, events and captures
MEMCPY_DEFAULT = 4  # HIP's kind of copy that finds the direction by the addresses
NOT_READY = 600  # the code of an event that has not come yet
PROPERTIES_BYTES = 4096  # more than HIP's structure of a device's properties has
PEER_ENABLED = 704  # peer access has been enabled before
CURRENT = threading.local()  # `device`: that of the thread's current context


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A driver's library: its files, its functions by role, and codes of errors and attributes.

    - `libraries` are names of the library, newest first.
    - `functions` are names by role; "" is a role that the driver does without.
    - `arguments` makes a function's arguments of those of the role, where they differ.
    """

    name: str
    libraries: tuple[str, ...]
    functions: Mapping[str, str]
    arguments: Mapping[str, Callable[[Sequence[Any]], Sequence[Any]]]
    no_memory: frozenset[int]
    lost: frozenset[int]
    wave: int
    processors: int
    clock: int
    arch: Callable[[DriverDevice], str]
    dlpack: int  # the DLDeviceType


def _sm(device: DriverDevice) -> str:
    """The architecture of an NVIDIA device, from its compute capability."""
    return f"sm_{device.attribute(75)}{device.attribute(76)}"


def _gfx(device: DriverDevice) -> str:
    """The architecture of an AMD device, without its features such as :xnack-."""
    return device.properties()[1160:1416].partition(b"\0")[0].decode().partition(":")[0]


def _named(prefix: str, **others: str) -> dict[str, str]:
    """Functions by role, most of them the prefix and the role's own name."""
    roles = (
        *("Init", "DeviceGet", "DeviceGetName", "DeviceGetAttribute", "CtxSetCurrent"),
        *("DevicePrimaryCtxRetain", "MemcpyAsync", "MemsetD8Async", "StreamSynchronize", "StreamCreate"),
        *("ModuleLoadData", "ModuleGetFunction", "LaunchKernel", "StreamEndCapture"),
        *("GraphInstantiateWithFlags", "GraphDestroy", "GraphExecDestroy", "GraphLaunch", "EventCreate"),
        *("EventRecord", "EventQuery", "EventSynchronize", "DriverGetVersion"),
        *("StreamWaitEvent", "DeviceCanAccessPeer", "DeviceGetCount"),
    )
    return {role: others.get(role, prefix + role) for role in (*roles, *others)}


# Codes after which every call fails: of an unavailable device, of memory errors, and of a kernel's faults.
LOST = frozenset({46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
CUDA = Api(
    name="CUDA",
    libraries=("libcuda.so.1",),
    functions=_named(
        "cu", DeviceTotalMem="cuDeviceTotalMem_v2", MemGetInfo="cuMemGetInfo_v2", MemAlloc="cuMemAlloc_v2",
        MemFree="cuMemFree_v2", MemHostAlloc="cuMemHostAlloc", MemFreeHost="cuMemFreeHost",
        StreamDestroy="cuStreamDestroy_v2", StreamBeginCapture="cuStreamBeginCapture_v2",
        EventDestroy="cuEventDestroy_v2", GetErrorString="cuGetErrorString",
        DevicePrimaryCtxRelease="cuDevicePrimaryCtxRelease_v2", EnablePeerAccess="cuCtxEnablePeerAccess",
    ),
    arguments={"CtxSetCurrent": lambda a: a[:1], "EnablePeerAccess": lambda a: (a[0], a[2])},
    no_memory=frozenset({2}),
    lost=LOST,
    wave=10,
    processors=16,
    clock=13,
    arch=_sm,
    dlpack=dlpack.CUDA,
)  # fmt: skip
# HIP deprecates contexts: a thread has a device. Numbers are those of HIP 5.2 to 7.1. R0600 is the layout of
# properties since HIP 6.0, in which gcnArchName is at byte 1160.
HIP = Api(
    name="HIP",
    libraries=("libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"),
    functions=_named(
        "hip", DevicePrimaryCtxRetain="", DevicePrimaryCtxRelease="",
        CtxSetCurrent="hipSetDevice", DeviceGetCount="hipGetDeviceCount",
        DeviceTotalMem="hipDeviceTotalMem", MemGetInfo="hipMemGetInfo",
        DeviceProperties="hipGetDevicePropertiesR0600", MemAlloc="hipMalloc", MemFree="hipFree",
        MemHostAlloc="hipHostMalloc", MemFreeHost="hipHostFree", LaunchKernel="hipModuleLaunchKernel",
        StreamCreate="hipStreamCreateWithFlags", StreamDestroy="hipStreamDestroy",
        StreamBeginCapture="hipStreamBeginCapture", EventCreate="hipEventCreateWithFlags",
        EventDestroy="hipEventDestroy", GetErrorString="hipDrvGetErrorString",
        EnablePeerAccess="hipDeviceEnablePeerAccess",
    ),
    arguments={
        "CtxSetCurrent": lambda a: a[1:],
        "EnablePeerAccess": lambda a: a[1:],
        "MemcpyAsync": lambda a: (*a[:3], c_int(MEMCPY_DEFAULT), *a[3:]),
    },
    no_memory=frozenset({2}),
    lost=LOST,
    wave=87,
    processors=63,
    clock=5,
    arch=_gfx,
    dlpack=dlpack.ROCM,
)  # fmt: skip


class DriverDevice:
    """A GPU of a driver's library. `number` counts the devices that the driver lists.

    `interface` is that of `Facts`, with the reason against another one.
    """

    def __init__(self, api: Api, library: str = "", number: int = 0, interface: str = "") -> None:
        self._api, self._interface = api, interface
        self._library = _opened((library,) if library else api.libraries)
        self._device, self._context, self._stream = c_int(), c_void_p(), c_void_p()
        self._has_context = False
        self._call("Init", c_uint(0))
        self._choose(number)
        self._call("DevicePrimaryCtxRetain", byref(self._context), self._device)
        self._has_context = True
        try:
            self._call("StreamCreate", byref(self._stream), c_uint(NON_BLOCKING))
        except (BackendError, OutOfMemoryError):
            self._call("DevicePrimaryCtxRelease", self._device)
            raise

    def _choose(self, number: int) -> None:
        """Finds the device of a number. Raises BackendError beyond the devices of this machine."""
        n = c_int()
        self._call("DeviceGetCount", byref(n))
        if number >= n.value:
            raise BackendError(
                f"cuda: this machine has {n.value} GPUs of {self._api.name}, so none has the number {number}",
                backend="cuda",
            )
        self._call("DeviceGet", byref(self._device), c_int(number))

    def facts(self) -> Facts:
        """The device's name and sizes."""
        name, total = ctypes.create_string_buffer(256), c_size_t()
        self._call("DeviceGetName", name, c_int(len(name)), self._device)
        self._call("DeviceTotalMem", byref(total), self._device)
        return Facts(
            name=name.value.decode(errors="replace"),
            arch=self._api.arch(self),
            wave=self.attribute(self._api.wave),
            n_processors=self.attribute(self._api.processors),
            clock_khz=self.attribute(self._api.clock),
            memory_bytes=total.value,
            driver=str(self._version()),
            dlpack=(self._api.dlpack, self._device.value),
            interface=self._interface,
        )

    def _version(self) -> int:
        """The driver's version as a number."""
        version = c_int()
        self._call("DriverGetVersion", byref(version))
        return version.value

    def attribute(self, number: int) -> int:
        """One of the driver's numbered attributes of the device."""
        value = c_int()
        self._call("DeviceGetAttribute", byref(value), c_int(number), self._device)
        return value.value

    def properties(self) -> bytes:
        """HIP's structure of the device's properties."""
        held = ctypes.create_string_buffer(PROPERTIES_BYTES)
        self._call("DeviceProperties", held, self._device)
        return held.raw

    def free_bytes(self) -> int:
        """Bytes of memory that no process has allocated."""
        free, total = c_size_t(), c_size_t()
        self._call("MemGetInfo", byref(free), byref(total))
        return free.value

    def stream(self) -> int:
        """The handle of the stream."""
        return self._stream.value or 0

    def module(self, image: bytes) -> c_void_p:
        """Loads the code of a module."""
        module = c_void_p()
        self._call("ModuleLoadData", byref(module), c_char_p(image))
        return module

    def kernel(self, module: c_void_p, name: str) -> c_void_p:
        """A kernel of a module."""
        kernel = c_void_p()
        self._call("ModuleGetFunction", byref(kernel), module, c_char_p(name.encode()))
        return kernel

    def allocate(self, n_bytes: int) -> int:
        """The address of new memory, aligned to 256 bytes."""
        at = c_void_p()
        self._call("MemAlloc", byref(at), c_size_t(n_bytes), want=n_bytes)
        return at.value or 0

    def free(self, at: int) -> None:
        """Frees memory of `allocate`."""
        self._call("MemFree", c_void_p(at))

    def pinned(self, n_bytes: int) -> tuple[int, memoryview[int]]:
        """Memory of the host that the device copies directly: its address and bytes."""
        at = c_void_p()
        self._call("MemHostAlloc", byref(at), c_size_t(n_bytes), c_uint(0), want=n_bytes)
        return at.value or 0, memoryview((ctypes.c_ubyte * n_bytes).from_address(at.value or 0)).cast("B")

    def free_pinned(self, at: int) -> None:
        """Frees memory of `pinned`."""
        self._call("MemFreeHost", c_void_p(at))

    def copy(self, to: int, at: int, n_bytes: int) -> None:
        """Enqueues a copy, in any direction."""
        self._call("MemcpyAsync", c_void_p(to), c_void_p(at), c_size_t(n_bytes), self._stream)

    def fill(self, at: int, byte: int, n_bytes: int) -> None:
        """Enqueues bytes of one value."""
        self._call("MemsetD8Async", c_void_p(at), ctypes.c_ubyte(byte), c_size_t(n_bytes), self._stream)

    def launch(self, kernel: c_void_p, grid: Grid, threads: int, arguments: Sequence[bytes]) -> None:
        """Enqueues a kernel with the bytes of its arguments."""
        kept = [ctypes.create_string_buffer(one, len(one)) for one in arguments]
        places = (c_void_p * max(len(kept), 1))(*(ctypes.addressof(one) for one in kept))
        sizes = (*map(c_uint, grid), c_uint(threads), c_uint(1), c_uint(1), c_uint(0))
        self._call("LaunchKernel", kernel, *sizes, self._stream, places, None)

    def capture(self, work: Callable[[], None]) -> c_void_p:
        """A graph of everything that `work` enqueues, with its arguments."""
        graph, ready = c_void_p(), c_void_p()
        self._call("StreamBeginCapture", self._stream, c_int(RELAXED))
        try:
            work()
        except BaseException:
            with suppress(BackendError):  # the first error is the cause
                self._call("StreamEndCapture", self._stream, byref(graph))
                self._call("GraphDestroy", graph)
            raise
        self._call("StreamEndCapture", self._stream, byref(graph))
        try:
            self._call("GraphInstantiateWithFlags", byref(ready), graph, c_ulonglong(0))
        finally:
            self._call("GraphDestroy", graph)
        return ready

    def replay(self, graph: c_void_p) -> None:
        """Enqueues a graph."""
        self._call("GraphLaunch", graph, self._stream)

    def drop(self, graph: c_void_p) -> None:
        """Frees a graph that no longer runs."""
        self._call("GraphExecDestroy", graph)

    def mark(self) -> c_void_p:
        """An event after everything enqueued so far."""
        event = c_void_p()
        self._call("EventCreate", byref(event), c_uint(NO_TIMING))
        self._call("EventRecord", event, self._stream)
        return event

    def is_done(self, mark: c_void_p) -> bool:
        """True if nothing before an event is left to do."""
        return not self._call("EventQuery", mark, fine=NOT_READY)

    def wait(self, mark: c_void_p) -> None:
        """Waits for an event, and frees it."""
        try:
            self._call("EventSynchronize", mark)
        finally:
            self._call("EventDestroy", mark)

    def after(self, mark: c_void_p) -> None:
        """Lets later work of the stream wait for an event of another device too."""
        self._call("StreamWaitEvent", self._stream, mark, c_uint(0))

    def forget(self, mark: c_void_p) -> None:
        """Frees an event that the host does not wait for."""
        self._call("EventDestroy", mark)

    def reach(self, peer: DriverDevice) -> None:
        """Lets copies go from this device to a peer directly, where the machine can do so."""
        can = c_int()
        self._call("DeviceCanAccessPeer", byref(can), self._device, peer._device)
        if can.value:
            self._call("EnablePeerAccess", peer._context, peer._device, c_uint(0), fine=PEER_ENABLED)

    def close(self) -> None:
        """Waits for the stream, frees it and releases the context; a lost device has no stream left."""
        try:
            self._call("StreamSynchronize", self._stream)
            self._call("StreamDestroy", self._stream)
        except DeviceLostError:
            pass
        finally:
            self._call("DevicePrimaryCtxRelease", self._device)

    def _call(self, role: str, *arguments: Any, want: int = 0, fine: int = 0) -> int:
        """Calls a function and returns its code, 0 or `fine`.

        Raises the error of another code; `want` bytes were asked for.
        """
        if self._has_context and getattr(CURRENT, "device", None) is not self:
            self._enter()
        name, given = self._api.functions[role], self._api.arguments.get(role)
        if not name:
            return 0
        code = self._function(name)(*(given(arguments) if given else arguments))
        if code not in (0, fine):
            raise self._error(role, code, want)
        return code

    def _enter(self) -> None:
        """Makes the device the thread's."""
        CURRENT.device = self
        try:
            self._call("CtxSetCurrent", self._context, self._device)
        except BaseException:
            CURRENT.device = None
            raise

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError:
            told = f"cuda: the driver {self._library._name} lacks {name}; install a newer driver"
            raise BackendError(told, backend="cuda") from None

    def _error(self, role: str, code: int, want: int) -> Exception:
        text = c_char_p()
        getattr(self._library, self._api.functions["GetErrorString"])(c_int(code), byref(text))
        told = f"cuda: {self._api.functions[role]}: {(text.value or b'unknown error').decode()} ({code})"
        if code in self._api.no_memory:
            way = "use a smaller context, kv_type or quantization, or -ngl for layers on the processor"
            size = f"{want:,} bytes were requested; " if want else ""
            return OutOfMemoryError(f"{told}; {size}{way}", want_bytes=want)
        if code in self._api.lost:
            way = "restart the process and load the model again"
            return DeviceLostError(f"{told}; {way}", backend="cuda", reason=told)
        return BackendError(told, backend="cuda")


def check_library(api: Api) -> None:
    """Raises BackendError if the driver's library cannot be opened."""
    _opened(api.libraries)


def _opened(names: Sequence[str]) -> ctypes.CDLL:
    """The first library that opens."""
    told = ""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            told = told or str(error)
    raise BackendError(f"cuda: {names[0]} cannot be opened ({told}){WAY_OUT}", backend="cuda")
