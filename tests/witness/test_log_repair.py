"""Logs with damaged ends: repaired and stated, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.witness import (
    MODELS,
    request_ids,
    write_log,
)

from camelid.errors import WitnessError
from camelid.witness import tail
from camelid.witness.log import WitnessLog
from camelid.witness.tail import lines_backwards
from camelid.witness.verify import verify


@pytest.mark.parametrize("line", [-1, -2])
def test_a_damaged_end_is_refused(tmp_path: Path, line: int) -> None:
    """Appending to it would make the damage look old."""
    path = write_log(tmp_path / "log")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"n_requests":3', b'"n_requests":2').replace(b"alice", b"mallory")
    path.write_bytes(data := b"".join(lines[: line or None] + lines[line:]))
    before = verify_fails(path)
    if line == -1:
        with pytest.raises(WitnessError, match="the last record is damaged"):
            WitnessLog.open(path, MODELS)
        assert path.read_bytes() == data
    else:  # only the last record is checked on opening; verify finds the other
        write_log(path)
        assert verify_fails(path) == before


@pytest.mark.parametrize("junk", [b"\n", b"x\n"])
def test_torn_lines_before_a_whole_record_are_damage(tmp_path: Path, junk: bytes) -> None:
    path = write_log(tmp_path / "log")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], junk, lines[-1]]))
    with pytest.raises(WitnessError, match="the last record is damaged"):
        WitnessLog.open(path, MODELS)


def verify_fails(path: Path) -> int:
    with pytest.raises(WitnessError) as caught:
        verify(path)
    assert isinstance(caught.value.line, int)
    return caught.value.line


def test_a_cut_at_each_byte_is_repaired_and_stated(tmp_path: Path) -> None:
    whole = write_log(tmp_path / "whole", 2).read_bytes()
    path = tmp_path / "log"
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        n_complete = whole[:end].count(b"\n")
        is_between = not end or whole[end - 1 : end] == b"\n"
        write_log(path, 1, first=9)
        assert path.read_bytes().startswith(whole[:end]), "a torn line is kept"
        assert verify(path).n_repairs == (not is_between)
        lacks_newline = whole[end : end + 1] == b"\n"  # the record is whole
        requests = [f"req-{i}" for i in range(min(max(n_complete + lacks_newline - 1, 0), 2))]
        assert request_ids(path) == [*requests, "req-9"]


def test_a_cut_in_a_repair_is_repaired(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", 1)
    torn = path.read_bytes()[:-9]
    path.write_bytes(torn)
    whole = write_log(path, 1, first=1).read_bytes()
    for end in range(len(torn) + 1, len(whole), 7):
        path.write_bytes(whole[:end])
        write_log(path, 1, first=2)
        assert verify(path).n_repairs in (1, 2)
        assert path.read_bytes().startswith(whole[:end])


def test_zeros_at_the_end_are_repaired(tmp_path: Path) -> None:
    """A file system may keep a file's size and lose its last bytes."""
    path = write_log(tmp_path / "log", 1)
    path.write_bytes(path.read_bytes() + b"\0" * 5000)
    write_log(path, 1, first=1)
    assert (verify(path).n_repairs, request_ids(path)) == (1, ["req-0", "req-1"])
    path.write_bytes(b"\0" * 5000)
    write_log(path, 1)
    assert (verify(path).n_repairs, request_ids(path)) == (1, ["req-0"])


@pytest.mark.parametrize(
    "text", ["", "\n", "a", "a\n", "a\nbb", "\n\n", "a\n\nbb\n", "x" * 50 + "\n" + "y" * 99]
)
@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_lines_backwards(tmp_path: Path, text: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "BLOCK", block)
    data = text.encode()
    (tmp_path / "file").write_bytes(data)
    want: list[tuple[int, bytes]] = []
    for line in data.splitlines(keepends=True):
        want.append(
            (sum(len(each) for each in data.splitlines(keepends=True)[: len(want)]), line.rstrip(b"\n"))
        )
    with (tmp_path / "file").open("rb") as file:
        assert list(lines_backwards(file, len(data))) == want[::-1]
