"""The log of a store: one row for every event, each with the hash of the row before it."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from dataclasses import dataclass

from camelid.learning.store.connection import Connection
from camelid.learning.store.failures import damaged

FIRST = bytes(32)
KINDS = ("feedback", "forget", "publish", "refuse", "use", "stale")


@dataclass(frozen=True, slots=True)
class LogRow:
    """An event. `subject` is an item's or version's name; `commitment` binds the contents, which may be gone.

    `seq` counts up whatever the clock does; `wall` is the clock's time in seconds of the epoch.
    """

    seq: int
    kind: str
    wall: float
    subject: str
    commitment: bytes
    hash: bytes


def link(previous: bytes, seq: int, kind: str, wall: float, subject: str, commitment: bytes) -> bytes:
    """The hash of a row in the chain."""
    head = struct.pack("<qd", seq, wall)
    return hashlib.sha256(previous + head + f"{kind}\n{subject}\n".encode() + commitment).digest()


def append(sql: sqlite3.Connection, kind: str, wall: float, subject: str, commitment: bytes = b"") -> int:
    """Adds an event inside a transaction; returns its number."""
    last = sql.execute("SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1").fetchone()
    seq, previous = (last[0] + 1, last[1]) if last else (1, FIRST)
    own = link(previous, seq, kind, wall, subject, commitment)
    sql.execute("INSERT INTO log VALUES(?, ?, ?, ?, ?, ?)", (seq, kind, wall, subject, commitment, own))
    return seq


def read_log(connection: Connection) -> list[LogRow]:
    """All events, their chain checked. Raises LearningError for a row that was changed, added or removed."""
    rows = [LogRow(*row) for row in connection.rows("SELECT * FROM log ORDER BY seq")]
    previous = FIRST
    for number, row in enumerate(rows, start=1):
        want = link(previous, row.seq, row.kind, row.wall, row.subject, row.commitment)
        if row.seq != number or row.hash != want:
            raise damaged(connection.path, f"event {number} breaks the hash chain")
        previous = row.hash
    return rows
