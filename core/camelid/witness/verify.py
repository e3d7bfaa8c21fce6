"""Checks a log line by line and sums it up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from camelid.errors import WitnessError
from camelid.witness.chain import FORMAT, VERSION, Facts, Link, decode
from camelid.witness.tail import Torn

MAX_LINE_BYTES = 256 << 20  # a record with the text of a million tokens has about 30 MB
Progress = Callable[[int], object]  # receives the bytes of each line


@dataclass(frozen=True, slots=True)
class VerifiedRecord:
    """A record whose place in the chain was checked, with its line number."""

    number: int
    facts: Facts
    hash: str

    @property
    def kind(self) -> str:
        """header, models, request, gap, repair or close."""
        return str(self.facts.get("kind"))

    @property
    def seq(self) -> int:
        """Its number in the log, which goes on in a rotated log's next file."""
        return self.facts["seq"]


class ChainReader:
    """Checks lines one after another."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._link: Link | None = None
        self._has_header = False
        self._torn: list[bytes] = []
        self._torn_at = 0  # the number of the first torn line
        self._number = 0

    def read(self, raw: bytes) -> VerifiedRecord | None:
        """The record of a line with its newline; None for a torn line. Raises WitnessError if broken."""
        self._number += 1
        if not raw.endswith(b"\n"):
            raise self._broken("the file ends inside a line, as after a crash or a cut")
        line = decode(raw[:-1])
        if line is None:
            self._torn_at = self._torn_at if self._torn else self._number
            self._torn.append(raw)
            return None
        link = self._link or Link.before(line.facts)
        if reason := link.mismatch(line):
            raise self._broken(reason)
        record = VerifiedRecord(self._number, line.facts, line.hash)
        self._check_repair(record)
        self._check_header(record)
        self._link = link.after(line)
        return record

    def end(self) -> None:
        """Checks the end of the file. Raises WitnessError."""
        if self._torn:
            raise self._unrepaired()
        if not self._has_header:
            self._number += 1
            raise self._broken("the header is missing: there is no record")

    def _check_repair(self, record: VerifiedRecord) -> None:
        """A repair record must state exactly the lines before it that are no records."""
        is_repair = record.kind == "repair"
        if self._torn and not is_repair:
            raise self._unrepaired()
        want = Torn.of(b"".join(self._torn)).facts()
        if is_repair and want != {name: record.facts.get(name) for name in want}:
            raise self._broken("the torn lines of this repair differ from the lines before it")
        self._torn = []

    def _check_header(self, record: VerifiedRecord) -> None:
        facts = record.facts
        if record.kind == "header":
            self._has_header = True
            if (facts.get("format"), facts.get("version")) != (FORMAT, VERSION):
                version = facts.get("version")
                raise self._broken(f"format version {version!r:.40}, but this Camelid reads {VERSION}")
        elif not self._has_header and record.kind != "repair":
            raise self._broken("the first record is no header; were lines before it deleted?")

    def _unrepaired(self) -> WitnessError:
        return self._broken("it is no record, and no repair record after it states it", self._torn_at)

    def _broken(self, reason: str, number: int | None = None) -> WitnessError:
        line = number or self._number
        return WitnessError(f"{self._path}: broken at line {line}: {reason}", path=self._path, line=line)


def read_records(path: Path, progress: Progress | None = None) -> Iterator[VerifiedRecord]:
    """The records of a log, each after its check. Raises WitnessError at the first broken line."""
    reader = ChainReader(str(path))
    try:
        with path.open("rb") as file:
            while raw := file.readline(MAX_LINE_BYTES):
                if record := reader.read(raw):
                    yield record
                if progress:
                    progress(len(raw))
    except OSError as error:
        raise WitnessError(f"{path}: cannot be read: {error.strerror}", path=str(path)) from error
    reader.end()


@dataclass(slots=True)
class Summary:
    """The contents of an intact log. `head` is its last hash, `continues` that before its first record."""

    path: Path
    n_records: int = 0
    n_requests: int = 0
    n_gaps: int = 0
    n_lost: int = 0  # requests that gaps state
    n_repairs: int = 0
    n_unended: int = 0  # runs before the last one without a close record: crashes and kills
    is_closed: bool = True
    first_time: str = ""
    last_time: str = ""
    continues: str | None = None
    head: str = ""
    has_wanted: bool = False  # a record has the hash that was looked for

    def add(self, record: VerifiedRecord) -> None:
        """Counts a record."""
        kind, facts, time = record.kind, record.facts, str(record.facts.get("time"))
        if not self.n_records:
            self.first_time, self.continues = time, facts.get("continues")
        self.n_records += 1
        self.last_time, self.head = time, record.hash
        self.n_requests += kind == "request"
        self.n_repairs += kind == "repair"
        if kind == "gap":
            self.n_gaps += 1
            self.n_lost += int(facts.get("n_lost", 0))
        if kind == "header":
            self.n_unended += not self.is_closed
        self.is_closed = kind == "close" or (self.is_closed and kind == "repair")


def verify(path: Path, *, wanted: str = "", progress: Progress | None = None) -> Summary:
    """Checks a whole log, and looks for a record with the hash `wanted`.

    Raises WitnessError at the first broken line.
    """
    summary = Summary(path)
    for record in read_records(path, progress):
        summary.add(record)
        summary.has_wanted = summary.has_wanted or record.hash == wanted
    return summary


def check_sequence(summaries: list[Summary]) -> None:
    """Checks that several files are parts of one log, in any order: each but the oldest continues another.

    Raises WitnessError.
    """
    heads = {summary.head for summary in summaries}
    oldest = min(summary.first_time for summary in summaries)
    for summary in summaries:
        if summary.continues and summary.continues not in heads and summary.first_time > oldest:
            raise WitnessError(
                f"{summary.path}: broken at line 1: it continues a file whose last hash is "
                f"{summary.continues}, and none of the given files ends so: one is missing or was cut",
                path=str(summary.path),
                line=1,
            )
