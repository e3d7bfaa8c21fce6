"""MLX at the door: on which systems it runs, and how it must be imported."""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec

from camelid.errors import BackendError

TF32 = "MLX_ENABLE_TF32"  # MLX reads it once, when it is imported


def check_system() -> None:
    """Raises BackendError on a system without MLX."""
    if not has_mlx():
        raise BackendError(
            "backend 'mlx' runs on macOS with Apple silicon, and on Linux; "
            f"this is {sys.platform} on {platform.machine()}. Choose the backend webgpu or cpu",
            backend="mlx",
        )


def has_mlx() -> bool:
    """True on a system for which MLX is published."""
    return sys.platform == "linux" or (sys.platform == "darwin" and platform.machine() == "arm64")


def is_installed() -> bool:
    """True if MLX is installed."""
    return find_spec("mlx") is not None


def keep_float32() -> None:
    """Sets MLX's products to float32, before its first import.

    On an M5, MLX otherwise rounds the inputs of float32 products to TF32's 11 bits. Raises BackendError if
    MLX was imported earlier without this setting.
    """
    if "mlx.core" in sys.modules and os.environ.get(TF32) != "0":
        raise BackendError(
            f"backend 'mlx' needs the environment variable {TF32}=0 before MLX is first imported, but "
            f"mlx.core is imported already; set {TF32}=0, or load the model before importing MLX",
            backend="mlx",
        )
    os.environ[TF32] = "0"
