"""Detection of GPUs by device files.

Loading a GPU library and its drivers takes over half a second, listing /dev almost no time.
"""

from __future__ import annotations

import sys
from pathlib import Path

DEV = Path("/dev")
# Device files of drivers: Mesa and amdgpu, NVIDIA (desktop, Jetson), GPUs under WSL, Adreno, Mali, PowerVR.
DEVICES = ("dri/renderD*", "nvidia[0-9]*", "nvhost-*", "dxg", "kgsl-3d0", "mali[0-9]*", "pvr*")


def may_have_gpu(dev: Path = DEV) -> bool:
    """False if a Linux machine has no device file of a GPU; True on other systems, which have no such files.

    Software renderers have no device file.
    """
    return sys.platform != "linux" or any(path for name in DEVICES for path in dev.glob(name))
