"""The GPU of this machine: a vendor's driver with its run-time compiler."""

from __future__ import annotations

from camelid.errors import BackendError
from camelid_native.cuda.cache import CachedCompiler
from camelid_native.cuda.compiler import Compiler
from camelid_native.cuda.device import Device
from camelid_native.cuda.device_driver import CUDA, HIP, WAY_OUT, Api, DriverDevice
from camelid_native.cuda.nvrtc import HIPRTC, NVRTC, CompilerApi, RuntimeCompiler

VENDORS: tuple[tuple[Api, CompilerApi], ...] = ((CUDA, NVRTC), (HIP, HIPRTC))


def open_gpu() -> tuple[Device, Compiler]:
    """The first device of the first driver that is installed, and its compiler.

    Raises BackendError with every driver's reason, or without a compiler.
    """
    reasons: list[str] = []
    for driver, compiler in VENDORS:
        try:
            device = DriverDevice(driver)
        except BackendError as error:
            reasons.append(error.message.removeprefix("cuda: ").removesuffix(WAY_OUT))
            continue
        try:
            return device, CachedCompiler(RuntimeCompiler(compiler, driver=int(device.facts().driver)))
        except BackendError:
            device.close()
            raise
    raise BackendError(f"cuda: {'; '.join(reasons)}{WAY_OUT}, or choose another backend", backend="cuda")
