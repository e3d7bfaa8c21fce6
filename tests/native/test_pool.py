"""The thread pool of the CPU backend: queued runs, and systems without memory for threads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from camelid_native.build.targets import SOURCES
from camelid_native.cpu.library import find

TIMEOUT_S = 300  # a run that waits for missing threads would hang

# Separate processes, as a memory limit applies to a whole process.
PRELUDE = """
import ctypes, os, resource, sys, time
from ctypes import c_char_p, c_uint32, c_void_p

library, with_host = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
library.cam_start.restype, library.cam_start.argtypes = c_void_p, [c_uint32, c_void_p, c_uint32]
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
pool = library.cam_start(2 + with_host, None, with_host)
for _ in range(2000):
    assert submit(pool) == 1 and submit(pool) == 1
    library.cam_wait(pool, 1)
    assert submit(pool) == 1
    library.cam_wait(pool, 0)
library.cam_stop(pool)
assert has_threads(1)
"""

# The deepest queue; a host that does not compute is notified of the awaited run alone.
DEEP = """
pool = library.cam_start(2 + with_host, None, with_host)
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
assert not library.cam_start(200, None, with_host)
assert has_threads(1)
pool = library.cam_start(2, None, with_host)
assert pool and submit(pool) == 1
library.cam_wait(pool, 0)
library.cam_stop(pool)
assert has_threads(1)
"""

FORK = """
pool = library.cam_start(200 + with_host, None, with_host)
assert submit(pool) == 1
library.cam_wait(pool, 0)
child = os.fork()
if not child:
    other = library.cam_start(200, None, 0)  # takes the stacks that the parent's threads left
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


@pytest.mark.parametrize("with_host", [0, 1])
@pytest.mark.parametrize("body", [START, FORK], ids=["start", "fork"])
def test_threads_that_cannot_be_started(body: str, with_host: int) -> None:
    """All threads start or none: a run is refused, or ends; started threads are stopped."""
    if sys.platform != "linux":
        pytest.skip("not on this platform: no limit on memory")
    run_child(body, with_host)


@pytest.mark.parametrize("with_host", [0, 1])
@pytest.mark.skipif(sys.platform != "linux", reason="not on this platform: threads are not listed")
@pytest.mark.parametrize("body", [QUEUE, DEEP], ids=["one", "seven"])
def test_runs_wait_behind_another(body: str, with_host: int) -> None:
    """Includes runs without ops, which one thread may leave before another begins them."""
    run_child(body, with_host)


@pytest.mark.parametrize("name", ["pool_delays", "pool_host"])
def test_a_program_around_the_pool(name: str, tmp_path: Path) -> None:
    """pool_delays: of three threads one may sleep, and another be a meeting ahead, before the sleepers are
    woken. pool_host: the waiting host computes, from between two ops to the end of a run.
    """
    compiler = shutil.which("cc")
    if sys.platform != "linux" or not compiler:
        pytest.skip("not on this platform: no C compiler named cc")
    program, sources = tmp_path / name, [f"-I{SOURCES}", str(Path(__file__).parent / f"{name}.c")]
    subprocess.run([compiler, "-std=c11", "-O2", *sources, "-o", str(program), "-lpthread"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout


def run_child(body: str, with_host: int) -> None:
    command = [sys.executable, "-c", PRELUDE + body, str(find()), str(with_host)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
