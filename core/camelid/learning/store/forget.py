"""Forgetting: an item's rows, all that was derived from them, and the proof that no file has its text."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from camelid.errors import LearningError
from camelid.learning.items import Item, text_of
from camelid.learning.rows import MEMORY_SCOPE
from camelid.learning.store.log import append
from camelid.learning.store.store import LEARNT, PENDING, Store
from camelid.learning.store.versions import mark_stale

LEAST_CHARS = 8  # shorter texts, such as "42", are in other texts by chance


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The outcome: the versions that are stale now, and the number of bytes searched for the item's texts.

    `also_in` are items that contain one of these texts too: they stay, nothing is searched for then, and
    forgetting them as well ends the text.
    """

    item: int
    stale: tuple[str, ...]
    n_bytes: int
    also_in: tuple[int, ...]


def forget(store: Store, id: int) -> Forgotten:
    """Deletes an item, and past requests, trajectories and hints with its texts; marks versions stale.

    Raises RequestError for an unknown item; LearningError if another process still reads the old bytes (the
    item is deleted then, and the next opening removes the bytes).
    """
    item = store.item(id)
    needles = texts_to_forget(item)
    with store.connection.transaction() as sql:
        for table in ("vectors", "contexts"):
            sql.execute(f"DELETE FROM {table} WHERE item=?", (id,))
        sql.execute("DELETE FROM items WHERE id=?", (id,))
        gone = _delete_traces(sql, item, needles)
        sql.execute("DELETE FROM facts WHERE name=?", (MEMORY_SCOPE,))
        stale = mark_stale(sql, store.wall(), id, gone)
        append(sql, "forget", store.wall(), str(id))
        if stale:  # the next run in the background trains anew
            sql.execute("DELETE FROM facts WHERE name=?", (LEARNT,))
        sql.execute("INSERT OR REPLACE INTO facts VALUES(?, '1')", (PENDING,))
    if not store.scrub():
        raise LearningError(
            f"{store.path}: item {id} is deleted, but another process still reads the old bytes; end it, and "
            "the next opening of the store removes them",
            path=str(store.path), reason="busy",
        )  # fmt: skip
    also_in = _others_with(store, needles)
    n_bytes = 0 if also_in else _prove_gone(store, needles)
    return Forgotten(id, stale, n_bytes, also_in)


def texts_to_forget(item: Item) -> tuple[str, ...]:
    """The texts that no file may have: question, answer and correction, with their tool calls' arguments."""
    answers = [answer for answer in (item.exchange.answer, item.correction) if answer]
    texts = [item.exchange.question, *map(text_of, answers)]
    for answer in answers:
        texts += [
            str(call.get("function", {}).get("arguments", "")) for call in answer.get("tool_calls") or ()
        ]
    return tuple(dict.fromkeys(text for text in texts if len(text) >= LEAST_CHARS))


def _delete_traces(sql: sqlite3.Connection, item: Item, needles: Sequence[str]) -> list[str]:
    """Deletes past requests, trajectories and hints of the same completion, or with one of the texts; returns
    the completions of the deleted requests.
    """
    completion = item.exchange.completion_id
    requests = {
        id for (id,) in sql.execute("SELECT completion FROM requests WHERE completion=?", (completion,))
    }
    gone = [id for (id,) in sql.execute("SELECT id FROM trajectories WHERE completion=?", (completion,))]
    for text in {*needles, *map(_escaped, needles)}:
        sql.execute("DELETE FROM hints WHERE instr(text, ?)", (text,))
        sql.execute("DELETE FROM policies WHERE instr(context, ?1) OR instr(arm, ?1)", (text,))
    for needle in map(_escaped, needles):
        requests |= {
            id for (id,) in sql.execute("SELECT completion FROM requests WHERE instr(body, ?)", (needle,))
        }
        found = sql.execute("SELECT id FROM trajectories WHERE instr(body, ?)", (needle,))
        gone += [id for (id,) in found]
    sql.executemany("DELETE FROM requests WHERE completion=?", [(id,) for id in requests])
    sql.executemany("DELETE FROM trajectories WHERE id=?", [(id,) for id in gone])
    for id, origins in list(sql.execute("SELECT id, origins FROM hints")):
        if set(json.loads(origins)) & set(gone):
            sql.execute("DELETE FROM hints WHERE id=?", (id,))
    return sorted(requests)


def _escaped(text: str) -> str:
    """A text as it stands within JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _others_with(store: Store, needles: Iterable[str]) -> tuple[int, ...]:
    """The items that contain one of the texts."""
    query = "SELECT id FROM items WHERE instr(body, ?)"
    found = [row for needle in needles for row in store.connection.rows(query, _escaped(needle))]
    return tuple(sorted({id for (id,) in found}))


def _prove_gone(store: Store, needles: Iterable[str]) -> int:
    """Searches every byte of the database for the texts; returns the number of bytes.

    The write-ahead log is empty then, and SQLite's index of it has no text. Raises LearningError for a find.
    """
    image = store.connection.image()
    wanted = {form.encode() for needle in needles for form in (needle, _escaped(needle))}
    if any(needle in image for needle in wanted):
        raise LearningError(
            f"{store.path} still has text of the forgotten item; end all that use the file and forget again",
            path=str(store.path), reason="failed",
        )  # fmt: skip
    return len(image)
