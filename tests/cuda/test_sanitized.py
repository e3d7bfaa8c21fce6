"""No kernel has a race between threads or an access out of bounds, found by sanitizers on the rig."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.cuda.test_rig import ROOT, library_of
from tests.support.exhaustive import exhaustive

pytestmark = pytest.mark.slow

REPORTS = {"thread": "data race", "address": "AddressSanitizer"}
ORDERS = {"thread": "0", "address": "7"}


@pytest.mark.parametrize("how", ["", exhaustive("--whole")])
@pytest.mark.parametrize("kind", REPORTS)
def test_a_sanitizer_reports_nothing(kind: str, how: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": "core:native:.",
        "LD_PRELOAD": library_of(kind),
        "EMU_SANITIZER": kind,
        "EMU_ORDER": ORDERS[kind],
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    command = [sys.executable, "-m", "tests.cuda.sanitized", *how.split()]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0 and REPORTS[kind] not in done.stderr, done.stderr[-4000:]
    assert "cases" in done.stdout
