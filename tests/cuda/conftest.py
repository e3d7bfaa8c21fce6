"""Every test on the rig frees all that it holds there: a leak would be in the figures of later tests."""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Iterator

import pytest
from tests.cuda.rig import live


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fails a test after which memory, graphs, streams or events of the driver's stand-in are left."""
    if sys.platform != "linux" or not shutil.which("g++"):  # there is no rig
        yield
        return
    before = live()
    yield
    if live() != before:
        gc.collect()  # an exception may keep arrays of the device
    assert live() == before
