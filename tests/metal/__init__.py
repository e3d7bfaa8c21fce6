"""Tests of Metal's kernels. They need MLX, which writes the kernels' source, and a C++ compiler for it."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec

import pytest

if sys.platform != "linux":
    pytest.skip("not on this platform: the rig is for Linux", allow_module_level=True)
if not find_spec("mlx"):
    pytest.skip("no MLX, which writes the source of kernels", allow_module_level=True)
if not shutil.which("g++"):
    pytest.skip("no C++ compiler: the rig compiles kernels with g++", allow_module_level=True)
