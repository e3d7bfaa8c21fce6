"""The store: items and their chain, past requests, versions, forgetting."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.feedback import BASE, exchange, item, opened, vector

from camelid.errors import LearningError, RequestError
from camelid.learning.items import checked_correction, checked_rating, same_answer
from camelid.learning.rows import Contexts, PastRequest
from camelid.learning.store import store as stores
from camelid.learning.store.forget import forget
from camelid.learning.store.place import store_path
from camelid.learning.store.store import Store
from camelid.learning.store.versions import (
    Version,
    current,
    item_hashes,
    last_refusal,
    publish,
    refuse,
    undo,
    use,
    version_of,
    versions,
)


def with_items(folder: Path, n: int) -> Store:
    store = opened(folder)
    for i in range(1, n + 1):
        store.add(item(i), vector(i))
    return store


def new_version(store: Store, name: str, items: list[int]) -> Version:
    found = item_hashes(store, items)
    return Version(adapter=name.encode() * 999, scope=b"scope", config={"name": name}, items=found)


def all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_an_item_comes_back_as_it_was_given(tmp_path: Path) -> None:
    given = item(1, -1, correction={"role": "assistant", "content": "Weiß – 白"}, source="ines")
    store = opened(tmp_path)
    id = store.add(given, vector(1, 2)).id
    store.add_contexts(id, Contexts((5, 6), vector(3)))
    store.close()
    again = opened(tmp_path)
    (found,) = again.items()
    assert (found.exchange, found.rating, found.correction, found.source) == (
        given.exchange, -1, given.correction, "ines",
    )  # fmt: skip
    assert again.vectors() == [(1, vector(1, 2))]
    assert again.contexts([1, 2]) == {1: Contexts((5, 6), vector(3))}
    again.close()


def test_the_chain_is_that_of_its_definition(tmp_path: Path) -> None:
    """Recomputed here with hashlib from the columns of the file."""
    store = with_items(tmp_path, 5)
    forget(store, 3)
    store.close()
    sql = sqlite3.connect(store.path)
    rows = list(sql.execute("SELECT seq, kind, wall, subject, commitment, hash FROM log ORDER BY seq"))
    assert [row[:2] for row in rows][2:] == [(3, "feedback"), (4, "feedback"), (5, "feedback"), (6, "forget")]
    for before, (seq, kind, wall, subject, bound, own) in pairwise([(0, "", 0, "", b"", bytes(32)), *rows]):
        text = before[-1] + struct.pack("<qd", seq, wall) + f"{kind}\n{subject}\n".encode() + bound
        assert hashlib.sha256(text).digest() == own
    bodies = {id: salt + body.encode() for id, salt, body in sql.execute("SELECT id, salt, body FROM items")}
    assert {id: hashlib.sha256(body).digest() for id, body in bodies.items()} == {
        row[0]: row[4] for row in rows if row[0] in bodies
    }
    sql.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE items SET body = replace(body, 'woolwhite2', 'woolblack2') WHERE id = 2",
        "UPDATE items SET body = replace(body, '\"rating\":1', '\"rating\":-1') WHERE id = 2",
        "UPDATE log SET wall = wall + 1 WHERE seq = 2",
        "UPDATE log SET subject = 'mallory' WHERE seq = 2",
        "DELETE FROM vectors WHERE item = 2; DELETE FROM items WHERE id = 2; DELETE FROM log WHERE seq = 2",
        "UPDATE items SET body = x'00ff' WHERE id = 2",
        "UPDATE log SET hash = 5 WHERE seq = 2",
        "INSERT INTO items SELECT 9, salt, completion, source, body FROM items WHERE id = 2",
    ],
)
def test_a_change_of_the_file_is_found(tmp_path: Path, change: str) -> None:
    store = with_items(tmp_path, 3)
    store.close()
    sql = sqlite3.connect(store.path)
    sql.executescript(change)
    sql.close()
    again = opened(tmp_path)
    with pytest.raises(LearningError, match="damaged"):
        assert again.log()
        again.items()
    again.close()


def test_spaces_and_bases_have_their_own_files(tmp_path: Path) -> None:
    places = {store_path(space, base, tmp_path) for space in ("a", "b") for base in (BASE, "cd" * 32)}
    assert len(places) == 4
    store = opened(tmp_path, "a")
    store.add(item(1), vector(1))
    other = opened(tmp_path, "b")
    assert other.items() == []
    other.close()
    store.close()
    other.path.write_bytes(store.path.read_bytes())
    with pytest.raises(LearningError, match="belongs to the space 'a', expected 'b'"):
        opened(tmp_path, "b")


@pytest.mark.parametrize("space", ["", "../a", "A", "a/b", "-a", "a" * 65])
def test_a_space_is_a_plain_name(space: str) -> None:
    with pytest.raises(RequestError, match="small letters"):
        store_path(space, BASE)


def test_the_oldest_past_requests_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_REQUESTS", 5)
    store = opened(tmp_path)
    for first in range(0, 12, 3):
        store.add_requests([PastRequest(exchange(i), vector(i)) for i in range(first, first + 3)])
    store.add_requests([PastRequest(exchange(11), vector(11))])
    assert [past.exchange for past in store.requests()] == [exchange(i) for i in range(7, 12)]
    assert store.request("cmpl-9") == exchange(9)
    assert store.request("cmpl-1") is None
    store.close()


def test_a_version_is_immutable_and_checked(tmp_path: Path) -> None:
    store = with_items(tmp_path, 3)
    version = publish(store, new_version(store, "first", [1, 2]))
    assert (version.name, current(store)) == ("v1", "v1")
    assert publish(store, new_version(store, "first", [1, 2])).name == "v1"
    assert version_of(store, version.hash[:12]) == version
    with store.connection.transaction() as sql:
        sql.execute("UPDATE versions SET adapter = CAST(adapter || 'x' AS BLOB)")
    with pytest.raises(LearningError, match="not what was published"):
        version_of(store, "v1")
    with pytest.raises(RequestError, match="known: base, v1"):
        use(store, "v2")
    store.close()


def test_undo_walks_back_and_use_goes_anywhere(tmp_path: Path) -> None:
    store = with_items(tmp_path, 3)
    for name in ("first", "second", "third"):
        publish(store, new_version(store, name, [1]))
    assert [undo(store), undo(store), undo(store), undo(store)] == ["v2", "v1", "base", "base"]
    assert [use(store, "v3"), use(store, "v1"), undo(store), undo(store)] == ["v3", "v1", "v3", "base"]
    store.close()


def test_a_refused_candidate_leaves_its_report(tmp_path: Path) -> None:
    store = with_items(tmp_path, 1)
    assert last_refusal(store) is None
    refuse(store, {"why": "no gain"})
    assert last_refusal(store) == {"why": "no gain"}
    assert [row.kind for row in store.log()] == ["feedback", "refuse"]
    store.close()


def test_a_forgotten_item_is_in_no_file(tmp_path: Path) -> None:
    """Item, vector, key, past requests and hints; every byte of every file is searched."""
    store = with_items(tmp_path, 30)
    unique = bytes(range(200, 240))
    store.add_contexts(7, Contexts((1,), unique * 20))
    talk = exchange(77, question="and llama number 7? it was said: Llama number 7 is woolwhite7.")
    store.add_requests([PastRequest(e, vector(1)) for e in (exchange(7), exchange(8), talk)])
    with store.connection.transaction() as sql:
        sql.execute("INSERT INTO trajectories VALUES(1, 'cmpl-7', '{}', x'')")
        sql.execute(
            "INSERT INTO hints(text, status, vector, origins) VALUES('paint it', 'trial', x'', '[1]')"
        )
    for name, items in (("first", [7, 8]), ("second", [8])):
        publish(store, new_version(store, name, items))
    use(store, "v1")
    assert all(text in all_bytes(tmp_path) for text in (b"woolwhite7.", unique, b"paint it", b"first" * 50))
    done = forget(store, 7)
    assert (done.stale, done.also_in, current(store)) == (("v1",), (), "v2")
    assert done.n_bytes >= store.path.stat().st_size
    for open_or_closed in ("open", "closed"):
        found = all_bytes(tmp_path)
        for text in (b"woolwhite7.", b"llama number 7?", unique, b"paint it", b"first" * 50):
            assert text not in found, (open_or_closed, text)
        assert b"woolwhite8." in found
        if open_or_closed == "open":
            store.close()
    again = opened(tmp_path)
    assert [row.kind for row in again.log()][-3:] == ["stale", "use", "forget"]
    assert [row.status for row in versions(again)] == ["stale", "published"]
    assert [past.exchange.completion_id for past in again.requests()] == ["cmpl-8"]
    with pytest.raises(RequestError, match="stale"):
        use(again, "v1")
    with pytest.raises(RequestError, match="there is no item 7"):
        forget(again, 7)
    again.close()


def test_forget_names_other_items_with_the_same_text(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for i in (1, 2, 3):
        store.add(item(i, answer="the password is llama-llama" if i < 3 else "no password"), vector(i))
    assert forget(store, 1).also_in == (2,)
    assert forget(store, 2).also_in == ()
    store.close()
    assert b"llama-llama" not in all_bytes(tmp_path)


def test_a_training_whose_item_was_forgotten_publishes_nothing(tmp_path: Path) -> None:
    store = with_items(tmp_path, 2)
    version = new_version(store, "late", [1, 2])
    forget(store, 2)
    with pytest.raises(RequestError, match="item 2 was forgotten during the training"):
        publish(store, version)
    assert (versions(store), current(store)) == ([], "base")
    store.close()


def test_a_version_that_kept_to_a_forgotten_text_is_stale(tmp_path: Path) -> None:
    """A past request with an item's text, whose answer one version keeps to and another does not."""
    store = with_items(tmp_path, 3)
    talk = exchange(77, question="and llama number 3? it was said: Llama number 3 is woolwhite3.")
    store.add_requests([PastRequest(each, vector(1)) for each in (talk, exchange(8))])
    for name, kept in (("first", ("cmpl-77", "cmpl-8")), ("second", ("cmpl-8",))):
        publish(store, replace(new_version(store, name, [1]), kept=kept))
    assert version_of(store, "v1").kept == ("cmpl-77", "cmpl-8")
    late = replace(new_version(store, "late", [1]), kept=("cmpl-77",))
    assert forget(store, 3).stale == ("v1",)
    assert [row.status for row in versions(store)] == ["stale", "published"]
    with pytest.raises(RequestError, match="request cmpl-77 was forgotten during the training"):
        publish(store, late)
    assert b"first" * 50 not in all_bytes(tmp_path)
    store.close()


def test_a_store_of_the_first_format_is_upgraded(tmp_path: Path) -> None:
    store = with_items(tmp_path, 2)
    publish(store, new_version(store, "first", [1, 2]))
    store.close()
    to_first_format(store.path)
    again = opened(tmp_path)
    assert (len(again.items()), version_of(again, "v1").kept) == (2, ())
    assert forget(again, 1).stale == ("v1",)
    again.close()


def to_first_format(path: Path) -> None:
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("DROP TABLE IF EXISTS version_requests")
        sql.execute("PRAGMA user_version=1")


def test_a_version_of_the_first_format_may_have_kept_to_any_request(tmp_path: Path) -> None:
    store = with_items(tmp_path, 3)
    publish(store, new_version(store, "first", [1]))
    store.close()
    to_first_format(store.path)
    again = opened(tmp_path)
    again.add_requests([PastRequest(exchange(3), vector(1))])
    assert forget(again, 2).stale == ()
    assert forget(again, 3).stale == ("v1",)
    again.close()


def test_a_file_of_another_program_is_not_upgraded(tmp_path: Path) -> None:
    store = with_items(tmp_path, 1)
    store.close()
    store.path.unlink()
    with closing(sqlite3.connect(store.path)) as sql:
        sql.execute("CREATE TABLE mine(x)")
        sql.commit()
    to_first_format(store.path)
    with pytest.raises(LearningError, match="a database of another program"):
        opened(tmp_path)
    with closing(sqlite3.connect(store.path)) as sql:
        assert sql.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
        assert sql.execute("PRAGMA user_version").fetchone() == (1,)


def test_requests_that_a_version_keeps_to_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_REQUESTS", 2)
    store = with_items(tmp_path, 1)
    store.add_requests([PastRequest(exchange(i), vector(1)) for i in (11, 12)])
    publish(store, replace(new_version(store, "first", [1]), kept=("cmpl-11",)))
    store.add_requests([PastRequest(exchange(i), vector(1)) for i in (13, 14, 15)])
    assert [each.exchange.completion_id for each in store.requests()] == ["cmpl-11", "cmpl-14", "cmpl-15"]
    store.close()


@pytest.mark.parametrize("rating", [0, 2, True, "1", 1.0, None])
def test_a_rating_is_plus_or_minus_one(rating: object) -> None:
    with pytest.raises(RequestError, match=r"expected \+1 or -1"):
        checked_rating(rating)


@pytest.mark.parametrize("correction", ["", "  ", 5, {}, {"role": "user"}, ["a"]])
def test_a_correction_is_an_answer(correction: object) -> None:
    with pytest.raises(RequestError, match="expected the right answer"):
        checked_correction(correction)


def test_answers_are_equal_by_text_and_calls() -> None:
    def call(id: str, arguments: str) -> dict[str, object]:
        function = {"name": "add", "arguments": arguments}
        return {"role": "assistant", "content": "", "tool_calls": [{"id": id, "function": function}]}

    assert same_answer({"content": "12 "}, {"content": "12", "role": "assistant"})
    assert not same_answer({"content": "12"}, {"content": "13"})
    assert same_answer(call("a", '{"x": 1, "y": 2}'), call("b", '{"y":2,"x":1}'))
    assert not same_answer(call("a", '{"x": 1}'), call("a", '{"x": 2}'))


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(RequestError, match="no JSON"):
        store.add(item(1, question="\ud800"), vector(1))
    with pytest.raises(RequestError, match="at most 1048576 are stored"):
        store.add(item(1, question="x" * (1 << 20)), vector(1))
    assert store.log() == []
    store.close()
