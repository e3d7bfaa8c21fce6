"""Tests of the backend mlx, on MLX's CPU device; on a Mac's GPU by request.

The folder has no `__init__.py`: pytest would import its files as `mlx.*`, in the place of MLX itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from camelid_native.mlx.library import has_mlx

ON_GPU = "CAMELID_MLX_GPU"  # if set, tests run on a Mac's GPU: tests/perf/mac_day.sh


@pytest.fixture(autouse=True, scope="session")
def mlx() -> None:
    """Skips the tests on a system without MLX, and keeps MLX from compiling.

    On a CPU MLX calls the system's C++ compiler for each fused kernel, for 2 to 3 s.
    """
    if not has_mlx():
        pytest.skip("not on this platform: MLX runs on Apple silicon and on Linux")
    if find_spec("mlx") is None:
        pytest.skip("no MLX: pip install 'camelid[mlx]'")
    from camelid_native.mlx import opened
    from camelid_native.mlx.arrays import mx
    from camelid_native.mlx.device import device_of

    mx.disable_compile()
    if not os.environ.get(ON_GPU):
        opened.device_of = lambda adapter: device_of(adapter or "cpu")


@pytest.fixture
def on_cpu() -> None:
    """Skips a test of the CPU's own attention and graphs."""
    if os.environ.get(ON_GPU):
        pytest.skip("not on this platform: a GPU runs other kernels")


@pytest.fixture
def on_gpu() -> None:
    """Skips a test of a GPU's memory."""
    if not os.environ.get(ON_GPU):
        pytest.skip("not on this platform: no GPU of Apple")


@pytest.fixture
def compiled() -> Iterator[None]:
    """Lets MLX compile."""
    from camelid_native.mlx.arrays import mx

    mx.enable_compile()
    yield
    mx.disable_compile()
