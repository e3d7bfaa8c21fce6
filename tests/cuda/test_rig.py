"""The emulator of the rig finds planted errors by name; a kernel without one runs."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cuda.planted import BODIES, THREADS
from tests.support.exhaustive import share_of

ROOT = Path(__file__).parents[2]
STOPPED = 86  # the emulator's exit status

ENDS = {
    "half a barrier": "a thread leaves while others wait at a barrier",
    "two barriers": "threads meet at different barriers",
    "left before a barrier": "a barrier after a thread has left",
    "half a shuffle": "a lane leaves while others wait for its value",
    "left before a shuffle": "threads wait for ever",
    "a load between words": "a load of several words that is not aligned",
    "too much shared memory": "more shared memory than a block has",
}
RACES = ("missing barrier", "two writers", "two blocks")
OUTSIDE = ("beyond shared memory", "beyond memory")


def run(name: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A planted kernel in a process of its own, with a sanitizer's library loaded first."""
    kind = settings.get("EMU_SANITIZER", "")
    loaded = {"LD_PRELOAD": library_of(kind)} if kind else {}
    more = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "report_bugs=1 exitcode=66"}
    environment = {**os.environ, **more, **loaded, "PYTHONPATH": "core:native:.", **settings}
    command = [sys.executable, "-m", "tests.cuda.planted", name]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def library_of(kind: str) -> str:
    """The library of a sanitizer, which a process loads before all others."""
    name = {"thread": "libtsan.so", "address": "libasan.so"}[kind]
    found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def floats(done: subprocess.CompletedProcess[str]) -> list[float]:
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.parametrize("wave", ["32", "64"])
@pytest.mark.parametrize("order", ["0", "1", "7"])
def test_a_kernel_without_an_error_runs_in_any_order(order: str, wave: str) -> None:
    done = run("fine", EMU_ORDER=order, EMU_WAVE=wave)
    assert floats(done) == [128.0 - i % 32 for i in range(THREADS)]


@pytest.mark.parametrize(("name", "what"), ENDS.items())
def test_the_emulator_names_an_error(name: str, what: str) -> None:
    done = run(name)
    assert done.returncode == STOPPED, (done.stdout, done.stderr)
    assert f"emulator: kernel_planted: {what}" in done.stderr


def test_shared_memory_starts_as_nan() -> None:
    assert all(map(math.isnan, floats(run("unwritten shared memory"))))


@pytest.mark.parametrize("name", ["fine", *share_of(RACES)])
def test_the_thread_sanitizer_finds_races(name: str) -> None:
    done = run(name, EMU_SANITIZER="thread")
    assert ("data race" in done.stderr) == (name != "fine"), done.stderr


@pytest.mark.parametrize("name", ["fine", *OUTSIDE])
def test_the_address_sanitizer_finds_accesses_out_of_bounds(name: str) -> None:
    done = run(name, EMU_SANITIZER="address")
    assert ("AddressSanitizer" in done.stderr) == (name != "fine"), done.stderr


def test_every_planted_error_is_tested() -> None:
    assert {*ENDS, *RACES, *OUTSIDE, "fine", "unwritten shared memory"} == {*BODIES}
    assert shutil.which("g++")
