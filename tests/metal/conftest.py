"""Tests of Metal's kernels leave MLX as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def none_left_open() -> Iterator[None]:
    """Fails a test that leaves a backend on the rig open: later tests of MLX would run the rig's kernels."""
    yield
    rig = sys.modules.get("tests.metal.on_rig")
    assert rig is None or not rig.MetalOnRig.restore_all(), "a backend on the rig is open after its test"
