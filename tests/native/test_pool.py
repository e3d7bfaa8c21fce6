"""The threads of the CPU backend: runs that wait for each other, and a system with no room for so many."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from camelid_native.cpu_library import find
from camelid_native.targets import SOURCES

TIMEOUT_S = 60  # a run that waits for threads that never came would hang

# Processes of their own, as a limit on memory holds for all of one.
PRELUDE = """
import ctypes, os, resource, sys, time
from ctypes import c_char_p, c_uint32, c_void_p

library = ctypes.CDLL(sys.argv[1])
library.cam_start.restype, library.cam_start.argtypes = c_void_p, [c_uint32, c_void_p]
library.cam_submit.argtypes = [c_void_p, c_uint32, c_void_p, c_char_p, c_void_p]
library.cam_wait.argtypes, library.cam_stop.argtypes = [c_void_p, c_uint32], [c_void_p]
program = ctypes.create_string_buffer(library.cam_record_bytes(4))  # of no ops

def limit(more):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))

def lift():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

def submit(pool):
    return library.cam_submit(pool, 0, program, b"", None)

def has_threads(n):  # one that has been joined may still be listed for a moment
    until = time.monotonic() + 10
    while len(os.listdir("/proc/self/task")) != n:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
"""

QUEUE = """
pool = library.cam_start(2, None)
for _ in range(2000):
    assert submit(pool) == 1 and submit(pool) == 1
    library.cam_wait(pool, 1)
    assert submit(pool) == 1
    library.cam_wait(pool, 0)
library.cam_stop(pool)
assert has_threads(1)
"""

# As deep as it goes; the host is told of the run that it waits for, and of no other.
DEEP = """
pool = library.cam_start(2, None)
for left in (0, 1, 4, 7) * 500:
    for _ in range(8):
        assert submit(pool) == 1
    library.cam_wait(pool, left)
    library.cam_wait(pool, 0)
library.cam_stop(pool)
assert has_threads(1)
"""

START = """
limit(300 << 20)
assert not library.cam_start(200, None)
assert has_threads(1)
pool = library.cam_start(2, None)
assert pool and submit(pool) == 1
library.cam_wait(pool, 0)
library.cam_stop(pool)
assert has_threads(1)
"""

FORK = """
pool = library.cam_start(200, None)
assert submit(pool) == 1
library.cam_wait(pool, 0)
child = os.fork()
if not child:
    other = library.cam_start(200, None)  # takes the stacks that the parent's threads left
    limit(300 << 20)
    refused = submit(pool) == 0 and has_threads(201)
    library.cam_wait(pool, 0)
    lift()
    begun = submit(pool) == 1 and has_threads(401)
    library.cam_wait(pool, 0)
    library.cam_stop(pool)
    library.cam_stop(other)
    os._exit(0 if refused and begun and has_threads(1) else 1)
assert os.waitpid(child, 0)[1] == 0
assert submit(pool) == 1
library.cam_wait(pool, 0)
library.cam_stop(pool)
"""


@pytest.mark.parametrize("body", [START, FORK], ids=["start", "fork"])
def test_threads_that_cannot_be_started(body: str) -> None:
    """All or none are there: a run is refused, or ends; those that were started are ended."""
    if sys.platform != "linux":
        pytest.skip("not on this platform: no limit on memory")
    run_child(body)


@pytest.mark.skipif(sys.platform != "linux", reason="not on this platform: threads are not listed")
@pytest.mark.parametrize("body", [QUEUE, DEEP], ids=["one", "seven"])
def test_runs_wait_behind_another(body: str) -> None:
    """Of runs without ops, too, which one thread may leave before another has begun them."""
    run_child(body)


def test_nobody_sleeps_on_where_a_waker_is_late(tmp_path: Path) -> None:
    """Of three threads one may sleep, and another be a meeting ahead, before the sleepers are woken."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or not compiler:
        pytest.skip("not on this platform: no C compiler named cc")
    program, sources = tmp_path / "delays", [f"-I{SOURCES}", str(Path(__file__).parent / "pool_delays.c")]
    subprocess.run([compiler, "-std=c11", "-O2", *sources, "-o", str(program), "-lpthread"], check=True)
    assert subprocess.run([str(program)], timeout=TIMEOUT_S).returncode == 0


def run_child(body: str) -> None:
    command = [sys.executable, "-c", PRELUDE + body, str(find())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
