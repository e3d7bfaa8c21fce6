"""The writer: order, bounds, gaps, rotation, torn ends, and what it refuses to write to."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.support.witness import (
    IDENTITY,
    MODELS,
    facts_of,
    request_ids,
    wait_until,
    witness_record,
    write_log,
    write_rotated,
)

from camelid.errors import WitnessError
from camelid.witness import file as log_file
from camelid.witness.inbox import Bounds, Gap, Inbox, Item, Reopen
from camelid.witness.log import WitnessLog
from camelid.witness.verify import check_sequence, verify

posix = pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: POSIX files")


class BlockedDisk:
    """Stands for fsync: waits until `free`, then fails `n_failures` times."""

    def __init__(self, n_failures: int = 0) -> None:
        self.entered, self.free, self.n_failures = Event(), Event(), n_failures

    def fsync(self, fd: int) -> None:
        self.entered.set()
        assert self.free.wait(30)
        if self.n_failures:
            self.n_failures -= 1
            raise OSError(errno.EIO, "Input/output error")


def test_a_record_has_hashes_and_no_content(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", 1)
    header, facts, _ = facts_of(path)
    assert header["models"]["m"]["model_sha256"] == "a" * 64
    assert facts["model_sha256"] == "a" * 64
    assert facts["build_sha256"] == header["models"]["m"]["build_sha256"] == IDENTITY.build_sha256
    assert facts["prompt_sha256"] == hashlib.sha256(struct.pack("<3I", 1, 2, 0)).hexdigest()
    assert facts["answer_sha256"] == hashlib.sha256(struct.pack("<2I", 3, 0)).hexdigest()
    text = "answer 0\u2028\ud83e\udd99".encode("utf-8", "surrogatepass")
    assert facts["text_sha256"] == hashlib.sha256(text).hexdigest()
    assert (facts["key"], facts["endpoint"], facts["usage"]["prompt_tokens"]) == (
        "alice",
        "/v1/completions",
        3,
    )
    assert "content" not in facts
    assert "answer 0" not in path.read_text()


def test_content_is_written_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    messages = [{"role": "user", "content": "\ud800 lone"}]
    with WitnessLog.open(path, MODELS, with_content=True) as log:
        log.append(witness_record(7, prompt=messages, constraint={"regex": "a+"}))
    content = facts_of(path)[1]["content"]
    assert content["prompt_ids"] == [1, 2, 7]
    assert (content["prompt"], content["constraint"]) == (messages, {"regex": "a+"})
    assert verify(path).n_requests == 1


@posix
def test_only_the_owner_reads_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch(0o666)
    path.chmod(0o666)
    write_log(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_records_of_many_threads_are_all_there_in_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with WitnessLog.open(path, MODELS) as log:

        def work(first: int) -> None:
            for i in range(first, first + 50):
                assert log.append(witness_record(i))

        threads = [Thread(target=work, args=(50 * k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(request_ids(path)) == sorted(f"req-{i}" for i in range(400))
    uptimes = [facts["uptime_s"] for facts in facts_of(path)]
    assert uptimes == sorted(uptimes)
    assert (verify(path).n_requests, log.n_dropped) == (400, 0)


def test_an_overflow_is_counted_and_its_place_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, disk = tmp_path / "log", BlockedDisk()
    log = WitnessLog.open(path, MODELS, bounds=Bounds(records=4))
    monkeypatch.setattr(log_file.os, "fsync", disk.fsync)
    assert log.append(witness_record(0))
    assert disk.entered.wait(30)  # the first record is being written, and counts as waiting
    accepted = [log.append(witness_record(i)) for i in range(1, 11)]
    assert accepted == [True] * 3 + [False] * 7
    assert log.n_dropped == 7
    disk.free.set()
    wait_until(lambda: log.append(witness_record(99)), "room")
    assert log.close() == log.n_dropped
    kinds = [facts["kind"] for facts in facts_of(path)]
    assert kinds == ["header", *["request"] * 4, "gap", "request", "close"]
    gap = facts_of(path)[5]
    assert (gap["n_lost"], gap["reason"]) == (log.n_dropped, "the queue was full")
    assert gap["since"] <= gap["time"]
    summary = verify(path)
    assert (summary.n_gaps, summary.n_lost) == (1, log.n_dropped)
    assert facts_of(path)[-1]["n_dropped"] == log.n_dropped


def test_a_signal_during_a_loss_reopens_behind_the_gap() -> None:
    class Interrupted(Inbox):
        """An inbox whose sender is interrupted by a signal as soon as a gap stands at the end."""

        def _add(self, item: Item) -> None:
            super()._add(item)
            if isinstance(item, Gap):
                self.put_reopen()

    inbox = Interrupted(Bounds(records=0))
    assert not inbox.put(dict, 1)
    gap, reopen = *inbox.take(), *inbox.take()
    assert isinstance(gap, Gap) and isinstance(reopen, Reopen)
    assert gap.n_lost == inbox.n_lost == 1


LONG = "x" * 400_000


@pytest.mark.parametrize(
    "facts",
    [
        {"text": LONG},
        {"constraint": {"tool_calls": {"tools": {"f": {"enum": [LONG]}}}}},
        {"prompt": [{"role": "user", "content": LONG}]},
    ],
)
def test_waiting_records_have_a_bound_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    path, disk = tmp_path / "log", BlockedDisk()
    log = WitnessLog.open(path, MODELS, bounds=Bounds(bytes=1 << 20))
    monkeypatch.setattr(log_file.os, "fsync", disk.fsync)
    large = [log.append(witness_record(i, **facts)) for i in range(4)]
    assert large == [True, True, False, False]
    disk.free.set()
    assert log.close() == 2


def test_a_failed_fsync_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have dropped the pages that it failed to write."""
    path, disk, said = tmp_path / "log", BlockedDisk(n_failures=2), list[str]()
    written = 0
    os_write = os.write

    def counted(fd: int, data: Any) -> int:
        nonlocal written
        written += 1
        return os_write(fd, data)

    log = WitnessLog.open(path, MODELS, report=said.append)
    disk.free.set()
    monkeypatch.setattr(log_file.os, "fsync", disk.fsync)
    monkeypatch.setattr(log_file.os, "write", counted)
    log.append(witness_record(0))
    wait_until(lambda: not disk.n_failures and not log.fault and request_ids(path) == ["req-0"], "the record")
    assert written == 3
    assert log.close() == 0
    assert verify(path).n_requests == 1
    assert [line.split(": ", 1)[1] for line in said] == [
        "cannot be written: Input/output error; requests go on, and records wait",
        "written again; 0 records were lost since it was opened",
    ]


def test_what_a_dead_disk_holds_back_at_the_end_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk, said = tmp_path / "log", BlockedDisk(n_failures=10**6), list[str]()
    log = WitnessLog.open(path, MODELS, report=said.append)
    disk.free.set()
    monkeypatch.setattr(log_file.os, "fsync", disk.fsync)
    for i in range(5):
        log.append(witness_record(i))
    assert log.close() == log.n_dropped == 5
    assert any("records are lost" in line for line in said)
    assert not verify(path).is_closed
    assert not log.append(witness_record(9))  # after the end
    assert log.n_dropped == 6


@posix
def test_a_part_of_a_line_is_cut_off_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk in trouble may refuse the cut at first, too."""
    path, n_refused = tmp_path / "log", 0
    truncate, write = os.ftruncate, os.write

    def refuse(fd: int, size: int) -> None:
        nonlocal n_refused
        n_refused += 1
        if n_refused <= 2:
            raise OSError(errno.EIO, "Input/output error")
        truncate(fd, size)

    def fail(fd: int, data: Any) -> int:
        monkeypatch.setattr(log_file.os, "write", write)
        write(fd, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    log = WitnessLog.open(path, MODELS)
    monkeypatch.setattr(log_file.os, "ftruncate", refuse)
    monkeypatch.setattr(log_file.os, "write", fail)
    log.append(witness_record(0))
    wait_until(lambda: n_refused == 3 and not log.fault, "the third cut")
    assert log.close() == 0
    assert (verify(path).n_repairs, request_ids(path)) == (0, ["req-0"])


def test_a_loss_at_the_end_is_stated_if_the_disk_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, disk = tmp_path / "log", BlockedDisk()
    log = WitnessLog.open(path, MODELS)
    monkeypatch.setattr(log_file.os, "fsync", disk.fsync)
    log.append(witness_record(0))
    assert disk.entered.wait(30)
    disk.n_failures = 2
    log.append(witness_record(1))
    log.reopen()  # divides what waits into two batches
    log.append(witness_record(2))
    closing = Thread(target=log.close)
    closing.start()
    wait_until(lambda: log._inbox.is_closed, "the close")
    assert not log.append(witness_record(3))
    disk.free.set()
    closing.join()
    kinds = [facts["kind"] for facts in facts_of(path)]
    assert kinds == ["header", "gap", "request", "request", "close"]
    assert request_ids(path) == ["req-1", "req-2"]
    assert facts_of(path)[1]["n_lost"] == 1


def test_a_disk_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = BlockedDisk()
    log = WitnessLog.open(tmp_path / "log", MODELS)
    monkeypatch.setattr(log_file.os, "fsync", disk.fsync)
    log.append(witness_record(0))
    assert disk.entered.wait(30)
    assert log.close(timeout_s=0.05) == 1
    disk.free.set()
    wait_until(lambda: not log._thread.is_alive(), "the writer's end")  # pyright: ignore[reportPrivateUsage]


def test_a_record_that_is_not_json_leaves_a_gap(tmp_path: Path) -> None:
    path, said = tmp_path / "log", list[str]()
    with WitnessLog.open(path, MODELS, with_content=True, report=said.append) as log:
        log.append(witness_record(0, prompt=float("nan")))
        log.append(witness_record(1))
    assert [facts["kind"] for facts in facts_of(path)] == ["header", "gap", "request", "close"]
    assert "not JSON" in facts_of(path)[1]["reason"]
    assert "not JSON" in said[0]
    assert (log.n_dropped, verify(path).n_lost) == (1, 1)


def test_other_models_are_stated_from_their_place_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    other = {"n": IDENTITY}
    with WitnessLog.open(path, MODELS) as log:
        log.append(witness_record(0))
        log.append(witness_record(1, model="n"))
        log.describe(other)
        log.append(witness_record(2, model="n"))
    facts = facts_of(path)
    assert [each["kind"] for each in facts] == ["header", "request", "request", "models", "request", "close"]
    assert [each.get("model_sha256") for each in facts[1:5]] == ["a" * 64, None, None, "a" * 64]
    assert list(facts[3]["models"]) == ["n"]


def test_a_model_that_was_replaced_is_stated_in_each_file_with_its_answers(tmp_path: Path) -> None:
    """Its answers may end after the file that states it was moved away."""
    path, old = tmp_path / "log", replace(IDENTITY, model_sha256="b" * 64)
    with WitnessLog.open(path, {"m": old}) as log:
        log.describe(MODELS)
        log.append(witness_record(0), old)
        wait_until(lambda: "req-0" in request_ids(path), "the record")
        path.rename(tmp_path / "first")
        log.reopen()
        log.append(witness_record(1), old)
        log.append(witness_record(2), IDENTITY)
    first, later = facts_of(tmp_path / "first"), facts_of(path)
    stated = [facts["models"]["m"]["model_sha256"] for facts in first if "models" in facts]
    assert stated == ["b" * 64, "a" * 64]
    requests = [facts for facts in (*first, *later) if facts["kind"] == "request"]
    assert [facts["model_sha256"] for facts in requests] == ["b" * 64, "b" * 64, "a" * 64]
    assert [facts.get("identity") for facts in requests] == [None, old.facts(), None]


def test_a_rotated_log_is_one_chain(tmp_path: Path) -> None:
    parts = write_rotated(tmp_path, 3)
    assert [request_ids(part) for part in parts] == [["req-0"], ["req-1"], ["req-2"]]
    summaries = [verify(part) for part in parts]
    assert [summary.continues for summary in summaries] == [None, summaries[0].head, summaries[1].head]
    assert all(summary.is_closed for summary in summaries)
    assert [facts["seq"] for part in parts for facts in facts_of(part)] == list(range(9))
    check_sequence(summaries)
    write_log(parts[-1], 1, first=3)  # a later run continues the rotated file
    check_sequence([verify(part) for part in parts])


def test_a_reopened_file_that_was_not_moved_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with WitnessLog.open(path, MODELS) as log:
        log.append(witness_record(0))
        log.reopen()
        log.append(witness_record(1))
    assert request_ids(path) == ["req-0", "req-1"]
    assert (verify(path).n_unended, verify(path).is_closed) == (0, True)


@posix
def test_a_reopened_file_that_cannot_be_opened_leaves_the_old_one(tmp_path: Path) -> None:
    path, said = tmp_path / "log", list[str]()
    with WitnessLog.open(path, MODELS, report=said.append) as log:
        moved = path.rename(tmp_path / "moved")
        path.mkdir()
        log.reopen()
        log.append(witness_record(0))
    assert "goes on in the old file" in said[0]
    assert request_ids(moved) == ["req-0"]
    assert verify(moved).is_closed


@posix
def test_a_deleted_log_is_begun_anew_and_told(tmp_path: Path) -> None:
    path, said = tmp_path / "log", list[str]()
    with WitnessLog.open(path, MODELS, report=said.append) as log:
        log.append(witness_record(0))
        wait_until(lambda: request_ids(path) == ["req-0"], "the record")
        path.unlink()
        log.append(witness_record(1))
    assert "was deleted" in said[0]
    assert request_ids(path) == ["req-1"]
    assert verify(path).continues


@posix
def test_two_processes_cannot_write_one_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with (
        WitnessLog.open(path, MODELS) as log,
        pytest.raises(WitnessError, match="another process writes"),
    ):
        WitnessLog.open(path, MODELS)
    log.close()
    write_log(path)


@pytest.mark.parametrize("data", [b"# a text\n", b"{}\n", b"GGUF\3\0\0\0" * 99])
def test_nothing_is_added_to_another_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(WitnessError, match="not a witness log"):
        WitnessLog.open(tmp_path / "file", MODELS)
    assert (tmp_path / "file").read_bytes() == data


@posix
@pytest.mark.parametrize(("place", "words"), [("no/log", "cannot be opened"), ("/dev/null", "not a regular")])
def test_a_place_without_a_file_is_refused(tmp_path: Path, place: str, words: str) -> None:
    with pytest.raises(WitnessError, match=words):
        WitnessLog.open(tmp_path / place, MODELS)
