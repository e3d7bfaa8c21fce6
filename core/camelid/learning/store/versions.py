"""Versions: immutable adapters with their scope, their data's hashes and their report; the one in use."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from camelid.errors import RequestError, shown
from camelid.learning.rows import FORM, FORMS
from camelid.learning.store.failures import damaged, whole_rows
from camelid.learning.store.log import append
from camelid.learning.store.schema import ANY_REQUEST
from camelid.learning.store.store import Store

Status = Literal["published", "stale"]
BASE = "base"  # the name of the model without a version
HASH_DIGITS = 8  # the least digits of a hash that name a version


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A trained adapter. `config` are its settings, `scope` the head that tells the requests near its
    feedback; both and the adapter are bytes that the trainer understands. `items` are (number, hash) of its
    data, `kept` the completions of the past requests whose answers it keeps to. A stale version was trained
    on something that was forgotten; its bytes are deleted.
    """

    adapter: bytes
    scope: bytes
    config: Mapping[str, Any]
    items: tuple[tuple[int, bytes], ...]
    kept: tuple[str, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: Status = "published"
    number: int = 0

    @property
    def hash(self) -> str:
        """SHA-256 of all that decides an answer, and of the data."""
        digest = hashlib.sha256()
        data = (*(bound for _, bound in self.items), *(id.encode() for id in sorted(self.kept)))
        for part in (self.adapter, self.scope, _json(self.config).encode(), *data):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    @property
    def name(self) -> str:
        """v1, v2, and so on, in the order of publication."""
        return f"v{self.number}"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version as the log lists it, without its bytes."""

    name: str
    hash: str
    status: str
    n_items: int
    n_bytes: int
    is_current: bool
    report: Mapping[str, Any]


def item_hashes(store: Store, ids: Sequence[int]) -> tuple[tuple[int, bytes], ...]:
    """(number, commitment) of items, as a version lists its data."""
    marks = ",".join("?" * len(ids))
    rows = store.connection.rows(
        f"SELECT seq, commitment FROM log WHERE kind='feedback' AND seq IN ({marks})", *ids
    )
    return tuple(rows)


def publish(store: Store, version: Version, since: int = 0) -> Version:
    """Stores a version and puts it in use, in one transaction. The same version again is put in use.

    Raises RequestError if an item or a past request of its data was forgotten while it was trained, after
    event number `since`.
    """
    own, wall = version.hash, store.wall()
    with store.connection.transaction() as sql:
        known = sql.execute("SELECT number FROM versions WHERE hash=?", (own,)).fetchone()
        _check_data(sql, version, since)
        number = (
            known[0]
            if known
            else sql.execute("SELECT coalesce(max(number), 0) + 1 FROM versions").fetchone()[0]
        )
        if not known:
            _insert(sql, version, own, number)
            append(sql, "publish", wall, f"v{number}", bytes.fromhex(own))
        _move(sql, wall, f"v{number}", version.config.get("form", ""))
    return version_of(store, f"v{number}")


def _check_data(sql: sqlite3.Connection, version: Version, since: int) -> None:
    """Raises RequestError if an item or a past request that the version learnt from was forgotten. A past
    request may also be gone for its age.
    """
    for id, _ in version.items:
        if not sql.execute("SELECT 1 FROM items WHERE id=?", (id,)).fetchone():
            raise RequestError(f"item {id} was forgotten during the training; train again", field="item")
    forgets = sql.execute("SELECT 1 FROM log WHERE kind='forget' AND seq > ?", (since,)).fetchone()
    for completion in version.kept if forgets else ():
        if not sql.execute("SELECT 1 FROM requests WHERE completion=?", (completion,)).fetchone():
            raise RequestError(
                f"the past request {completion} was forgotten during the training; train again", field="item"
            )


def _insert(sql: sqlite3.Connection, version: Version, own: str, number: int) -> None:
    row = (
        own, number, version.status, _json(version.config), version.adapter, version.scope,
        _json(version.report),
    )  # fmt: skip
    sql.execute("INSERT INTO versions VALUES(?, ?, ?, ?, ?, ?, ?)", row)
    sql.executemany("INSERT INTO version_items VALUES(?, ?, ?)", [(own, *item) for item in version.items])
    sql.executemany("INSERT INTO version_requests VALUES(?, ?)", [(own, id) for id in version.kept])


def refuse(store: Store, report: Mapping[str, Any]) -> None:
    """Stores the report of a run that published nothing: of a candidate, or of too few items for one."""
    with store.connection.transaction() as sql:
        seq = append(sql, "refuse", store.wall(), "candidate")
        sql.execute("INSERT INTO reports VALUES(?, ?)", (seq, _json(report)))


def last_refusal(store: Store) -> Mapping[str, Any] | None:
    """The report of the latest run that published nothing."""
    body = store.connection.value("SELECT body FROM reports ORDER BY seq DESC LIMIT 1")
    return json.loads(body) if body else None


def use(store: Store, name: str) -> str:
    """Puts a published version, or the base, in use; returns its name. Raises RequestError."""
    if name != BASE and version_of(store, name).status == "stale":
        raise RequestError(
            f"{name} is stale: an item or a request that it learnt from was forgotten; choose another, or "
            "train again",
            field="version",
        )
    with store.connection.transaction() as sql:
        _move(sql, store.wall(), _resolved(sql, name))
    return current(store)


def undo(store: Store) -> str:
    """Puts the version that was in use before the present one in use; returns its name."""
    now = current(store)
    uses = [row.subject for row in store.log() if row.kind == "use"]
    usable = {BASE, *(row.name for row in versions(store) if row.status == "published")}
    before = [BASE]  # as an editor's undo: what was undone is not returned to
    for name in uses:
        if len(before) > 1 and before[-2] == name:
            before.pop()
        else:
            before.append(name)
    earlier = [name for name in before[:-1] if name in usable and name != now]
    return use(store, earlier[-1] if earlier else BASE)


def current(store: Store) -> str:
    """The name of the version in use, or BASE."""
    return store.fact("current") or BASE


def replaced_items(store: Store) -> frozenset[int]:
    """The items that the version in use has learnt from, unless memory acts before it (`orders.py`)."""
    found = store.connection.rows(
        "SELECT hash, config FROM versions "
        "WHERE 'v' || number = (SELECT value FROM facts WHERE name='current')"
    )
    config: Mapping[str, Any] = json.loads(found[0][1]) if found else {}
    if not found or (config.get("form"), config.get("order")) == ("turns", "first"):
        return frozenset()
    rows = store.connection.rows("SELECT item FROM version_items WHERE version = ?", found[0][0])
    return frozenset(item for (item,) in rows)


def _move(sql: sqlite3.Connection, wall: float, name: str, form: str = "") -> None:
    """Makes a version current, with an event unless it is. The form of memory becomes the given one, else the
    form when the version was last in use.
    """
    before = _fact(sql, "current") or BASE
    if before != name:
        now = _fact(sql, FORM) or FORMS[0]
        _set_fact(sql, f"{FORM} {before}", now)
        _set_fact(sql, FORM, form or _fact(sql, f"{FORM} {name}") or now)
        _set_fact(sql, "current", name)
        append(sql, "use", wall, name)


def _fact(sql: sqlite3.Connection, name: str) -> str:
    found = sql.execute("SELECT value FROM facts WHERE name=?", (name,)).fetchone()
    return found[0] if found else ""


def _set_fact(sql: sqlite3.Connection, name: str, value: str) -> None:
    sql.execute("INSERT OR REPLACE INTO facts VALUES(?, ?)", (name, value))


def mark_stale(
    sql: sqlite3.Connection, wall: float, item: int, completions: Sequence[str] = ()
) -> tuple[str, ...]:
    """Marks the versions that learnt from an item or from past requests as stale, deletes their bytes, and
    leaves a stale version in use for the latest that is not; returns their names.
    """
    gone = [*completions, ANY_REQUEST] if completions else []
    marks = ",".join("?" * len(gone))
    rows = sql.execute(
        "SELECT hash, number FROM versions WHERE status != 'stale' AND (hash IN "
        "(SELECT version FROM version_items WHERE item = ?) OR hash IN "
        f"(SELECT version FROM version_requests WHERE completion IN ({marks}))) ORDER BY number",
        (item, *gone),
    ).fetchall()
    for own, number in rows:
        sql.execute(
            "UPDATE versions SET status='stale', adapter=x'', scope=x'', config='{}' WHERE hash=?", (own,)
        )
        append(sql, "stale", wall, f"v{number}", bytes.fromhex(own))
    names = tuple(f"v{number}" for _, number in rows)
    if _fact(sql, "current") in names:
        left = sql.execute("SELECT max(number) FROM versions WHERE status='published'").fetchone()[0]
        _move(sql, wall, f"v{left}" if left else BASE)
    return names


def versions(store: Store) -> list[VersionRow]:
    """All versions in the order of publication."""
    now = current(store)
    rows = store.connection.rows(
        "SELECT v.number, v.hash, v.status, (SELECT count(*) FROM version_items WHERE version = v.hash), "
        "length(v.adapter) + length(v.scope), v.report FROM versions v ORDER BY v.number"
    )
    with whole_rows(store.path):
        return [
            VersionRow(f"v{number}", own, status, n_items, n_bytes, now == f"v{number}", json.loads(report))
            for number, own, status, n_items, n_bytes, report in rows
        ]


def version_of(store: Store, name: str) -> Version:
    """A version by its name or the first digits of its hash, its bytes checked against the hash.

    Raises RequestError for an unknown name, LearningError for other bytes than were published.
    """
    with store.connection.transaction() as sql:
        found = _resolved(sql, name)
        row = sql.execute(
            "SELECT hash, number, status, config, adapter, scope, report FROM versions WHERE number=?",
            (int(found[1:]),),
        ).fetchone()
        query = "SELECT item, commitment FROM version_items WHERE version=? ORDER BY item"
        items = tuple(sql.execute(query, (row[0],)).fetchall())
        query = "SELECT completion FROM version_requests WHERE version=? ORDER BY completion"
        kept = tuple(id for (id,) in sql.execute(query, (row[0],)) if id != ANY_REQUEST)
    with whole_rows(store.path):
        version = _read(row, items, kept)
        is_whole = version.status == "stale" or version.hash == row[0]
    if not is_whole:
        raise damaged(store.path, f"version {version.name} is not what was published")
    return version


def _read(row: tuple[Any, ...], items: tuple[tuple[int, bytes], ...], kept: tuple[str, ...]) -> Version:
    """The version of a row, unchecked."""
    _, number, status, config, adapter, scope, report = row
    return Version(
        adapter=adapter, scope=scope, config=json.loads(config), items=items, kept=kept,
        report=json.loads(report), status=status, number=number,
    )  # fmt: skip


def _resolved(sql: sqlite3.Connection, name: str) -> str:
    """v and the number of a version that a name or the beginning of a hash names; BASE for the base."""
    if name == BASE:
        return BASE
    rows: list[tuple[str, int]] = sql.execute("SELECT hash, number FROM versions ORDER BY number").fetchall()
    is_hash = len(name) >= HASH_DIGITS
    found = [f"v{n}" for own, n in rows if name == f"v{n}" or (is_hash and own.startswith(name))]
    if len(found) == 1:
        return found[0]
    known = ", ".join([BASE, *(f"v{number}" for _, number in rows)])
    raise RequestError(f"there is no version {shown(name)}; known: {known}", field="version")


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
