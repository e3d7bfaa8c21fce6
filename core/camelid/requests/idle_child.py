"""Child processes at idle priority, as their parent starts, limits and ends them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Timer

from camelid.errors import RequestError
from camelid.text.idle_process import receive

NOT_STARTED = "worker_not_started"
CORE = Path(__file__).parents[2]
COMMAND = "import sys; sys.path.insert(0, sys.argv[1]); from {} import main; main()"


def start_child(module: str, *arguments: str, has_packages: bool = False) -> subprocess.Popen[bytes]:
    """A process that runs `main` of a module and has sent its first message.

    It sees no environment, and no installed packages unless `has_packages`. Raises EOFError if it ended, and
    RequestError with code "worker_not_started" if this machine starts no process now.
    """
    flags = subprocess.IDLE_PRIORITY_CLASS if sys.platform == "win32" else 0
    isolation = ["-I"] if has_packages else ["-I", "-S"]
    command = [sys.executable, *isolation, "-c", COMMAND.format(module), os.fspath(CORE), *arguments]
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, creationflags=flags)
    except OSError as error:
        raise RequestError(
            f"a worker process cannot be started here: {error.strerror or error}",
            field="process", code=NOT_STARTED,
        ) from error  # fmt: skip
    assert child.stdout, "the child has pipes"
    try:
        receive(child.stdout)
    except BaseException:
        reap(child)
        raise
    return child


def reap(child: subprocess.Popen[bytes]) -> None:
    """Kills a child and frees its pipes."""
    child.kill()
    assert child.stdin and child.stdout, "the child has pipes"
    child.stdout.close()
    with suppress(OSError):  # a broken pipe with unwritten bytes
        child.stdin.close()
    child.wait()


class TimeLimit:
    """Kills a child after some seconds."""

    def __init__(self, seconds: float, child: subprocess.Popen[bytes]) -> None:
        self.is_exceeded = False
        self._child = child
        self._timer = Timer(seconds, self._exceed)
        self._timer.daemon = True
        self._timer.start()

    def _exceed(self) -> None:
        self.is_exceeded = True
        self._child.kill()

    def end(self) -> None:
        self._timer.cancel()
