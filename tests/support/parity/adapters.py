"""The portable software adapters: Mesa's lavapipe and Chromium's SwiftShader.

The Vulkan loader's driver list makes both visible to one process. Each test asserts its adapter's name.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DRIVERS = {
    "llvmpipe": tuple(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json")),
    "SwiftShader": (Path("/usr/lib/chromium/vk_swiftshader_icd.json"),),
}


def show_drivers() -> None:
    """Adds the software drivers to the loader's list; call it before wgpu is imported."""
    found = [str(path) for paths in DRIVERS.values() for path in paths if path.exists()]
    os.environ.setdefault("VK_ADD_DRIVER_FILES", ":".join(found))
    os.environ.setdefault("VK_ICD_FILENAMES", ":".join(found))


def need_driver(name: str) -> str:
    if not any(path.exists() for path in DRIVERS[name]):
        pytest.skip(f"no driver for {name}: run .ci/system-packages")
    return name
