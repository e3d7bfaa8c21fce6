"""The store of one user space and one base model."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from camelid.errors import RequestError, shown
from camelid.learning.items import (
    Exchange,
    Item,
    checked_json,
    commitment,
    exchange_body,
    item_body,
    read_exchange,
    read_item,
)
from camelid.learning.rows import Contexts, PastRequest
from camelid.learning.store.connection import Connection
from camelid.learning.store.failures import damaged, whole_rows
from camelid.learning.store.log import LogRow, append, read_log
from camelid.learning.store.place import store_path

SALT_BYTES = 16
MOST_ID = (1 << 63) - 1  # of SQLite's integers
MOST_REQUESTS = 2000  # past requests; beyond them the oldest go
LEARNT = "learnt"  # fact: the newest item that the last run knew
PENDING = "scrub"  # fact: text was deleted, and its bytes may still be in a file


class Store:
    """Feedback and what was made of it, in one SQLite file. Every method raises LearningError.

    A method that returns has committed: neither a kill nor a loss of power takes its change back.
    """

    def __init__(self, connection: Connection, wall: Callable[[], float] = time.time) -> None:
        self.connection = connection
        self.wall = wall

    @classmethod
    def open(cls, space: str, base: str, folder: Path | None = None) -> Store:
        """Opens or creates the store; ends an interrupted `forget`."""
        connection = Connection(store_path(space, base, folder), {"space": space, "base": base})
        store = cls(connection)
        try:
            if connection.value("SELECT value FROM facts WHERE name=?", PENDING):
                store.scrub()
        except BaseException:
            connection.close()
            raise
        return store

    @property
    def path(self) -> Path:
        """The file."""
        return self.connection.path

    def add(self, item: Item, vector: bytes) -> Item:
        """Stores feedback with the vector of its prompt (float32 bytes); returns it with its number."""
        body, salt, wall = item_body(item), secrets.token_bytes(SALT_BYTES), self.wall()
        with self.connection.transaction() as sql:
            id = append(sql, "feedback", wall, item.source, commitment(salt, body))
            row = (id, salt, item.exchange.completion_id, item.source, body)
            sql.execute("INSERT INTO items VALUES(?, ?, ?, ?, ?)", row)
            sql.execute("INSERT INTO vectors VALUES(?, ?)", (id, vector))
        return item.stored(id, wall)

    def items(self, after: int = 0, last: int = MOST_ID) -> list[Item]:
        """The items numbered above `after`, up to `last`, in order, each checked against the log."""
        rows = self.connection.rows(
            "SELECT i.id, i.salt, i.body, l.wall, l.commitment FROM items i LEFT JOIN log l ON l.seq = i.id "
            "WHERE i.id > ? AND i.id <= ? ORDER BY i.id", after, last,
        )  # fmt: skip
        with whole_rows(self.path):
            return [self._item(*row) for row in rows]

    def _item(self, id: int, salt: bytes, body: str, wall: float, bound: bytes) -> Item:
        if bound != commitment(salt, body):
            raise damaged(self.path, f"item {id} is not what the log says")
        return read_item(id, wall, body)

    def item(self, id: int) -> Item:
        """One item. Raises RequestError for a number that no item has."""
        found = self.items(id - 1, id) if type(id) is int else []
        if not found:
            raise RequestError(
                f"there is no item {shown(id)}: it was forgotten, or never given; `log` lists the items",
                field="item",
            )
        return found[0]

    def vectors(self, after: int = 0) -> list[tuple[int, bytes]]:
        """(item, vector) of the items numbered above `after`, in order."""
        return self.connection.rows("SELECT item, data FROM vectors WHERE item > ? ORDER BY item", after)

    def add_contexts(self, id: int, found: Contexts) -> None:
        """Stores the keys of an item's answer; of an item that was forgotten meanwhile, nothing."""
        with self.connection.transaction() as sql:
            if sql.execute("SELECT 1 FROM items WHERE id=?", (id,)).fetchone():
                tokens = json.dumps(found.tokens).encode()
                sql.execute("INSERT OR REPLACE INTO contexts VALUES(?, ?, ?)", (id, tokens, found.keys))

    def contexts(self, ids: Iterable[int]) -> dict[int, Contexts]:
        """The keys of those of these items that have some."""
        query = "SELECT item, tokens, keys FROM contexts WHERE item=?"
        rows = [row for id in ids for row in self.connection.rows(query, id)]
        with whole_rows(self.path):
            return {id: Contexts(tuple(json.loads(tokens)), bytes(keys)) for id, tokens, keys in rows}

    def add_requests(self, past: Iterable[PastRequest]) -> None:
        """Stores requests. The oldest beyond MOST_REQUESTS go, but those that a version keeps to: where
        one of these has a text that is forgotten, the version is stale.
        """
        wall = self.wall()
        rows = [
            (p.exchange.completion_id, wall, checked_json(exchange_body(p.exchange)), p.vector) for p in past
        ]
        add = "INSERT OR IGNORE INTO requests(completion, wall, body, vector) VALUES(?, ?, ?, ?)"
        with self.connection.transaction() as sql:
            sql.executemany(add, rows)
            sql.execute(
                "DELETE FROM requests WHERE id <= (SELECT max(id) FROM requests) - ? AND completion NOT IN "
                "(SELECT r.completion FROM version_requests r JOIN versions v ON v.hash = r.version "
                "WHERE v.status != 'stale')", (MOST_REQUESTS,),
            )  # fmt: skip

    def requests(self) -> list[PastRequest]:
        """The stored requests, the oldest first."""
        rows = self.connection.rows("SELECT body, vector FROM requests ORDER BY id")
        with whole_rows(self.path):
            return [PastRequest(read_exchange(json.loads(body)), bytes(vector)) for body, vector in rows]

    def request(self, completion_id: str) -> Exchange | None:
        """A stored request by the id of its completion."""
        body = self.connection.value("SELECT body FROM requests WHERE completion=?", completion_id)
        with whole_rows(self.path):
            return read_exchange(json.loads(body)) if body else None

    def n_requests(self) -> int:
        """The number of stored requests."""
        return self.connection.value("SELECT count(*) FROM requests")

    def news(self, after: int) -> list[tuple[int, str, str]]:
        """(number, kind, subject) of the events after one, unchecked."""
        return self.connection.rows("SELECT seq, kind, subject FROM log WHERE seq > ? ORDER BY seq", after)

    def last_event(self) -> int:
        """The number of the latest event; 0 without one."""
        return self.connection.value("SELECT max(seq) FROM log") or 0

    def log(self) -> list[LogRow]:
        """All events, the chain checked."""
        with whole_rows(self.path):
            return read_log(self.connection)

    def fact(self, name: str) -> str | None:
        """A setting of the store."""
        return self.connection.value("SELECT value FROM facts WHERE name=?", name)

    def set_fact(self, name: str, value: str) -> None:
        """Changes a setting of the store."""
        with self.connection.transaction() as sql:
            sql.execute("INSERT OR REPLACE INTO facts VALUES(?, ?)", (name, value))

    def scrub(self) -> bool:
        """Removes the bytes of deleted text from all files; False if another process still reads them."""
        if not self.connection.scrub():
            return False
        with self.connection.transaction() as sql:
            sql.execute("DELETE FROM facts WHERE name=?", (PENDING,))
        return True

    def n_bytes(self) -> int:
        """Bytes of the store's files."""
        return sum(file.stat().st_size for file in self.files())

    def files(self) -> Sequence[Path]:
        """The store's files: the database and SQLite's own beside it."""
        return sorted(self.path.parent.glob(f"{self.path.name}*"))

    def close(self) -> None:
        """Closes the file."""
        self.connection.close()
