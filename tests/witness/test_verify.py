"""The chain of a log: every change of bytes is found; a torn end counts only if a repair states it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.witness import (
    documented_hashes,
    facts_of,
    forge,
    request_ids,
    write_log,
    write_rotated,
    write_torn_log,
)

from camelid.errors import WitnessError
from camelid.witness.chain import FORMAT, VERSION, Link, encode
from camelid.witness.verify import check_sequence, read_records, verify


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log with a repaired end: torn lines and repairs are its weakest places."""
    return write_torn_log(tmp_path_factory.mktemp("log") / "log").read_bytes()


def broken_line(path: Path, data: bytes) -> int:
    """The number of the broken line of a log that must not verify."""
    path.write_bytes(data)
    with pytest.raises(WitnessError, match="broken at line") as caught:
        verify(path)
    line = caught.value.line
    assert isinstance(line, int)
    return line


def test_hashes_are_the_documented_ones(tmp_path: Path) -> None:
    pairs = documented_hashes(write_log(tmp_path / "log", 4).read_text("utf-8"))
    assert len(pairs) == 6
    assert [stated for stated, _ in pairs] == [computed for _, computed in pairs]


def test_a_log_is_summed_up(tmp_path: Path) -> None:
    path = write_log(write_log(tmp_path / "log", 3), 2, first=3)
    summary = verify(path)
    kinds = [facts["kind"] for facts in facts_of(path)]
    assert kinds == ["header", *["request"] * 3, "close", "header", *["request"] * 2, "close"]
    assert (summary.n_requests, summary.n_records, summary.n_gaps, summary.n_repairs) == (5, 9, 0, 0)
    assert (summary.is_closed, summary.n_unended) == (True, 0)
    assert summary.head == facts_of(path)[-1]["hash"]
    assert summary.first_time <= summary.last_time


def test_an_edit_is_found_in_its_line(tmp_path: Path, log: bytes) -> None:
    lines = log.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"req-1"' in line)
    edited = lines[at].replace(b'"key":"alice"', b'"key":"mallory"')
    assert edited != lines[at]
    assert broken_line(tmp_path / "log", b"".join([*lines[:at], edited, *lines[at + 1 :]])) == at + 1


def test_a_record_with_a_hash_of_its_own_is_found(tmp_path: Path) -> None:
    """A forger who computes only the edited line's hash anew breaks the next line."""
    lines = write_log(tmp_path / "log").read_bytes().splitlines(keepends=True)
    facts = {**json.loads(lines[2]), "key": "mallory"}
    prev = json.loads(lines[1])["hash"]
    del facts["hash"]
    lines[2] = encode(Link(2, prev).write(facts))
    assert broken_line(tmp_path / "log", b"".join(lines)) == 4


def test_every_deleted_line_is_found(tmp_path: Path, log: bytes) -> None:
    lines = log.splitlines(keepends=True)
    for i in range(len(lines) - 1):
        assert broken_line(tmp_path / "log", b"".join(lines[:i] + lines[i + 1 :])) <= i + 2


def test_every_moved_or_repeated_line_is_found(tmp_path: Path, log: bytes) -> None:
    lines = log.splitlines(keepends=True)
    for i in range(len(lines)):
        for j in range(len(lines)):
            moved = lines[:i] + lines[i + 1 :]
            moved.insert(j, lines[i])
            if moved != lines:
                assert broken_line(tmp_path / "log", b"".join(moved))
        assert broken_line(tmp_path / "log", b"".join(lines[: i + 1] + lines[i:]))


@pytest.mark.parametrize("junk", [b"\n", b"junk\n", b"{}\n", b"[1]\n", b"\0\n"])
def test_every_inserted_line_is_found(tmp_path: Path, log: bytes, junk: bytes) -> None:
    lines = log.splitlines(keepends=True)
    for i in range(len(lines) + 1):
        inserted = b"".join([*lines[:i], junk, *lines[i:]])
        # Before the torn line, the line after that one is broken: the repair, which states other bytes.
        assert i < broken_line(tmp_path / "log", inserted) <= i + 3


def test_a_log_without_its_header_is_no_log(tmp_path: Path) -> None:
    request = Link().write({"kind": "request"})
    header = Link().after(request).write({"kind": "header", "format": FORMAT, "version": VERSION})
    assert broken_line(tmp_path / "log", encode(request) + encode(header)) == 1


def test_a_line_without_a_hash_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'{"seq":0}\n')
    with pytest.raises(WitnessError, match="it has no hash"):
        verify(tmp_path / "log")


def test_every_line_of_another_log_is_found(tmp_path: Path, log: bytes) -> None:
    """The other log has the same requests, in the same places."""
    ours, theirs = log.splitlines(keepends=True), write_torn_log(tmp_path / "other").read_bytes()
    others = theirs.splitlines(keepends=True)
    assert len(others) == len(ours)
    for i, line in enumerate(others):
        swapped = [*ours[:i], line, *ours[i + 1 :]]
        assert broken_line(tmp_path / "log", b"".join(swapped)) in (i + 1, i + 2)


def test_a_cut_at_each_byte_of_the_last_record_is_found(tmp_path: Path) -> None:
    data = write_log(tmp_path / "log").read_bytes()
    start = data.rindex(b"\n", 0, -1) + 1
    for end in range(start + 1, len(data)):
        assert broken_line(tmp_path / "log", data[:end]) == data.count(b"\n")


def test_a_cut_of_whole_lines_is_visible(tmp_path: Path) -> None:
    """The chain cannot find it: the log says that it was not closed, and lacks a hash noted earlier."""
    data = write_log(tmp_path / "log").read_bytes()
    head = facts_of(tmp_path / "log")[-1]["hash"]
    assert verify(tmp_path / "log", wanted=head).has_wanted
    (tmp_path / "log").write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    summary = verify(tmp_path / "log", wanted=head)
    assert (summary.is_closed, summary.has_wanted) == (False, False)


def test_a_log_written_anew_lacks_the_hash_noted_earlier(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log")
    head = facts_of(path)[-1]["hash"]
    forge(path, lambda facts: facts.update(key="mallory"))
    assert not verify(path, wanted=head).has_wanted


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_change_of_bytes_is_found(
    tmp_path_factory: pytest.TempPathFactory, log: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(log) - 1), "start")
    end = data.draw(st.integers(start, min(start + 3, len(log))), "end")
    changed = log[:start] + data.draw(st.binary(max_size=3), "bytes") + log[end:]
    is_cut_between_lines = log.startswith(changed) and changed.endswith(b"\n")
    if changed != log and not is_cut_between_lines:
        assert broken_line(tmp_path_factory.getbasetemp() / "changed", changed)


def test_a_torn_line_counts_with_its_repair_only(tmp_path: Path, log: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(log)
    summary = verify(path)
    assert (summary.n_repairs, summary.n_unended, summary.is_closed) == (1, 1, True)
    lines = log.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"kind":"repair"' in line)
    for torn in (b"", b"\n", b"{}\n", lines[at - 1] * 2, b"x" + lines[at - 1]):
        assert broken_line(path, b"".join([*lines[: at - 1], torn, *lines[at:]]))


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"{}\n", b"\0" * 4096, b"not a log\n" * 3, b"[" * 99999 + b"\n"]
)
def test_another_file_is_no_log(tmp_path: Path, data: bytes) -> None:
    assert broken_line(tmp_path / "log", data) == 1


def test_another_format_version_is_refused_by_number(tmp_path: Path) -> None:
    line = Link().write({"kind": "header", "format": "camelid-witness", "version": 2})
    (tmp_path / "log").write_bytes(encode(line))
    with pytest.raises(WitnessError, match="version 2, but this Camelid reads 1"):
        verify(tmp_path / "log")


def test_a_missing_file_of_a_rotated_log_is_found(tmp_path: Path) -> None:
    parts = write_rotated(tmp_path, 3)
    summaries = [verify(part) for part in parts]
    check_sequence(summaries[::-1])
    check_sequence(summaries[1:])  # the oldest part may have been removed as planned
    with pytest.raises(WitnessError, match="one is missing or was cut"):
        check_sequence([summaries[0], summaries[2]])
    parts[0].write_bytes(b"".join(parts[0].read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(WitnessError, match="one is missing or was cut"):
        check_sequence([verify(part) for part in parts])


def test_records_come_before_the_broken_line(tmp_path: Path) -> None:
    lines = write_log(tmp_path / "log").read_bytes().splitlines(keepends=True)
    (tmp_path / "log").write_bytes(b"".join([*lines[:3], b"x" + lines[3]]))
    records = read_records(tmp_path / "log")
    assert [next(records).kind for _ in range(3)] == ["header", "request", "request"]
    with pytest.raises(WitnessError, match="broken at line 4"):
        next(records)
    assert request_ids(tmp_path / "log") == ["req-0", "req-1"]
