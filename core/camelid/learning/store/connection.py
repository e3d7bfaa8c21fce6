"""The open file: connection, transactions, checks at opening, checkpoints."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from camelid.errors import LearningError
from camelid.learning.store.failures import clear_errors, damaged, primary_code
from camelid.learning.store.schema import APPLICATION_ID, PRAGMAS, TABLES, UPGRADES, VERSION

MODE = 0o700
BUSY_S, LOOK_S = 5.0, 0.01  # the wait for another process that opens the store, and between two tries
FEW_COMMITS = 200  # that need no checkpoint, some MB of the write-ahead log
FACTS = ("space", "base")  # written at creation, equal ever after


class Connection:
    """One SQLite file, used by any thread of this process and by other processes.

    `facts` name the space and the base model. Raises LearningError for a file that is damaged, of another
    space or base, of a newer version, or cannot be opened.
    """

    def __init__(self, path: Path, facts: dict[str, str]) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._n_commits = 0  # since the last checkpoint
        with clear_errors(path):
            path.parent.mkdir(mode=MODE, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # closing a file in use would drop SQLite's locks on it
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
            self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open(facts)
        except BaseException:
            self._sql.close()
            raise

    def _open(self, facts: dict[str, str]) -> None:
        with clear_errors(self.path):
            for pragma in PRAGMAS:
                self._set(pragma)
            with self.transaction():
                version = self._sql.execute("PRAGMA user_version").fetchone()[0]
                if not version:
                    self._create(facts)
                self._check(facts)  # before an upgrade writes to it
                for known in range(version or VERSION, VERSION):
                    self._run(UPGRADES[known], known + 1)

    def _set(self, pragma: str) -> None:
        """Sets a pragma. SQLite has no busy handler where two processes turn to the write-ahead log at once:
        one of them fails at once and tries again.
        """
        ends = time.monotonic() + BUSY_S
        while True:
            try:
                self._sql.execute(f"PRAGMA {pragma}")
                return
            except sqlite3.OperationalError as error:
                if primary_code(error) != "SQLITE_BUSY" or time.monotonic() > ends:
                    raise
            time.sleep(LOOK_S)

    def _create(self, facts: dict[str, str]) -> None:
        if self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise damaged(self.path, "the file is a database of another program")
        self._run(TABLES, VERSION)
        self._sql.executemany("INSERT INTO facts VALUES(?, ?)", facts.items())
        self._sql.execute(f"PRAGMA application_id={APPLICATION_ID}")

    def _run(self, statements: str, version: int) -> None:
        """Changes the tables to those of a version of the format."""
        for statement in filter(str.strip, statements.split(";")):
            self._sql.execute(statement)
        self._sql.execute(f"PRAGMA user_version={version}")

    def _check(self, facts: dict[str, str]) -> None:
        version, kind = (self.value(f"PRAGMA {name}") for name in ("user_version", "application_id"))
        if kind != APPLICATION_ID:
            raise damaged(self.path, "the file is a database of another program")
        if version > VERSION:
            raise LearningError(
                f"{self.path} has version {version} of the format, expected {VERSION}; update camelid",
                path=str(self.path), reason="newer",
            )  # fmt: skip
        found = self.value("PRAGMA quick_check(1)")
        if found != "ok":
            raise damaged(self.path, str(found))
        for name in FACTS:
            self._check_fact(name, facts[name])

    def _check_fact(self, name: str, want: str) -> None:
        got = self.value("SELECT value FROM facts WHERE name=?", name)
        if got != want:
            raise LearningError(
                f"{self.path} belongs to the {name} {got!r}, expected {want!r}; move it away",
                path=str(self.path), reason="other",
            )  # fmt: skip

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """All writes inside, or none of them. The write lock is taken first, so that what is read inside is
        the latest, also beside other processes. Raises LearningError.
        """
        with self._lock, clear_errors(self.path):
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield self._sql
                self._sql.execute("COMMIT")
                self._n_commits += 1
            except BaseException:
                if self._sql.in_transaction:  # a full disk may have rolled back already
                    self._sql.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: Any) -> list[Any]:
        """All rows of a query."""
        with self._lock, clear_errors(self.path):
            return self._sql.execute(query, values).fetchall()

    def value(self, query: str, *values: Any) -> Any:
        """The first column of the first row; None without a row."""
        found = self.rows(query, *values)
        return found[0][0] if found else None

    @property
    def mark(self) -> int:
        """A number that changes when another process has written."""
        return self.value("PRAGMA data_version")

    @property
    def _wal(self) -> Path:
        return Path(f"{self.path}-wal")

    def _wal_bytes(self) -> int:
        return self._wal.stat().st_size if self._wal.exists() else 0

    def sync(self) -> None:
        """Waits until the disk has all that was committed. Holds up no other thread."""
        with clear_errors(self.path), suppress(FileNotFoundError):
            fd = os.open(self._wal, os.O_RDWR)  # SQLite has no locks on this file
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def checkpoint(self) -> None:
        """Moves a large write-ahead log into the file, as far as nobody reads it; waits for nobody."""
        if self._n_commits > FEW_COMMITS:
            self._n_commits = 0
            with clear_errors(self.path), closing(sqlite3.connect(self.path)) as own:
                own.execute("PRAGMA wal_checkpoint(PASSIVE)")  # on this connection it would hold up requests

    def image(self) -> bytes:
        """Every byte of the database, free pages included.

        The file itself is not opened: closing it would drop the locks that SQLite has on it.
        """
        with self._lock, clear_errors(self.path):
            return self._sql.serialize()

    def scrub(self) -> bool:
        """Rewrites the file without remnants of deleted rows and empties the write-ahead log.

        False if another process still reads the log, which then keeps its text. Raises LearningError.
        """
        with self._lock, clear_errors(self.path):
            if self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                return False
            self._sql.execute("VACUUM")
            is_busy = self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            return not is_busy and not self._wal_bytes()

    def close(self) -> None:
        """Closes the file; the last process to close it empties the write-ahead log."""
        with self._lock:
            self._sql.close()
