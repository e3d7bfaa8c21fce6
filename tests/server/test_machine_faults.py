"""Faults of the machine under a server process: its clock, disk, file descriptors, and its end by SIGKILL."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import Any

import httpx
import pytest
from tests.support.served import ROOT, Served, served
from tests.support.undisturbed import PATH, undisturbed, witness_of
from tests.support.witness import facts_of

from camelid.witness.verify import verify

resource = pytest.importorskip("resource", reason="not on this platform: limits of a process")
pytestmark = [pytest.mark.faults, pytest.mark.slow]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="not on this platform: /proc, prlimit, LD_PRELOAD")
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
DAY = 86_400


def wait_for(condition: Any, what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A library that moves the wall clock of its process, and the file that says by how many seconds."""
    compiler = which("cc")
    if not compiler or sys.platform != "linux":
        pytest.skip("not on this platform: no C compiler for LD_PRELOAD")
    folder = tmp_path_factory.mktemp("clock")
    library, source = folder / "clock.so", ROOT / "tests" / "support" / "clock_shift.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    file = folder / "shift"
    file.write_text("0")
    return library, file


def jump(file: Path, seconds: int) -> None:
    """Sets the shift at once: no reader sees a part of the number."""
    part = file.with_suffix(".part")
    part.write_text(str(seconds))
    part.replace(file)


def test_a_clock_that_jumps_disturbs_nobody(clock: tuple[Path, Path], tmp_path: Path) -> None:
    library, shift = clock
    keys = tmp_path / "keys"
    keys.write_text("ann:one\nbob:two:use:1\n")
    ann, bob = ({"authorization": f"Bearer {secret}"} for secret in ("one", "two"))
    log = tmp_path / "log"
    with served(
        "--backend", "cpu", "--api-key-file", str(keys), "--witness", str(log), "--timeout", "60",
        "--keep-alive", "60", LD_PRELOAD=str(library), CLOCK_SHIFT=str(shift),
    ) as server:  # fmt: skip
        server.http.headers.update(ann)
        assert server.post(PATH, ASK, **bob).status_code == 200
        with undisturbed(server.http):
            for seconds in (400 * DAY, -400 * DAY, 0):
                jump(shift, seconds)
                stamp = server.post(PATH, ASK).json()["created"]
                assert abs(stamp - time.time() - seconds) < DAY, "the shift takes no effect"
                spent = server.post(PATH, ASK, **bob)  # the jump gives no budget back, and takes none
                assert spent.status_code == 429
                assert 1 <= int(spent.headers["retry-after"]) <= 60
                assert server.get("/health").status_code == 200
                assert "camelid" in server.get("/metrics").text
        assert server.stop() == 0
    summary = verify(log)
    assert (summary.is_closed, summary.n_lost) == (True, 0)
    times = [facts["time"] for facts in facts_of(log)]
    assert any(later < earlier for earlier, later in pairwise(times)), "the log has no jump"


@LINUX
def test_a_full_disk_under_the_witness_log_is_told_and_harms_nobody(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with served("--backend", "cpu", "--witness", str(log)) as server:
        assert server.post(PATH, ASK, **{"x-request-id": "before"}).is_success
        wait_for(lambda: "before" in log.read_text(), "no record was written")
        with undisturbed(server.http):
            size = log.stat().st_size
            limit(server, resource.RLIMIT_FSIZE, size + 10)  # a part of a line
            for i in range(3):
                assert server.post(PATH, ASK, **{"x-request-id": f"during-{i}"}).is_success
            line = next(line for line in server.process.stderr or () if "witness log" in line)
            assert "cannot be written: " in line
            assert "requests go on, and records wait" in line
            assert log.stat().st_size <= size + 10
            limit(server, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
            wait_for(lambda: "during-2" in log.read_text(), "the records that waited are not written")
        assert server.stop() == 0
    summary = verify(log)
    assert (summary.is_closed, summary.n_lost, summary.n_repairs) == (True, 0, 0)
    ids = [facts["id"] for facts in facts_of(log) if facts["kind"] == "request"]
    assert [id for id in ids if not id.startswith("req_")] == ["before", "during-0", "during-1", "during-2"]


def limit(server: Served, which_one: int, soft: int) -> None:
    """Sets a soft limit of the server's process."""
    hard = resource.prlimit(server.process.pid, which_one)[1]
    resource.prlimit(server.process.pid, which_one, (soft, hard))


@LINUX
def test_a_killed_server_leaves_nothing_and_its_log_goes_on(tmp_path: Path) -> None:
    log, slots, parts = tmp_path / "log", tmp_path / "slots", tmp_path / "tmp"
    slots.mkdir()
    parts.mkdir()
    arguments = ("--backend", "cpu", "--witness", str(log), "--slot-save-path", str(slots))
    with served(*arguments, TMPDIR=str(parts)) as server:
        alone = witness_of(server.http)()
        assert server.post(PATH, {**ASK, "grammar": 'root ::= "a"{1,3}'}).is_success
        workers = children(server.process.pid)
        assert workers, "no grammar worker runs"
        with ThreadPoolExecutor(4) as pool:
            results = [pool.submit(cut_off, server) for _ in range(4)]
            wait_for(lambda: n_running(server) >= 2, "no load")
            assert server.stop(signal.SIGKILL) == -signal.SIGKILL
            assert all(result.result(60) for result in results)
    wait_for(lambda: not any(map(lives, workers)), "a worker outlives its server")
    assert [*slots.iterdir(), *parts.iterdir()] == []
    with served(*arguments, TMPDIR=str(parts)) as server:
        assert witness_of(server.http)() == alone
        assert server.stop() == 0
    summary = verify(log)
    assert (summary.n_unended, summary.is_closed, summary.n_lost) == (1, True, 0)


def n_running(server: Served) -> float:
    """The sequences that run, by the server's own gauge."""
    rows = server.get("/metrics").text.splitlines()
    return sum(float(row.split()[-1]) for row in rows if row.startswith("camelid_requests_running"))


def cut_off(server: Served) -> bool:
    """True for a stream that ends with an error of the connection, and without the end of an answer."""
    body = {**ASK, "max_tokens": 1000, "ignore_eos": True, "stream": True}
    reasons: list[Any] = []
    try:
        for chunk in server.stream(PATH, body):
            reasons += [choice["finish_reason"] for choice in chunk["choices"]]
    except httpx.TransportError:
        return not any(reasons)
    return False


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def lives(pid: int) -> bool:
    """True for a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def idle(server: Served, n: int) -> Iterator[None]:
    """Connections that send nothing, or half a head."""
    port = httpx.URL(server.url).port
    found: list[socket.socket] = []
    try:
        for i in range(n):
            found.append(socket.create_connection(("127.0.0.1", port or 0), timeout=30))
            if i % 2:
                found[-1].sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local")
        yield
    finally:
        for connection in found:
            connection.close()


@contextmanager
def raised_limit(n: int) -> Iterator[None]:
    """A soft limit on the file descriptors of this process of at least `n`, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < n:
        pytest.skip(f"not on this platform: at most {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@LINUX
def test_ten_thousand_idle_connections_disturb_nobody() -> None:
    """The server starts with the usual soft limit, and raises it itself."""
    with raised_limit(10_300), lowered_for_children(), served("--backend", "cpu") as server:
        before = memory(server)
        with undisturbed(server.http), idle(server, 10_000):
            wait_for(lambda: n_open(server) > 10_000, "the server does not hold the connections")
            assert httpx.post(f"{server.url}{PATH}", json=ASK, timeout=60).is_success  # a new one
            assert memory(server) - before < 400 << 20
        wait_for(lambda: n_open(server) < 100, "closed connections stay open")


@contextmanager
def lowered_for_children() -> Iterator[None]:
    """Starts processes with a soft limit of 1,024 open files, as a login shell or service manager does."""
    popen, hard = subprocess.Popen, resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def lowered(*args: Any, **kwargs: Any) -> Any:
        return popen(["prlimit", f"--nofile=1024:{hard}", *args[0]], *args[1:], **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.served.subprocess.Popen", lowered)
        yield


def n_open(server: Served) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def memory(server: Served) -> int:
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


@LINUX
def test_connections_beyond_the_limit_are_closed_and_others_served() -> None:
    with served("--backend", "cpu") as server, httpx.Client(base_url=server.url, timeout=60) as early:
        assert early.get("/health").is_success
        with undisturbed(server.http):
            pid = server.process.pid
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (200, 200))
            with idle(server, 400):
                wait_for(lambda: n_open(server) >= 199, "the limit is not reached")
                with pytest.raises(httpx.TransportError):
                    httpx.get(f"{server.url}/health", timeout=30)
                assert early.post(PATH, json=ASK).is_success
            wait_for(lambda: n_open(server) < 100, "closed connections stay open")
            assert httpx.post(f"{server.url}{PATH}", json=ASK, timeout=60).is_success
