"""The GPU of this machine: a vendor's driver with its run-time compiler."""

from __future__ import annotations

from camelid.errors import BackendError, DeviceLostError
from camelid_native.cuda.cache import CachedCompiler
from camelid_native.cuda.compiler import Compiler
from camelid_native.cuda.device import Device
from camelid_native.cuda.device_cupy import CupyDevice
from camelid_native.cuda.device_driver import CUDA, HIP, WAY_OUT, Api, DriverDevice, check_library
from camelid_native.cuda.nvrtc import HIPRTC, NVRTC, CompilerApi, RuntimeCompiler

VENDORS: tuple[tuple[Api, CompilerApi], ...] = ((CUDA, NVRTC), (HIP, HIPRTC))


def open_device(driver: Api, number: int = 0, *, has_peers: bool = False) -> Device:
    """NVIDIA's device by CuPy, or by the driver with the reason in its facts; AMD's by the driver.

    A device with peers is by the driver, whose calls name the device's context.
    """
    check_library(driver)
    if driver is not CUDA:
        return DriverDevice(driver, number=number)
    if has_peers:
        return DriverDevice(driver, number=number, interface="by the driver's interface (one of several)")
    try:
        return CupyDevice(number)
    except DeviceLostError:  # the driver's interface would open the same lost context
        raise
    except BackendError as error:
        reason = error.message.removeprefix("cuda: ")
    return DriverDevice(driver, number=number, interface=f"by the driver's interface ({reason})")


def open_gpu(number: int = 0, *, has_peers: bool = False) -> tuple[Device, Compiler]:
    """A device of the first driver that is installed, by the driver's number, and its compiler.

    Raises BackendError with every driver's reason, or without a compiler.
    """
    reasons: list[str] = []
    for driver, compiler in VENDORS:
        try:
            device = open_device(driver, number, has_peers=has_peers)
        except BackendError as error:
            reasons.append(error.message.removeprefix("cuda: ").removesuffix(WAY_OUT))
            continue
        try:
            return device, CachedCompiler(RuntimeCompiler(compiler, driver=int(device.facts().driver)))
        except BackendError:
            device.close()
            raise
    raise BackendError(f"cuda: {'; '.join(reasons)}{WAY_OUT}, or choose another backend", backend="cuda")
