"""Processes that write a learning store until something happens to them.

`python -m tests.support.feedback_writer endless FOLDER SOURCE` prints the number of each item that was
acknowledged. `... killed FOLDER` kills children before each SQL statement of each operation and prints what
every reopened store holds, a JSON object a line. `... limited FOLDER` and `... full FOLDER` reach a limit on
files or a full file system of their own, mounted on FOLDER, and print what they saw.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.support.feedback import exchange, item, opened, vector
from tests.support.full_disk import mounted

from camelid.errors import CamelidError, LearningError
from camelid.learning.rows import PastRequest
from camelid.learning.store.forget import forget
from camelid.learning.store.store import Store
from camelid.learning.store.versions import Version, current, item_hashes, publish, use, version_of, versions

UNLIMITED = resource.RLIM_INFINITY


def endless(folder: Path, source: str = "local") -> None:
    """Adds items until the process is killed."""
    store = opened(folder)
    for i in count():
        print(store.add(item(i, source=source), vector(i)).id, flush=True)


def new_version(store: Store, name: str, items: list[int]) -> Version:
    found = item_hashes(store, items)
    return Version(adapter=name.encode() * 3000, scope=b"scope", config={"name": name}, items=found)


def begin(folder: Path) -> None:
    """Three items, two requests, and version v1 in use, of item 1 alone; v2 has items 1 and 2."""
    store = opened(folder)
    for i in range(1, 4):
        store.add(item(i), vector(i))
    store.add_requests([PastRequest(exchange(i), vector(i)) for i in (2, 7)])
    publish(store, new_version(store, "second", [1, 2]))
    publish(store, new_version(store, "first", [1]))
    store.close()


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "add": lambda store: store.add(item(4), vector(4)),
    "requests": lambda store: store.add_requests([PastRequest(exchange(8), vector(8))]),
    "publish": lambda store: publish(store, new_version(store, "third", [1, 3])),
    "use": lambda store: use(store, "v1"),
    "forget": lambda store: forget(store, 2),
}


def killed(folder: Path) -> None:
    for name, operate in OPERATIONS.items():
        for n in count(1):
            place = folder / f"{name}-{n}"
            begin(place)
            is_killed = run_and_kill(lambda p=place, o=operate: o(opened(p)), n)
            print(json.dumps({"operation": name, "n": n, "killed": is_killed, **found(place)}), flush=True)
            shutil.rmtree(place)
            if not is_killed:
                break


def run_and_kill(work: Callable[[], object], n: int) -> bool:
    """Runs work in a child that is killed before its n-th statement; False if it ended before."""
    child = os.fork()
    if not child:
        left = count(1)

        def trace(_: str) -> None:
            if next(left) == n:
                os.kill(os.getpid(), signal.SIGKILL)

        watch(trace)
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def watch(trace: Callable[[str], None]) -> None:
    """Calls `trace` before each statement of the connections that are opened from now on."""
    import sqlite3

    connect = sqlite3.connect

    def traced(*words: object, **options: object) -> object:
        connection = connect(*words, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(trace)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]


def found(folder: Path) -> dict[str, object]:
    """What a store holds after it is opened again, every hash checked."""
    store = opened(folder)
    log = [(row.kind, row.subject) for row in store.log()]
    rows = versions(store)
    for row in rows:
        version_of(store, row.name)
    items, requests = [one.id for one in store.items()], store.requests()
    vectors, now = [id for id, _ in store.vectors()], current(store)
    store.close()
    text = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    return {
        "items": items, "vectors": vectors, "log": log, "current": now,
        "requests": [past.exchange.completion_id for past in requests],
        "versions": {row.name: row.status for row in rows},
        "secret": b"woolwhite2" in text,
    }  # fmt: skip


def limited(folder: Path) -> None:
    """A limit stands for a full disk where file systems cannot be mounted."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill() -> None:
        size = max(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, UNLIMITED))

    write_with_fault(folder, fill, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED)))


def full(folder: Path) -> None:
    """A full disk."""
    write_with_fault(folder, *mounted(folder, "1m"))


def write_with_fault(folder: Path, fill: Callable[[], object], free: Callable[[], object]) -> None:
    """Adds items before, during and after a fault; prints the acknowledged ones and the errors."""
    store = opened(folder)
    acknowledged, errors = [store.add(item(i), vector(i)).id for i in range(5)], list[str]()
    fill()
    for i in range(5, 40):
        try:
            acknowledged.append(store.add(item(i, answer="x" * 5000), vector(i)).id)
        except CamelidError as error:
            assert isinstance(error, LearningError), error
            errors.append(f"{error.facts['reason']}: {error.message}")
    free()
    acknowledged.append(store.add(item(99), vector(99)).id)
    store.close()
    items = [one.id for one in opened(folder).items()]
    print(json.dumps({"acknowledged": acknowledged, "errors": errors, "items": items}))


if __name__ == "__main__":
    {"endless": endless, "killed": killed, "limited": limited, "full": full}[sys.argv[1]](
        Path(sys.argv[2]), *sys.argv[3:]
    )
