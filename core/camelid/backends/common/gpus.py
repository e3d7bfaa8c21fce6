"""Whether this machine has a GPU at all, by its device files. To load a GPU library and ask its drivers takes
half a second and more; a look into a folder takes none."""

from __future__ import annotations

import sys
from pathlib import Path

DEV = Path("/dev")
# What drivers open: Mesa and amdgpu, NVIDIA (desktop, Jetson), Windows' GPU under WSL, Adreno, Mali, PowerVR.
DEVICES = ("dri/renderD*", "nvidia[0-9]*", "nvhost-*", "dxg", "kgsl-3d0", "mali[0-9]*", "pvr*")


def may_have_gpu(dev: Path = DEV) -> bool:
    """False only on Linux, where every GPU has such a file. Software renderers have none."""
    return sys.platform != "linux" or any(path for name in DEVICES for path in dev.glob(name))
