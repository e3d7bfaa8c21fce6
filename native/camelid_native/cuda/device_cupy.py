"""A device by CuPy. NVIDIA's alone: on HIP CuPy captures no graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from threading import RLock
from typing import Any

from camelid.errors import BackendError, DeviceLostError, OutOfMemoryError
from camelid_native.cuda.device import Facts, Grid
from camelid_native.cuda.device_driver import CUDA, CURRENT, MEMCPY_DEFAULT, RELAXED

POOL_BYTES = 512  # CuPy's pool allocates multiples of this


class CupyDevice:
    """A GPU of CuPy. `number` counts the devices that CuPy lists."""

    def __init__(self, number: int = 0) -> None:
        try:
            cupy = import_module("cupy")
        except ImportError as error:
            raise BackendError(f"cuda: CuPy cannot be imported: {error}", backend="cuda") from None
        self._cuda: Any = cupy.cuda
        self._version = str(cupy.__version__)
        self._number, self._held = number, dict[int, Any]()
        self._sizes: dict[int, int] = {}  # of the pool's memory, by address
        self._lock = RLock()  # the pool's: other threads free arrays
        self._stream: Any = self._call(lambda: self._cuda.Stream(non_blocking=True))
        self._pool: Any = self._cuda.MemoryPool()

    def facts(self) -> Facts:
        found: dict[str, Any] = self._call(self._cuda.runtime.getDeviceProperties, self._number)
        return Facts(
            name=bytes(found["name"]).decode(), arch=f"sm_{found['major']}{found['minor']}",
            wave=found["warpSize"], n_processors=found["multiProcessorCount"],
            clock_khz=self._call(self._cuda.runtime.deviceGetAttribute, CUDA.clock, self._number),
            memory_bytes=found["totalGlobalMem"],
            driver=str(self._cuda.runtime.driverGetVersion()),
            dlpack=(CUDA.dlpack, self._number),
            interface=f"by CuPy {self._version}",
        )  # fmt: skip

    def free_bytes(self) -> int:
        return self._call(self._cuda.runtime.memGetInfo)[0]

    def stream(self) -> int:
        return self._stream.ptr

    def module(self, image: bytes) -> Any:
        module = self._cuda.function.Module()
        self._call(module.load, image)
        return module

    def kernel(self, module: Any, name: str) -> Any:
        return self._call(module.get_function, name)

    def allocate(self, n_bytes: int) -> int:
        """Memory of a pool of this device alone, whose limit is exactly what is allocated."""
        size = -(-n_bytes // POOL_BYTES) * POOL_BYTES
        with self._lock:
            self._bound(size)
            at = self._keep(self._call(self._pool.malloc, n_bytes))
            self._sizes[at] = size
        return at

    def free(self, at: int) -> None:
        """Gives memory back to the device: other processes and the next load find it free."""
        with self._lock:
            del self._held[at], self._sizes[at]
            self._call(self._pool.free_all_blocks)
            self._bound()

    def pinned(self, n_bytes: int) -> tuple[int, memoryview[int]]:
        at = self._keep(self._call(self._cuda.alloc_pinned_memory, n_bytes))
        return at, memoryview((ctypes.c_ubyte * n_bytes).from_address(at)).cast("B")

    def free_pinned(self, at: int) -> None:
        del self._held[at]

    def copy(self, to: int, at: int, n_bytes: int) -> None:
        self._call(self._cuda.runtime.memcpyAsync, to, at, n_bytes, MEMCPY_DEFAULT, self._stream.ptr)

    def fill(self, at: int, byte: int, n_bytes: int) -> None:
        self._call(self._cuda.runtime.memsetAsync, at, byte, n_bytes, self._stream.ptr)

    def launch(self, kernel: Any, grid: Grid, threads: int, arguments: Sequence[bytes]) -> None:
        kept = [ctypes.create_string_buffer(one, len(one)) for one in arguments]
        places = (ctypes.c_void_p * max(len(kept), 1))(*map(ctypes.addressof, kept))
        rest = (*grid, threads, 1, 1, 0, self._stream.ptr, ctypes.addressof(places), 0)
        self._call(self._cuda.driver.launchKernel, kernel.ptr, *rest)

    def capture(self, work: Callable[[], None]) -> Any:
        self._call(self._stream.begin_capture, RELAXED)
        try:
            work()
        except BaseException:
            with suppress(BackendError):
                self._call(self._stream.end_capture)
            raise
        return self._call(self._stream.end_capture)

    def replay(self, graph: Any) -> None:
        self._call(graph.launch, self._stream)

    def drop(self, graph: Any) -> None:
        """Nothing: CuPy frees a graph with the last reference to it."""

    def mark(self) -> Any:
        event = self._call(lambda: self._cuda.Event(disable_timing=True))
        self._call(event.record, self._stream)
        return event

    def is_done(self, mark: Any) -> bool:
        return self._call(lambda: mark.done)

    def wait(self, mark: Any) -> None:
        self._call(mark.synchronize)

    def after(self, mark: Any) -> None:
        self._call(self._stream.wait_event, mark)

    def forget(self, mark: Any) -> None:
        """Nothing: CuPy frees an event with the last reference to it."""

    def reach(self, peer: Any) -> None:
        """Nothing: several devices are by the driver's own interface."""

    def close(self) -> None:
        try:
            self._call(self._stream.synchronize)
        finally:
            self._held.clear()
            self._call(self._pool.free_all_blocks)

    def _bound(self, more: int = 0) -> None:
        """Bounds the pool by what is allocated and `more` bytes."""
        self._call(self._pool.set_limit, max(sum(self._sizes.values()) + more, 1))  # 0 is no limit

    def _keep(self, memory: Any) -> int:
        """The address of memory of a pool, which goes back to the pool at `free`."""
        self._held[memory.ptr] = memory
        return memory.ptr

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of CuPy. Raises OutOfMemoryError, DeviceLostError or BackendError."""
        cuda = self._cuda
        try:
            if getattr(CURRENT, "device", None) is not self:
                cuda.runtime.setDevice(self._number)
                CURRENT.device = self
            return function(*arguments)
        except cuda.memory.OutOfMemoryError as error:
            raise OutOfMemoryError(f"cuda: {error}; use a smaller context or quantization") from error
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            if error.status in CUDA.no_memory:
                raise OutOfMemoryError(f"cuda: {error}; use a smaller context or quantization") from error
            if error.status in CUDA.lost:
                raise DeviceLostError(f"cuda: {error}", backend="cuda", reason=str(error)) from error
            raise BackendError(f"cuda: {error}", backend="cuda") from error
