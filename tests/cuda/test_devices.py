"""Both drivers' tables over their stand-in: the same kernels run, and errors have the driver's text."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.cuda.rig import RigCompiler, built, driver_library, open_device
from tests.support.parity.cases import OP_CASES
from tests.support.parity.compare import TOLERANCE, errors, reference_result, run_on

from camelid.backends.base import OpenSpec
from camelid.errors import BackendError, OutOfMemoryError
from camelid_native.cuda import speed, vendors
from camelid_native.cuda.backend import CudaBackend
from camelid_native.cuda.device_driver import CUDA, HIP, Api, DriverDevice
from camelid_native.cuda.nvrtc import HIPRTC, NVRTC, CompilerApi, RuntimeCompiler

APIS = {"cuda": (CUDA, "sm_90", 32), "hip": (HIP, "gfx90a", 64)}


def opened(api: Api) -> DriverDevice:
    open_device().close()  # loads the emulator's symbols
    return DriverDevice(api, str(driver_library()))


@pytest.mark.parametrize("name", APIS)
def test_a_device_has_its_facts(name: str) -> None:
    api, arch, wave = APIS[name]
    device = opened(api)
    facts = device.facts()
    assert (facts.name, facts.arch, facts.wave, facts.n_processors) == ("emulator", arch, wave, 4)
    assert facts.memory_bytes >= device.free_bytes() > 0
    device.close()


@pytest.mark.parametrize("name", APIS)
def test_a_second_device_can_be_chosen(name: str) -> None:
    DriverDevice(APIS[name][0], str(driver_library()), number=1).close()


@pytest.mark.parametrize("name", APIS)
def test_devices_of_one_thread_have_their_own_memory_and_order(name: str) -> None:
    first, second = (DriverDevice(APIS[name][0], str(driver_library()), number=i) for i in (0, 1))
    before, at = first.free_bytes(), second.allocate(1 << 20)
    assert (first.free_bytes(), second.free_bytes()) == (before, before - (1 << 20))
    pinned, seen = second.pinned(16)
    own = first.allocate(16)
    first.reach(second)
    first.fill(own, 7, 16)
    first.copy(at, own, 16)
    mark = first.mark()
    second.after(mark)
    second.copy(pinned, at, 16)
    first.forget(mark)
    second.wait(second.mark())
    assert bytes(seen) == bytes([7] * 16)
    second.free_pinned(pinned)
    first.free(own)
    second.free(at)
    for device in (first, second):
        device.close()


def test_a_number_beyond_the_devices_is_named() -> None:
    with pytest.raises(BackendError, match="this machine has 8 GPUs of CUDA, so none has the number 8"):
        DriverDevice(CUDA, str(driver_library()), number=8)


@pytest.mark.parity
def test_hip_runs_what_cuda_runs() -> None:
    cases = [*(c for c in OP_CASES if c.op == "norm")][:8] + [*(c for c in OP_CASES if c.op == "copy")][:4]
    results = asyncio.run(run_on(CudaBackend(lambda _: (opened(HIP), RigCompiler())), OpenSpec(), cases))
    for case, result in zip(cases, results, strict=True):
        assert max(errors(result, reference_result(case))) <= TOLERANCE


@pytest.mark.parametrize("name", APIS)
def test_errors_have_the_driver_s_text(name: str) -> None:
    api = APIS[name][0]
    device = opened(api)
    with pytest.raises(OutOfMemoryError, match=r"out of memory \(2\); 1,125,899,906,842,624 bytes"):
        device.allocate(1 << 50)
    with pytest.raises(BackendError, match=f"{api.functions['MemFree']}: invalid argument"):
        device.free(64)
    device.close()


@pytest.mark.parametrize("api", [CUDA, HIP], ids=lambda api: api.name)
def test_a_missing_driver_is_named(api: Api) -> None:
    with pytest.raises(BackendError, match=r"libnone\.so cannot be opened"):
        DriverDevice(api, "libnone.so")


def compilers(api: CompilerApi, *versions: int) -> CompilerApi:
    """Libraries of these major versions, which can state them and no more."""
    text = 'extern "C" int {}Version(int *major, int *minor) {{ return *major = {}, *minor = 1, 0; }}\n'
    text += 'extern "C" const char *{}GetErrorString(int) {{ return ""; }}\n'
    made = [built(text.format(api.prefix, n, api.prefix), f"{api.prefix}-{n}") for n in versions]
    return replace(api, libraries=tuple(map(str, made)), packages=(), folders=())


def opened_compiler(driver: Api, compiler: CompilerApi, patch: pytest.MonkeyPatch) -> str:
    """The name of the compiler that the backend opens beside the stand-in's driver."""
    device = opened(driver)  # loads the emulator's symbols
    device.close()
    patch.setattr(vendors, "VENDORS", [(replace(driver, libraries=(str(driver_library()),)), compiler)])
    opened_device, found = vendors.open_gpu()
    opened_device.close()
    return found.name


@pytest.mark.parametrize(("driver", "name"), [("12080", "NVRTC 12.1"), ("13000", "NVRTC 13.1")])
def test_the_newest_compiler_of_a_driver_s_version_is_chosen(
    driver: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMU_DRIVER", driver)
    assert opened_compiler(CUDA, compilers(NVRTC, 13, 12), monkeypatch) == name


def test_a_compiler_newer_than_the_driver_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMU_DRIVER", "12080")
    told = r"NVRTC 13\.1 .*newer than .* CUDA 12\.8: pip install 'camelid\[cuda\]' or a newer"
    with pytest.raises(BackendError, match=told):
        opened_compiler(CUDA, compilers(NVRTC, 13), monkeypatch)


def test_hiprtc_has_the_version_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own number is 9.0 in every release; the name is a part of the cache's key."""
    monkeypatch.setenv("EMU_DRIVER", "70051831")
    assert opened_compiler(HIP, compilers(HIPRTC, 9), monkeypatch) == "hipRTC of driver 70051831"


@pytest.mark.parametrize("api", [NVRTC, HIPRTC], ids=lambda api: api.name)
def test_a_missing_compiler_names_the_way_out(api: CompilerApi) -> None:
    with pytest.raises(BackendError, match=f"{api.name} is missing.*install"):
        RuntimeCompiler(api, "libnone.so")


@pytest.mark.parametrize("name", APIS)
def test_a_device_has_yardsticks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 processors of 1 GHz with 8192 operations a clock; no peak for an architecture without a row."""
    monkeypatch.setattr(speed, "COPY_BYTES", 1 << 20)
    device = opened(APIS[name][0])
    free = device.free_bytes()
    assert 0.01 < speed.copy_gbps(device) < 1e5
    assert device.free_bytes() == free
    assert speed.peak_gops(device.facts()) == (32768.0 if name == "cuda" else 0.0)
    monkeypatch.setattr(speed, "COPY_BYTES", free)
    assert speed.copy_gbps(device) == 0.0  # no room for two
    device.close()
