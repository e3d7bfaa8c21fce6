"""Faults of the machine: a full disk, a limit on files, a killed process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.witness import facts_of, request_ids, write_log

from camelid.witness.verify import verify

ROOT = Path(__file__).parents[2]
MANY, BOUND = 100, 8
NAMESPACE = ["unshare", *([] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["-Ur"]), "--mount"]
pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: POSIX limits and signals"),
]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "tests.support.witness_writer", *map(str, words)]


def environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "core"), str(ROOT / "native")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def seen(words: list[str]) -> dict[str, Any]:
    """The output of a writer."""
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def can_mount(folder: Path) -> bool:
    """True if a process may mount a file system that only it sees."""
    words = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    try:
        return not subprocess.run(words, capture_output=True, check=False).returncode
    except OSError:
        return False


def check_fault(found: dict[str, Any], path: Path) -> None:
    """Requests went on, every loss is counted, and the log states it and is intact."""
    path.write_text(found["log"])
    n_dropped = MANY - found["n_accepted"]
    assert found["n_dropped"] == n_dropped
    assert 0 < found["n_accepted"] <= BOUND
    summary = verify(path)
    assert summary.is_closed
    assert summary.n_lost == found["n_lost"] >= n_dropped
    # 3 before, 1 that met the fault, those that waited, 1 after
    assert summary.n_requests == 3 + 1 + found["n_accepted"] + 1
    accepted = [f"req-{i}" for i in range(4, 4 + found["n_accepted"])]
    assert request_ids(path) == ["req-0", "req-1", "req-2", "req-3", *accepted, "req-999"]
    kinds = [facts["kind"] for facts in facts_of(path)]
    assert kinds[-3:] == ["gap", "request", "close"]
    assert (kinds.count("gap"), kinds.count("repair")) == (1, 0)
    fault, end = found["said"]
    assert f"cannot be written: {found['fault']}; requests go on" in fault
    assert "written again; " in end


def test_a_full_disk_delays_no_request_and_is_stated(tmp_path: Path) -> None:
    if not can_mount(tmp_path):
        pytest.skip("not on this platform: no file system can be mounted")
    found = seen([*NAMESPACE, *command("full", tmp_path)])
    assert found["fault"] == os.strerror(28)
    check_fault(found, tmp_path / "log")


def test_a_limit_on_files_delays_no_request_and_is_stated(tmp_path: Path) -> None:
    found = seen(command("limited", tmp_path / "log"))
    assert found["fault"] == os.strerror(27)
    check_fault(found, tmp_path / "copy")


def test_a_failed_write_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    """The limit lets ten bytes of the line pass."""
    found = seen(command("limited", tmp_path / "log"))
    lines = found["log"].splitlines(keepends=True)
    assert found["size"] == sum(len(line.encode()) for line in lines[:4])


@pytest.mark.parametrize("n_records", [1, 5, 20])
def test_a_killed_process_loses_no_written_record(tmp_path: Path, n_records: int) -> None:
    path = tmp_path / "log"
    writer = subprocess.Popen(command("endless", path), env=environment(), stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    written = [writer.stdout.readline().strip() for _ in range(n_records)]
    os.kill(writer.pid, signal.SIGKILL)
    written += writer.stdout.read().split()
    assert writer.wait() == -signal.SIGKILL
    writer.stdout.close()
    kept = path.read_bytes()
    write_log(path, 1, first=10**6)
    assert path.read_bytes().startswith(kept)
    ids = request_ids(path)
    assert ids[: len(written)] == written
    assert ids[-1] == "req-1000000"
    summary = verify(path)
    assert (summary.n_unended, summary.is_closed) == (1, True)
    assert summary.n_repairs == (not kept.endswith(b"\n"))
