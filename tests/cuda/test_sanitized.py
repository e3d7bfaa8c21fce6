"""No kernel has a race between threads or an access out of bounds, found by sanitizers on the rig.

Ordinary runs hold the sanitizers themselves, by planted errors (`test_rig.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.cuda.test_rig import ROOT, library_of

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

REPORTS = {"thread": "data race", "address": "AddressSanitizer"}
ORDERS = {"thread": "0", "address": "7"}


def run(kind: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A module of Python in a process with a sanitizer's library; without CI's rules for a run of tests."""
    environment = {
        **os.environ,
        "PYTHONPATH": "core:native:.",
        "LD_PRELOAD": library_of(kind),
        "EMU_SANITIZER": kind,
        "EMU_ORDER": ORDERS[kind],
        "ASAN_OPTIONS": "detect_leaks=0",
        "CI": "",
    }
    whole = [sys.executable, "-m", *command]
    return subprocess.run(whole, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=550)


@pytest.mark.parametrize("how", ["", "--whole"])
@pytest.mark.parametrize("kind", REPORTS)
def test_a_sanitizer_reports_nothing(kind: str, how: str) -> None:
    done = run(kind, "tests.cuda.sanitized", *how.split())
    assert done.returncode == 0 and REPORTS[kind] not in done.stderr, done.stderr[-4000:]
    assert "cases" in done.stdout


def test_the_host_uses_no_freed_memory() -> None:
    done = run("address", "pytest", "-q", "-s", "-p", "no:xdist", "tests/cuda/test_host.py")
    assert done.returncode == 0 and REPORTS["address"] not in done.stderr, (done.stdout + done.stderr)[-4000:]
