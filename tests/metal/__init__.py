"""Tests of Metal's kernels. They need MLX, which writes the kernels' source, and a C++ compiler for it."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec

import pytest

os.environ.setdefault("MLX_ENABLE_TF32", "0")  # MLX reads it when it is imported, as the rig does first
IS_RUN = "PYTEST_VERSION" in os.environ  # not as a program, such as tests.metal.samples on a Mac

if IS_RUN and sys.platform != "linux":
    pytest.skip("not on this platform: the rig is for Linux", allow_module_level=True)
if IS_RUN and not find_spec("mlx"):
    pytest.skip("no MLX, which writes the source of kernels", allow_module_level=True)
if IS_RUN and not shutil.which("g++"):
    pytest.skip("no C++ compiler: the rig compiles kernels with g++", allow_module_level=True)
