"""The device by CuPy: its calls against CuPy's signatures, and every line over a record of calls."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cuda.rig import RigCompiler, driver_library
from tests.cuda.rig import open_device as open_rig_device

from camelid.errors import BackendError, DeviceLostError, OutOfMemoryError
from camelid_native.cuda import vendors
from camelid_native.cuda.backend import Opened
from camelid_native.cuda.device import Device
from camelid_native.cuda.device_cupy import CupyDevice
from camelid_native.cuda.device_driver import CUDA, HIP, DriverDevice

# Of CuPy's functions that the device calls: the parameters of their docstrings.
SIGNATURES = {
    "MemoryPool.malloc": "self, size_t size",
    "MemoryPool.set_limit": "self, size=None, fraction=None",
    "MemoryPool.free_all_blocks": "self, stream=None",
    "alloc_pinned_memory": "size_t size",
    "runtime.setDevice": "int device",
    "runtime.getDeviceProperties": "int device",
    "runtime.deviceGetAttribute": "int attrib, int device",
    "runtime.memGetInfo": "",
    "runtime.driverGetVersion": "",
    "runtime.memcpyAsync": "intptr_t dst, intptr_t src, size_t size, int kind, intptr_t stream",
    "runtime.memsetAsync": "intptr_t ptr, int value, size_t size, intptr_t stream",
    "driver.launchKernel": (
        "intptr_t f, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z, "
        "unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, "
        "unsigned int shared_mem_bytes, intptr_t stream, intptr_t kernel_params, intptr_t extra"
    ),
    "function.Module.load": "self, bytes cubin",
    "function.Module.get_function": "self, name",
    "Stream.__init__": "self, null=False, non_blocking=False, ptds=False, priority=None",
    "Stream.begin_capture": "self, mode=None",
    "Stream.end_capture": "self",
    "Stream.synchronize": "self",
    "Stream.wait_event": "self, event",
    "Event.__init__": "self, block=False, disable_timing=False, interprocess=False",
    "Event.record": "self, stream=None",
    "Event.synchronize": "self",
    "Event.done": "self",
    "graph.Graph.launch": "self, stream=None",
}

# In a process of its own: CuPy imports a package `cuda`.
DOCSTRINGS = """
import functools, json, sys, cupy
names = [name.split(".") for name in sys.argv[1:]]
print(json.dumps([functools.reduce(getattr, parts, cupy.cuda).__doc__ for parts in names]))
"""


def absent(name: str) -> Any:
    raise ImportError(f"No module named {name!r}")


class FakeError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"error {status}")
        self.status = status


class FakeMemoryError(MemoryError):
    pass


class Recorder:
    """An object whose methods record their names and arguments, and return what `answers` has."""

    def __init__(self, calls: list[tuple[str, Sequence[Any]]], name: str = "", **answers: Any) -> None:
        self._calls, self._name, self._answers = calls, name, answers
        self.ptr = 7

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self._calls.append((f"{self._name}{name}", (*arguments, *named.items())))
            answer = self._answers.get(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def fake(calls: list[tuple[str, Sequence[Any]]], **answers: Any) -> Any:
    properties = {"name": b"H100", "major": 9, "minor": 0, "warpSize": 32, "multiProcessorCount": 132}
    graph = Recorder(calls, "graph.")
    known = {
        "getDeviceProperties": {**properties, "totalGlobalMem": 1 << 30},
        "deviceGetAttribute": 1980000,
        "memGetInfo": (5, 9),
        "driverGetVersion": 13000,
        **answers,
    }
    runtime, driver = Recorder(calls, **known), Recorder(calls, **known)
    errors = {"CUDARuntimeError": FakeError, "CUDADriverError": type("FakeDriverError", (FakeError,), {})}
    vars(runtime).update(errors)
    vars(driver).update(errors)
    held = [(ctypes.c_ubyte * 64)() for _ in range(2)]
    pool = Recorder(calls, "pool.", malloc=SimpleNamespace(ptr=ctypes.addressof(held[0])), **answers)
    return SimpleNamespace(
        runtime=runtime,
        driver=driver,
        memory=SimpleNamespace(OutOfMemoryError=FakeMemoryError),
        function=SimpleNamespace(Module=lambda: Recorder(calls, "module.", get_function=Recorder(calls))),
        Stream=lambda non_blocking: Recorder(calls, "stream.", end_capture=graph),
        Event=lambda disable_timing: Recorder(calls, "event."),
        MemoryPool=lambda: pool,
        alloc_pinned_memory=lambda n: SimpleNamespace(ptr=ctypes.addressof(held[1]), held=held),
    )


def opened(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> tuple[Device, list[tuple[str, Sequence[Any]]]]:
    calls: list[tuple[str, Sequence[Any]]] = []
    cuda = fake(calls, **answers)
    module = "camelid_native.cuda.device_cupy.import_module"
    monkeypatch.setattr(module, lambda name: SimpleNamespace(cuda=cuda, __version__="14.2.0"))
    return CupyDevice(), calls


@pytest.mark.conformance
def test_cupy_has_the_functions_that_are_called() -> None:
    if find_spec("cupy") is None:
        pytest.skip("no CuPy")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DOCSTRINGS, *SIGNATURES], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = dict(zip(SIGNATURES, json.loads(done.stdout), strict=True))
    assert {name: re.findall(r"\((.*?)\)", doc)[0] for name, doc in found.items()} == SIGNATURES


def test_devices_of_one_thread_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    first, calls = opened(monkeypatch)
    second = CupyDevice(1)
    calls.clear()
    for device in (first, first, second, first):
        device.fill(8, 0, 4)
    assert [values[0] for name, values in calls if name == "setDevice"] == [0, 1, 0]
    assert [name for name, _ in calls].count("memsetAsync") == 4


def test_a_step_is_recorded_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    device, calls = opened(monkeypatch)
    facts = device.facts()
    assert (facts.arch, facts.n_processors, facts.clock_khz) == ("sm_90", 132, 1980000)
    assert (facts.dlpack, device.stream()) == ((2, 0), 7)
    assert device.free_bytes() == 5
    kernel = device.kernel(device.module(b"image"), "kernel_norm")
    at, (pinned, view) = device.allocate(64), device.pinned(64)
    view[:4] = b"abcd"
    calls.clear()

    def work() -> None:
        device.copy(at, pinned, 64)
        device.fill(at, 255, 16)
        device.launch(kernel, (2, 3, 4), 256, [b"12345678", b"1234"])

    device.replay(device.capture(work))
    device.wait(device.mark())
    device.close()
    names = ["stream.begin_capture", "memcpyAsync", "memsetAsync", "launchKernel", "stream.end_capture"]
    rest = ["graph.launch", "event.record", "event.synchronize", "stream.synchronize", "pool.free_all_blocks"]
    assert [name for name, _ in calls] == names + rest
    found = dict(calls)
    assert found["memcpyAsync"] == (at, pinned, 64, 4, 7)
    assert found["memsetAsync"] == (at, 255, 16, 7)
    assert found["launchKernel"][:9] == (7, 2, 3, 4, 256, 1, 1, 0, 7)
    assert len(found["launchKernel"]) == 11
    assert ctypes.string_at(pinned, 4) == b"abcd"


def test_the_pool_is_bounded_by_what_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    device, calls = opened(monkeypatch)
    at = device.allocate(700)
    device.free(at)
    device.free_pinned(device.pinned(64)[0])
    assert not vars(device)["_held"]
    assert calls[1:] == [
        ("pool.set_limit", (1024,)),
        ("pool.malloc", (700,)),
        ("pool.free_all_blocks", ()),  # the device has it back
        ("pool.set_limit", (1,)),
    ]


def test_cupy_is_nvidia_s_default_and_its_absence_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    open_rig_device().close()  # loads the emulator's symbols
    monkeypatch.setattr(vendors, "check_library", lambda driver: None)
    driver = partial(DriverDevice, library=str(driver_library()))
    monkeypatch.setattr(vendors, "DriverDevice", driver)
    opened(monkeypatch)
    device = vendors.open_device(CUDA)
    assert isinstance(device, CupyDevice) and device.facts().interface == "by CuPy 14.2.0"
    monkeypatch.setattr("camelid_native.cuda.device_cupy.import_module", absent)
    told = "by the driver's interface (CuPy cannot be imported: No module named 'cupy')"
    found = vendors.open_device(CUDA)
    assert found.facts().interface == told
    shown = Opened(found, RigCompiler())
    assert told in shown.name
    shown.close()
    hip = vendors.open_device(HIP)
    assert hip.facts().interface == ""
    hip.close()


def test_a_machine_without_the_library_imports_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "camelid_native.cuda.device_cupy.import_module"
    monkeypatch.setattr(module, lambda name: pytest.fail("imported"))
    with pytest.raises(BackendError, match="cannot be opened"):
        vendors.open_device(replace(CUDA, libraries=("libnone.so",)))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FakeError(1), BackendError),
        (FakeError(700), DeviceLostError),
        (FakeMemoryError("full"), OutOfMemoryError),
    ],
)
def test_errors_become_camelid_s(
    error: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = opened(monkeypatch, memsetAsync=error)
    with pytest.raises(expected, match="cuda: ") as caught:
        device.fill(0, 0, 1)
    assert caught.type is expected


def test_a_missing_cupy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camelid_native.cuda.device_cupy.import_module", absent)
    with pytest.raises(BackendError, match="CuPy cannot be imported: No module named 'cupy'"):
        CupyDevice()
