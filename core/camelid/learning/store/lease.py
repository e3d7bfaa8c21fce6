"""The right to train a store: one process at a time, given back by its end, however it comes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from camelid.learning.store.failures import clear_errors, primary_code


class Lease:
    """`with Lease(path) as has_lease:`; False while another process trains.

    SQLite's own lock on a file beside the store works on every system and ends with its process.
    """

    def __init__(self, store: Path) -> None:
        self._path = store.with_name("training.lock")
        self._sql: sqlite3.Connection | None = None

    def __enter__(self) -> bool:
        with clear_errors(self._path):
            sql = sqlite3.connect(self._path, isolation_level=None, timeout=0, check_same_thread=False)
            try:
                sql.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                sql.close()
                if primary_code(error) != "SQLITE_BUSY":
                    raise
                return False
        self._sql = sql
        return True

    def __exit__(self, *_: object) -> None:
        if self._sql:
            self._sql.close()
            self._sql = None
