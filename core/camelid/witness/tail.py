"""The end of a log: the place of its next record, and the bytes of a line that was written in part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from camelid.errors import WitnessError
from camelid.witness.chain import OPENING, Facts, Line, Link, decode, sha256

BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes after the last record that are no record: a crash interrupted a write.

    No lines stand for a whole record that lacks its newline.
    """

    n_bytes: int
    n_lines: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Torn:
        """The facts of torn lines, without or with the last newline."""
        lines = data.removesuffix(b"\n")
        return cls(len(lines), lines.count(b"\n") + 1 if data else 0, sha256(lines))

    def facts(self) -> Facts:
        """The repair record that states these bytes."""
        return {
            "kind": "repair",
            "torn_bytes": self.n_bytes,
            "torn_lines": self.n_lines,
            "torn_sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class Tail:
    """The place of the next record, the torn bytes if any, and whether a newline must come first."""

    link: Link
    torn: Torn | None = None
    needs_newline: bool = False


def read_tail(file: BinaryIO, size: int, path: str) -> Tail:
    """The end of a log of `size` bytes. Raises WitnessError for another file or a damaged record."""
    if not size:
        return Tail(Link())
    if not _opens_a_log(file):
        raise WitnessError(
            f"{path}: this is not a witness log, so nothing is added to it; choose another file", path=path
        )
    lines = lines_backwards(file, size)
    found = ((offset + len(data) + 1, line) for offset, data in lines if (line := decode(data)))
    start, last = next(found, (0, None))  # the first byte after the last record
    link = _place_after(last, _previous(lines, last), path) if last else Link()
    rest = _read(file, min(start, size), size)
    needs_newline = _read(file, size - 1, size) != b"\n"
    return Tail(link, Torn.of(rest) if rest or needs_newline else None, needs_newline)


def _opens_a_log(file: BinaryIO) -> bool:
    """True if the file begins as a log, or as a log of which the disk kept only some bytes, or zeros."""
    file.seek(0)
    opening = file.read(len(OPENING))
    return OPENING.startswith(opening) or not opening.strip(b"\0")


def _previous(lines: Iterator[tuple[int, bytes]], last: Line | None) -> Line | None:
    """The record before the last one. Only a repair record may follow torn lines."""
    for _, data in lines:
        line = decode(data)
        if line or not last or last.facts.get("kind") != "repair":
            return line or Line({}, b"", "")
    return None


def _place_after(last: Line, previous: Line | None, path: str) -> Link:
    link = Link.before(last.facts)
    if previous:
        seq = previous.facts.get("seq")
        link = Link(seq if type(seq) is int else -1).after(previous)
    if reason := link.mismatch(last):
        raise WitnessError(
            f"{path}: the last record is damaged: {reason}; `camelid witness verify` shows where, and a log "
            "begins anew once this file is moved away",
            path=path,
        )
    return link.after(last)


def lines_backwards(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes without newline) of each line, the last first.

    An unfinished last line counts, nothing after a last newline does not.
    """
    end, rest, block, is_last = size, b"", BLOCK, True
    while end:
        start = max(end - block, 0)
        first, *others = (_read(file, start, end) + rest).split(b"\n")
        offset = start + len(first)
        lines: list[tuple[int, bytes]] = []
        for data in others:
            lines.append((offset + 1, data))
            offset += 1 + len(data)
        yield from reversed(lines[:-1] if is_last and lines and not lines[-1][1] else lines)
        is_last = is_last and not lines
        block = BLOCK if lines else 2 * block  # a long line is joined from few reads
        end, rest = start, first
    if size:
        yield 0, rest


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)
