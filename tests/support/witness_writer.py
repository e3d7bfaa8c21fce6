"""Processes that write a witness log until something happens to them.

`python -m tests.support.witness_writer endless FILE` prints the id of each record that the file holds.
`... limited FILE` reaches a limit on the size of its files, `... full FOLDER` fills a file system of its own,
mounted on FOLDER; both then get room again, and print what they saw as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.support.full_disk import mounted
from tests.support.witness import MODELS, request_ids, wait_until, witness_record

from camelid.witness.inbox import Bounds
from camelid.witness.log import WitnessLog

BOUND = 8
MANY = 100
UNLIMITED = resource.RLIM_INFINITY


def endless(path: Path) -> None:
    """Appends records until the process is killed."""
    with WitnessLog.open(path, MODELS) as log:
        for i in count():
            log.append(witness_record(i, text="x" * 5000, prompt_ids=(1,) * 5000))
            wait_until(lambda i=i: f'"req-{i}"'.encode() in path.read_bytes(), f"record {i}")
            print(f"req-{i}", flush=True)


def limited(path: Path) -> None:
    """A limit stands for a full disk where file systems cannot be mounted; its error is EFBIG."""

    def fill() -> None:
        # Ten bytes fit, so that the failing append leaves part of a line.
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, UNLIMITED))

    def free() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))

    write_with_fault(path, fill, free)


def full(folder: Path) -> None:
    """A full disk."""
    write_with_fault(folder / "log", *mounted(folder, "128k"))


def write_with_fault(path: Path, fill: Callable[[], object], free: Callable[[], object]) -> None:
    """Writes before, during and after a fault, and prints counts and lines."""
    said: list[str] = []
    log = WitnessLog.open(path, MODELS, bounds=Bounds(records=BOUND), report=said.append)
    for i in range(3):
        log.append(witness_record(i))
    wait_until(lambda: len(request_ids(path)) == 3, "the records before the fault")
    fill()
    # A record longer than a page, so that it cannot fit the file system's last page.
    log.append(witness_record(3, endpoint="/" + "x" * 8192))
    wait_until(lambda: bool(log.fault), "the fault")
    accepted = [log.append(witness_record(i)) for i in range(4, 4 + MANY)]
    fault, n_dropped, size = log.fault, log.n_dropped, path.stat().st_size
    free()
    wait_until(lambda: not log.fault, "the end of the fault")
    wait_until(lambda: log.append(witness_record(999)), "room in the queue")
    n_lost = log.close()
    print(
        json.dumps(
            {
                "n_accepted": sum(accepted),
                "fault": fault,
                "n_dropped": n_dropped,
                "n_lost": n_lost,
                "size": size,
                "said": said,
                "log": path.read_text(),
            }
        )
    )


if __name__ == "__main__":
    {"endless": endless, "limited": limited, "full": full}[sys.argv[1]](Path(sys.argv[2]))
