"""The writer of a log: any thread appends records, one thread writes them in durable batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import TypeAlias

from camelid.errors import WitnessError
from camelid.loading.identity import Identity
from camelid.version import __version__
from camelid.witness.chain import FORMAT, VERSION, Facts, Link, encode
from camelid.witness.file import LogFile
from camelid.witness.inbox import Bounds, Gap, Inbox, Item, Reopen
from camelid.witness.record import WitnessRecord

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 5.0
Report = Callable[[str], object]
Stated: TypeAlias = tuple[str, str, str]  # a model's name, and the hashes of its file and its build


class WitnessLog:
    """An open witness log. A disk that refuses to write never delays or fails a request.

    Records then wait; when the queue is full, further ones are counted in `n_dropped`, and a gap record
    states them once the disk writes again. `report` receives a line about each fault and its end, on the
    writing thread. `models` are the loaded models by the name that records use.
    """

    def __init__(
        self,
        file: LogFile,
        models: Mapping[str, Identity],
        *,
        with_content: bool,
        bounds: Bounds,
        report: Report,
    ) -> None:
        self._file, self._models = file, dict(models)
        self._with_content, self._report = with_content, report
        self._inbox = Inbox(bounds)
        self._link = file.tail.link
        self._n_requests = 0  # written to this file since its header
        self._owed: Gap | None = None  # lost records that the log must still state
        self._fault = ""
        self._begin_file(file, continues=None)
        self._thread = Thread(target=self._main, name="camelid witness", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        models: Mapping[str, Identity],
        *,
        with_content: bool = False,
        bounds: Bounds | None = None,
        report: Report = lambda line: None,
    ) -> WitnessLog:
        """Opens a log, or continues one after a check of its last record, and writes its header.

        Raises WitnessError if it cannot be written, is no log, is damaged at its end, or is in use.
        """
        file = LogFile(Path(path))
        try:
            return cls(file, models, with_content=with_content, bounds=bounds or Bounds(), report=report)
        except BaseException:
            file.close()
            raise

    @property
    def n_dropped(self) -> int:
        """The number of finished requests that are not in the log, and will not be."""
        return self._inbox.n_lost

    @property
    def fault(self) -> str:
        """The reason why nothing can be written at present; "" if nothing is wrong."""
        return self._fault

    def append(self, record: WitnessRecord, identity: Identity | None = None) -> bool:
        """Queues the record of a finished request. False if it was dropped. Any thread may call it.

        `identity` is that of the model that answered, by default that of the model's name: another model may
        have taken the name meanwhile.
        """
        found = identity or self._models.get(record.model)
        return self._inbox.put(lambda: self._request_facts(record, found), record.weight)

    def describe(self, models: Mapping[str, Identity]) -> None:
        """States that other models are loaded from now on."""
        described = self._models = dict(models)
        self._inbox.put_note(lambda: {"kind": "models", "models": self._models_facts(described)})

    def reopen(self) -> None:
        """Goes on in a new file at the log's path, after the present file was moved away.

        The new file's header states the last hash of the old one. Returns at once; a signal handler may call
        it. If the new file cannot be opened, the log goes on in the old file, and `report` gets the error.
        """
        self._inbox.put_reopen()

    def close(self, timeout_s: float = 10.0) -> int:
        """Writes the waiting records and the end; returns `n_dropped`. Records behind a fault are lost."""
        self._inbox.close()
        self._thread.join(timeout_s)
        if self._thread.is_alive():  # a disk that hangs
            self._inbox.abandon()
        return self.n_dropped

    def __enter__(self) -> WitnessLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _main(self) -> None:
        try:
            while batch := self._inbox.take():
                self._handle(batch)
            self._store([self._inbox.entry(self._end_facts)])
        except Exception as error:
            self._fault = f"{type(error).__name__}: {error}"
            self._inbox.abandon()
            self._tell(f"ended by a defect: {self._fault}")
        finally:
            self._file.close()

    def _handle(self, batch: list[Item]) -> None:
        if isinstance(batch[0], Reopen):
            self._reopen()
            return
        if self._file.is_deleted:
            self._tell("its file was deleted, with all records; a new one is begun")
            self._reopen()
        is_stored = self._store(batch)
        self._inbox.done(batch, lost=not is_stored)

    def _store(self, batch: list[Item]) -> bool:
        """Writes a batch, again and again while the disk fails. False if the log was closed meanwhile."""
        owed = [self._owed] if self._owed else []
        data, link, n_requests = self._encoded([*owed, *batch], self._link)
        pause_s = FIRST_RETRY_S
        while not self._try_append(data):
            if self._inbox.pause(pause_s) and not self._try_append(data):
                self._lose(batch, n_requests)
                return False
            pause_s = min(2 * pause_s, LAST_RETRY_S)
        self._link, self._owed = link, None
        self._n_requests += n_requests
        return True

    def _lose(self, batch: list[Item], n_requests: int) -> None:
        """Gives a batch up, and owes the log a gap in its place."""
        n_lost = n_requests + sum(item.n_lost for item in batch if isinstance(item, Gap))
        if n_lost:
            self._tell(f"closed while it cannot be written ({self._fault}): {n_lost} records are lost")
            gap = self._inbox.gap(self._fault)
            gap.n_lost = n_lost + (self._owed.n_lost if self._owed else 0)
            self._owed = gap

    def _try_append(self, data: bytes) -> bool:
        try:
            self._file.append(data)
        except OSError as error:
            self._begin_fault(error.strerror or type(error).__name__)
            return False
        if self._fault:
            self._fault = ""
            self._tell(f"written again; {self.n_dropped} records were lost since it was opened")
        return True

    def _begin_fault(self, fault: str) -> None:
        if not self._fault:
            self._tell(f"cannot be written: {fault}; requests go on, and records wait")
        self._fault = fault

    def _encoded(self, batch: list[Item], link: Link) -> tuple[bytes, Link, int]:
        """The batch as bytes from a place on, the place after it, and the number of requests in it."""
        lines, n_requests = list[bytes](), 0
        for item in batch:
            if isinstance(item, Reopen):
                continue
            try:
                line = link.write(item.stamped())
            except Exception as error:  # one odd value must not end the log
                line = link.write(self._unencodable(error))
            n_requests += line.facts["kind"] == "request"
            lines.append(encode(line))
            link = link.after(line)
        return b"".join(lines), link, n_requests

    def _unencodable(self, error: Exception) -> Facts:
        """The gap in the place of a record that JSON cannot express."""
        gap = self._inbox.gap(f"the record is not JSON: {type(error).__name__}: {error}"[:200])
        gap.n_lost = 1
        self._inbox.count_lost(1)
        self._tell(gap.reason)
        return gap.stamped()

    def _reopen(self) -> None:
        """Ends the present file and begins the one at the path; without a moved file, only states it."""
        old = self._file
        try:
            new = LogFile(old.path) if old.is_moved else None
        except (WitnessError, OSError) as error:
            self._tell(f"cannot be opened anew, so it goes on in the old file: {error}")
            return
        if new is None:
            return
        self._store([self._inbox.entry(self._end_facts)])
        try:
            self._begin_file(new, continues=self._link)
        except WitnessError as error:
            new.close()
            self._tell(f"cannot be opened anew, so it goes on in the old file: {error}")
            return
        old.close()

    def _begin_file(self, file: LogFile, continues: Link | None) -> None:
        """Writes the repair of a torn line, and the header. Raises WitnessError if the disk refuses.

        A new file continues the chain of the one before it.
        """
        tail, link, prev = file.tail, file.tail.link, None
        if continues and file.is_new:
            link, prev = continues, continues.prev
        self._stated = set[Stated]()  # models that the file has facts of
        torn = [self._inbox.entry(tail.torn.facts)] if tail.torn else []
        header = self._inbox.entry(lambda: self._header_facts(prev))
        data, after, _ = self._encoded([*torn, header], link)
        try:
            file.append((b"\n" if tail.needs_newline else b"") + data)
        except OSError as error:
            raise WitnessError(
                f"{file.path}: the witness log cannot be written: {error.strerror}; make room, or choose "
                "another disk",
                path=str(file.path),
            ) from error
        self._file, self._link, self._n_requests = file, after, 0

    def _header_facts(self, continues: str | None) -> Facts:
        return {
            "kind": "header",
            "camelid": __version__,
            "format": FORMAT,
            "version": VERSION,
            "continues": continues,
            "with_content": self._with_content,
            "models": self._models_facts(self._models),
        }

    def _end_facts(self) -> Facts:
        return {"kind": "close", "n_requests": self._n_requests, "n_dropped": self.n_dropped}

    def _models_facts(self, models: Mapping[str, Identity]) -> Facts:
        """Models as JSON values, which the file states from here on."""
        self._stated |= {_stated(name, identity) for name, identity in models.items()}
        return {name: identity.facts() for name, identity in models.items()}

    def _request_facts(self, record: WitnessRecord, identity: Identity | None) -> Facts:
        """A request as JSON values, with the facts of its model if the file does not state them.

        That is a model which was replaced while it answered, before the file was begun.
        """
        facts = record.facts(identity, with_content=self._with_content)
        if identity and _stated(record.model, identity) not in self._stated:
            facts["identity"] = identity.facts()
        return facts

    def _tell(self, line: str) -> None:
        with suppress(Exception):  # a failure to report must not end the log
            self._report(f"witness log {self._file.path}: {line}")


def _stated(name: str, identity: Identity) -> Stated:
    return name, identity.model_sha256, identity.build_sha256
