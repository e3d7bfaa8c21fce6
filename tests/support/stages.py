"""Stages for tests: servers on threads, and one in a process of its own that can be stopped and killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from struct import unpack_from
from threading import Thread
from typing import Any

from camelid.backends.base import Backend, Program, Ticket
from camelid.backends.null.backend import NullBackend
from camelid.backends.registry import open_backend
from camelid.backends.remote.backend import RemoteBackend
from camelid.backends.remote.server import StageServer
from camelid_native.cpu.backend import CpuBackend

TOKEN = "a token of the tests"
END_S = 10.0
ROW_S = 0.002
CHILD = """
import sys
from camelid.backends.remote.server import StageServer
from tests.support.stages import named
server = StageServer(named(sys.argv[1]), sys.argv[2])
print(server.address, flush=True)
server.serve()
"""


@contextmanager
def stage(make: Callable[[], Backend], **more: Any) -> Iterator[StageServer]:
    """A stage on a thread; it must end in time."""
    server = StageServer(make, TOKEN, **more)
    thread = Thread(target=server.serve, name="stage of a test", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(END_S)
        assert not thread.is_alive(), "a stage did not end"


@contextmanager
def stages(makes: Sequence[Callable[[], Backend]]) -> Iterator[list[RemoteBackend]]:
    """Backends of stages on threads, not opened."""
    if not makes:
        yield []
        return
    with stage(makes[0]) as first, stages(makes[1:]) as others:
        yield [RemoteBackend(first.address, TOKEN), *others]


@contextmanager
def stage_process(backend: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A stage in a process, and its address."""
    command = [sys.executable, "-c", CHILD, backend, TOKEN]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert child.stdout
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.wait(END_S)
        assert child.stdout
        child.stdout.close()


class Sink(NullBackend):
    """A backend that takes state of any size, to measure the way to it."""

    async def write_state(self, group: str, unit: int, data: bytes) -> None:
        assert data


class Paced(CpuBackend):
    """A backend whose steps take `ROW_S` a row, as on a device of its own."""

    def run(self, program: Program, step: bytes, inputs: Mapping[str, bytes] | None = None) -> Ticket:
        n_rows = unpack_from("<I", step, 4 * program.plan.layout.header_word("rows"))[0]
        time.sleep(n_rows * ROW_S)
        return super().run(program, step, inputs)


def named(name: str) -> Callable[[], Backend]:
    """Makes backends of a name, of the registry or of this file."""
    own: dict[str, Callable[[], Backend]] = {"sink": Sink, "paced": Paced}
    return own.get(name) or (lambda: open_backend(name))
