"""Detection of GPUs by device files.

Loading a GPU library and its drivers takes over half a second, listing /dev almost no time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

DEV = Path("/dev")
# Device files of drivers: Mesa and amdgpu, NVIDIA (desktop, Jetson), GPUs under WSL, Adreno, Mali, PowerVR.
DEVICES = ("dri/renderD*", "nvidia[0-9]*", "nvhost-*", "dxg", "kgsl-3d0", "mali[0-9]*", "pvr*")


# By name: the drivers of backend cuda, which are Linux's alone. WSL has NVIDIA's and AMD's behind one file.
DRIVERS: Mapping[str, tuple[str, ...]] = {
    "NVIDIA": ("nvidia[0-9]*", "nvhost-*", "dxg"),
    "ROCm": ("kfd",),
}


def has_driver(names: Iterable[str], dev: Path = DEV) -> bool:
    """True if one of these drivers has a device file on this Linux machine."""
    patterns = (pattern for name in names for pattern in DRIVERS[name])
    return sys.platform == "linux" and any(path for pattern in patterns for path in dev.glob(pattern))


def may_have_gpu(dev: Path = DEV) -> bool:
    """False if a Linux machine has no device file of a GPU; True on other systems, which have no such files.

    Software renderers have no device file.
    """
    return sys.platform != "linux" or any(path for name in DEVICES for path in dev.glob(name))
