"""Slot files of several keys, the bounds of their folder, and actions that wait for a slot."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.support.served_here import ServedHere, served_here, until

from camelid.server.faces import slots as slots_face
from camelid.server.http.keys import KeyRing, plain_keys
from camelid.server.service import slot_files
from camelid.server.service.slots import SlotSettings

RUN: dict[str, Any] = {"prompt": "Once upon a time there was a llama", "n_predict": 4, "ignore_eos": True}


@dataclass
class Client:
    """A client with a key."""

    http: httpx.Client
    key: str

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.http.post(path, json=body, headers={"authorization": f"Bearer {self.key}"})

    def run(self, slot: int, **fields: Any) -> None:
        reply = self.post("/completion", {**RUN, "id_slot": slot, **fields})
        assert reply.status_code == 200, reply.text
        assert reply.json()["id_slot"] == slot

    def act(self, slot: int, action: str, name: str = "a.bin") -> httpx.Response:
        return self.post(f"/slots/{slot}?action={action}", {"filename": name})

    def does(self, slot: int, action: str, name: str = "a.bin") -> Any:
        """The body of an action that succeeds."""
        reply = self.act(slot, action, name)
        assert reply.status_code == 200, reply.text
        return reply.json()


@contextmanager
def running(served: ServedHere, client: Client, slot: int) -> Iterator[None]:
    """A slow request of a client holds a slot, and ends with the block."""
    body = {**RUN, "id_slot": slot, "n_predict": -1, "stream": True}
    hooks, headers = served.engine.hooks, {"authorization": f"Bearer {client.key}"}
    hooks.append(lambda _: time.sleep(0.02))
    try:
        with client.http.stream("POST", "/completion", json=body, headers=headers) as reply:
            lines = reply.iter_lines()  # its end would close the reply
            assert next(lines)
            yield
    finally:
        hooks.pop()


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(keys=KeyRing(plain_keys(["one", "two"])), parallel=2) as running:
        yield running


@pytest.fixture
def folder(served: ServedHere, tmp_path: Path) -> Path:
    served.wait_idle()
    served.server.slots = SlotSettings(save_path=tmp_path)
    return tmp_path


@pytest.fixture
def one(served: ServedHere, folder: Path) -> Client:
    """The client whose tokens slot 0 holds."""
    client = Client(served.http, "one")
    client.run(0)
    return client


@pytest.fixture
def two(served: ServedHere, folder: Path) -> Client:
    """The client whose tokens slot 1 holds."""
    client = Client(served.http, "two")
    client.run(1)
    return client


def test_a_file_belongs_to_its_key(one: Client, two: Client, folder: Path) -> None:
    one.does(0, "save")
    saved = (folder / "a.bin").read_bytes()
    assert two.act(1, "save").status_code == 403
    assert two.act(1, "restore").status_code == 403
    assert (folder / "a.bin").read_bytes() == saved
    assert [path.name for path in folder.iterdir()] == ["a.bin"], "no partial file remains"
    assert one.does(0, "restore")["n_restored"] > 0
    one.does(0, "save")
    assert two.does(1, "save", "b.bin")["n_saved"] > 0


def test_a_file_of_no_known_key_is_not_replaced(one: Client, folder: Path) -> None:
    (folder / "a.bin").write_text("not a slot file")
    assert one.act(0, "save").status_code == 403
    assert (folder / "a.bin").read_text() == "not a slot file"


def test_of_two_keys_that_save_one_new_name_the_first_wins(one: Client, two: Client, folder: Path) -> None:
    """Whatever the order of their writes, one of them is refused, and the file is the other's."""
    with ThreadPoolExecutor(2) as pool:
        for i in range(8):
            name = f"{i}.bin"
            first = pool.submit(one.act, 0, "save", name)
            replies = [two.act(1, "save", name), first.result()]
            assert sorted(reply.status_code for reply in replies) == [200, 403]
            assert one.act(0, "restore", name).status_code == replies[1].status_code
    assert len(list(folder.iterdir())) == 8


def test_an_empty_slot_is_saved_and_restored_by_its_key(one: Client, two: Client) -> None:
    one.does(0, "erase")
    assert one.does(0, "save")["n_saved"] == 0
    assert one.does(0, "restore")["n_restored"] == 0
    assert two.act(0, "restore").status_code == 403


def test_tokens_of_a_salt_are_not_saved(one: Client, folder: Path) -> None:
    """No restore would find their rows."""
    one.run(0, cache_salt="mine")
    reply = one.act(0, "save")
    assert (reply.status_code, "cache_salt" in reply.text) == (400, True)
    assert not list(folder.iterdir())
    assert one.does(0, "erase")["n_erased"] > 0


@pytest.mark.parametrize("action", ["save", "erase"])
def test_the_owner_is_known_after_the_wait(
    served: ServedHere, one: Client, two: Client, folder: Path, action: str
) -> None:
    """The slot is the client's own when it asks, and another key's once it is idle."""
    with ThreadPoolExecutor(1) as pool:
        with running(served, two, 0):
            assert served.service.slots[0].token_ids, "the tokens of `one`, until the request ends"
            acting = pool.submit(one.act, 0, action)
            until(served.service.slots.changing.locked)
        reply = acting.result()
    assert (reply.status_code, reply.json()["error"]["message"]) == (403, "slot 0 holds another key's tokens")
    assert served.service.slots[0].token_ids
    assert not list(folder.iterdir())


def test_the_wait_for_a_slot_ends(served: ServedHere, one: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_face, "WAIT_S", 0.2)
    with running(served, one, 0):
        reply = one.act(0, "save")
        assert (reply.status_code, reply.json()["error"]["type"]) == (503, "unavailable_error")
        assert int(reply.headers["retry-after"]) >= 1
    monkeypatch.undo()
    assert one.does(0, "save")["n_saved"] > 0


def test_actions_of_a_model_run_one_after_another(
    served: ServedHere, one: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the rows of a slot in memory."""
    engine, sizes, n_open = served.engine, list[int](), 0
    export_rows = engine.export_rows

    async def counted(*arguments: Any) -> Any:
        nonlocal n_open
        n_open += 1
        sizes.append(n_open)
        await asyncio.sleep(0.05)
        found = await export_rows(*arguments)
        n_open -= 1
        return found

    monkeypatch.setattr(engine, "export_rows", counted)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda i: one.act(0, "save", f"{i}.bin"), range(4)))
    assert [reply.status_code for reply in replies] == [200] * 4
    assert sizes == [1] * 4


def test_a_folder_keeps_so_many_files(one: Client, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_files, "MAX_FILES", 2)
    one.does(0, "save", "a.bin")
    one.does(0, "save", "b.bin")
    reply = one.act(0, "save", "c.bin")
    assert (reply.status_code, reply.json()["error"]["type"]) == (507, "server_error")
    assert "delete" in reply.json()["error"]["message"]
    one.does(0, "save", "b.bin")
    (folder / "a.bin").unlink()
    one.does(0, "save", "c.bin")


def test_the_files_leave_half_of_the_disk_free(
    one: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_bytes = one.does(0, "save", "a.bin")["n_written"]

    def disk_usage(_: Path) -> Any:
        """A disk that almost holds six such files."""
        return SimpleNamespace(free=6 * n_bytes - 100 - sum(path.stat().st_size for path in folder.iterdir()))

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    one.does(0, "save", "b.bin")
    reply = one.act(0, "save", "c.bin")
    assert (reply.status_code, reply.json()["error"]["type"]) == (507, "server_error")
    assert "delete" in reply.json()["error"]["message"]
    assert sorted(path.name for path in folder.iterdir()) == ["a.bin", "b.bin"]
    one.does(0, "save", "b.bin")
    (folder / "a.bin").unlink()
    one.does(0, "save", "c.bin")
