"""GPUs whose compilers run here: Mesa's drivers open on a shim that stands for the kernel's driver."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

LAYER = "VK_LAYER_CAMELID_isa"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
DRIVERS = Path("build/gpu-drivers")
CHOSEN = ("rdna2", "rdna3", "irisxe", "arc", "ampere", "m1", "a740")  # a GPU or two of each vendor


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: Mesa's driver and shim, the shim's setting, and the rates of the product named `name`.

    `lanes` counts lane instructions a second (ALUs x clock, without dual issue), `bandwidth` bytes a second.
    """

    driver: str
    shim: str
    setting: tuple[str, str]
    isa: str
    lanes: float
    bandwidth: float
    name: str


def _amd(chip: str, lanes: float, gb_s: float, name: str) -> Device:
    return Device("radeon", "amdgpu", ("AMDGPU_GPU_ID", chip), "amd", 1e12 * lanes, 1e9 * gb_s, name)


def _intel(chip: str, lanes: float, gb_s: float, name: str) -> Device:
    setting = ("INTEL_STUB_GPU_PLATFORM", chip)
    return Device("intel", "intel", setting, "intel", 1e12 * lanes, 1e9 * gb_s, name)


def _nvidia(chip: str, lanes: float, gb_s: float, name: str) -> Device:
    return Device("nouveau", "nouveau", ("NOUVEAU_CHIPSET", chip), "nvidia", 1e12 * lanes, 1e9 * gb_s, name)


def _adreno(chip: str, lanes: float, gb_s: float, name: str) -> Device:
    return Device("freedreno", "freedreno", ("FD_GPU_ID", chip), "adreno", 1e12 * lanes, 1e9 * gb_s, name)


# Rates are half the vendors' f32 FLOPS, and the memory's bandwidth.
DEVICES: dict[str, Device] = {
    "vega": _amd("vega10", 6.35, 484, "RX Vega 64"),
    "rdna2": _amd("navi21", 8.1, 512, "RX 6800"),
    "rdna3": _amd("navi31", 15.35, 960, "RX 7900 XTX"),
    "rdna4": _amd("gfx1201", 12.15, 645, "RX 9070 XT"),
    "uhd770": _intel("adl", 0.40, 77, "UHD 770"),
    "irisxe": _intel("tgl", 1.04, 68, "Iris Xe, 96 EU"),
    "arc": _intel("dg2", 9.8, 560, "Arc A770"),
    "lunar": _intel("lnl", 2.1, 136, "Arc 140V"),
    "turing": _nvidia("0x164", 5.0, 448, "RTX 2070"),
    "ampere": _nvidia("0x172", 6.4, 360, "RTX 3060"),
    "ada": _nvidia("0x192", 41.0, 1008, "RTX 4090"),
    "m1": Device("asahi", "asahi", ("AGX_MESA_DEBUG", "shaders"), "apple", 1.3e12, 68e9, "Apple M1"),
    "a660": _adreno("660", 0.86, 51, "Adreno 660"),
    "a740": _adreno("740", 1.7, 67, "Adreno 740"),
    "a830": _adreno("830", 1.9, 85, "Adreno 830"),
}


class NoDriverError(Exception):
    """The folder of drivers lacks a device's shim."""


def under(drivers: Path, device: Device, layer: Path, out: Path) -> tuple[list[str], dict[str, str]]:
    """The command prefix and the environment of a process that sees this device alone.

    Processes run on the C library of the drivers. Raises NoDriverError.
    """
    libraries = drivers / LIBRARIES
    shim = _shim(drivers, device)
    if not shim.exists():
        raise NoDriverError(f"{shim.name} is not in {libraries}: .ci/gpu-drivers {drivers}")
    key, value = device.setting
    environment = {
        "XDG_RUNTIME_DIR": tempfile.gettempdir(), **os.environ, key: value,
        "VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_PATH": str(layer), "ISA_OUT": str(out),
        "MESA_SHADER_CACHE_DISABLE": "1",
        "VK_DRIVER_FILES": str(drivers / f"usr/share/vulkan/icd.d/{device.driver}_icd.json"),
    }  # fmt: skip
    loader = libraries / "ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", str(libraries), "--preload", str(shim)], environment


def present(drivers: Path) -> list[str]:
    """Names of the devices whose shim is in the folder."""
    return [name for name, device in DEVICES.items() if _shim(drivers, device).exists()]


def _shim(drivers: Path, device: Device) -> Path:
    return drivers / LIBRARIES / f"lib{device.shim}_noop_drm_shim.so"
