"""Faults: processes killed, a full disk, damaged files, several processes, a clock that jumps."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.feedback import item, opened, vector

from camelid.errors import LearningError

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", *([] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["-Ur"]), "--mount"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: POSIX limits and signals")
pytestmark = pytest.mark.faults


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "tests.support.feedback_writer", *map(str, words)]


def environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "core"), str(ROOT / "native")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def lines_of(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


BEFORE: dict[str, Any] = {
    "items": [1, 2, 3], "vectors": [1, 2, 3], "requests": ["cmpl-2", "cmpl-7"], "current": "v2",
    "versions": {"v1": "published", "v2": "published"}, "secret": True,
}  # fmt: skip
# Operation -> what differs once it is done; a kill leaves all of it or nothing.
DONE: dict[str, dict[str, Any]] = {
    "add": {"items": [1, 2, 3, 8], "vectors": [1, 2, 3, 8]},
    "requests": {"requests": ["cmpl-2", "cmpl-7", "cmpl-8"]},
    "publish": {"versions": {**BEFORE["versions"], "v3": "published"}, "current": "v3"},
    "use": {"current": "v1"},
    "forget": {
        "items": [1, 3], "vectors": [1, 3], "requests": ["cmpl-7"], "secret": False,
        "versions": {"v1": "stale", "v2": "published"},
    },
}  # fmt: skip


@posix
def test_a_kill_before_any_statement_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Also of `forget`: what is deleted is in no file once the store was opened again."""
    rows = lines_of(command("killed", tmp_path))
    names = ("items", "vectors", "requests", "current", "versions", "secret")
    for row in rows:
        state = {name: row[name] for name in names}
        done = BEFORE | DONE[row["operation"]]
        assert state in (BEFORE, done), row
        assert state == done or row["killed"], row
    for operation, changes in DONE.items():
        own = [row for row in rows if row["operation"] == operation]
        assert len(own) > 8, "statements of opening and of the operation"
        assert sum(all(row[name] == new for name, new in changes.items()) for row in own) >= 1


def test_eight_open_a_new_store_at_once(tmp_path: Path) -> None:
    """SQLite's busy handler does not wait where two connections turn to the write-ahead log at once."""

    def open_and_close(folder: Path) -> None:
        barrier.wait()
        opened(folder).close()

    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        for i in range(60):
            list(threads.map(open_and_close, [tmp_path / str(i)] * 8))


@posix
@pytest.mark.parametrize("n_items", [1, 30])
def test_two_killed_processes_lose_no_acknowledged_item(tmp_path: Path, n_items: int) -> None:
    words = [command("endless", tmp_path, name) for name in ("a", "b")]
    writers = [subprocess.Popen(each, env=environment(), stdout=subprocess.PIPE, text=True) for each in words]
    acknowledged: list[int] = []
    for writer in writers:
        assert writer.stdout
        acknowledged += [int(writer.stdout.readline()) for _ in range(n_items)]
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
        assert writer.stdout
        with writer.stdout as rest:
            acknowledged += map(int, rest.read().split())
        assert writer.wait() == -signal.SIGKILL
    store = opened(tmp_path)
    ids = [each.id for each in store.items()]
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(ids)
    assert [row.seq for row in store.log()] == ids == list(range(1, len(ids) + 1))
    assert {each.source for each in store.items()} == {"a", "b"}
    store.close()


def check_fault(found: dict[str, Any], reasons: set[str]) -> None:
    assert found["items"] == found["acknowledged"]
    assert found["errors"]
    assert {error.partition(":")[0] for error in found["errors"]} <= reasons
    assert all("free some space" in error for error in found["errors"])


@posix
def test_a_full_disk_refuses_feedback_and_keeps_the_rest(tmp_path: Path) -> None:
    mount = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("not on this platform: no file system can be mounted")
    (found,) = lines_of([*NAMESPACE, *command("full", tmp_path)])
    check_fault(found, {"full", "disk"})


@posix
def test_a_limit_on_files_refuses_feedback_and_keeps_the_rest(tmp_path: Path) -> None:
    (found,) = lines_of(command("limited", tmp_path))
    check_fault(found, {"full", "disk"})


def test_bytes_changed_anywhere_are_found_or_change_nothing(tmp_path: Path) -> None:
    """Each of many places of the file is overwritten: the store opens with all items, or says `damaged`."""
    store = opened(tmp_path)
    want = [store.add(item(i), vector(i)) for i in range(40)]
    store.scrub()
    store.close()
    path, n_damaged = store.path, 0
    whole = path.read_bytes()
    for at in range(0, len(whole), 2039):
        path.write_bytes(whole[:at] + bytes(byte ^ 0xFF for byte in whole[at : at + 40]) + whole[at + 40 :])
        for file in tmp_path.rglob("*-*"):
            file.unlink(missing_ok=file.is_file())
        try:
            again = opened(tmp_path)
            try:
                assert [(one.id, one.exchange) for one in again.items()] == [(w.id, w.exchange) for w in want]
                assert len(again.log()) == len(want)
            finally:
                again.close()
        except LearningError as error:
            n_damaged += 1
            assert error.facts["reason"] in ("damaged", "other", "newer", "failed"), error
            assert error.facts["path"] == str(path)
    assert n_damaged > 10


@pytest.mark.parametrize("data", [b"no database" * 500, b"SQLite format 3\0" + b"\0" * 4080])
def test_a_foreign_file_is_refused(tmp_path: Path, data: bytes) -> None:
    store = opened(tmp_path)
    store.close()
    store.path.write_bytes(data)
    with pytest.raises(LearningError, match="move it away"):
        opened(tmp_path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for i in range(100):
        store.add(item(i), vector(i))
    store.scrub()
    store.close()
    store.path.write_bytes(store.path.read_bytes()[: 5 * 4096 + 17])
    with pytest.raises(LearningError, match="damaged"):
        opened(tmp_path)


def test_another_process_that_writes_for_long_is_named(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.connection.rows("PRAGMA busy_timeout=50")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LearningError, match="another process holds the file"):
        store.add(item(1), vector(1))
    other.execute("ROLLBACK")
    other.close()
    assert store.add(item(1), vector(1)).id == 1
    store.close()


def test_a_clock_that_jumps_changes_no_order(tmp_path: Path) -> None:
    store = opened(tmp_path)
    times = iter([1e9, 5e9, 2.0, 0.0, -7.5, 1e9])
    store.wall = lambda: next(times)
    ids = [store.add(item(i), vector(i)).id for i in range(6)]
    store.close()
    again = opened(tmp_path)
    assert [each.id for each in again.items()] == ids == sorted(ids)
    assert [each.wall for each in again.items()] == [1e9, 5e9, 2.0, 0.0, -7.5, 1e9]
    assert [row.seq for row in again.log()] == list(range(1, 7))
    again.close()


def test_two_stores_of_one_process_see_each_other(tmp_path: Path) -> None:
    """Locks of one are kept while the other opens, forgets and closes."""
    first, second = opened(tmp_path), opened(tmp_path)
    mark = first.connection.mark
    for i in count(1):
        assert (first, second)[i % 2].add(item(i), vector(i)).id == i
        if i == 6:
            break
    assert first.connection.mark != mark
    second.close()
    assert [each.id for each in first.items()] == [1, 2, 3, 4, 5, 6]
    first.close()
