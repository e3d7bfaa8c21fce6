"""/slots: save, restore and erase, by files of one folder under checked names."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.served import Served, served

PROMPT = (
    "<|im_start|>user\nWhat is the capital of France, and who lives there?<|im_end|>\n<|im_start|>assistant\n"
)
DRAWN: dict[str, Any] = {"temperature": 1.2, "seed": 7, "ignore_eos": True, "n_predict": 30, "min_p": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with served("--backend", "cpu", "--slot-save-path", str(folder)) as running:
        yield running


def answer(server: Served, prompt: object = PROMPT, **fields: Any) -> Any:
    reply = server.post("/completion", {"prompt": prompt, "return_tokens": True, **DRAWN, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def act(server: Served, slot: int, action: str, filename: str | None = None, **headers: str) -> Any:
    body = {} if filename is None else {"filename": filename}
    reply = server.post(f"/slots/{slot}?action={action}", body, **headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(server: Served, slot: object, action: str, filename: object = None, **headers: str) -> int:
    reply = server.post(f"/slots/{slot}?action={action}", {"filename": filename}, **headers)
    assert reply.status_code >= 400, reply.text
    error = reply.json()["error"]
    assert error["code"] == reply.status_code
    assert error["message"]
    return reply.status_code


def test_a_slot_saved_erased_and_restored_continues_bit_for_bit(server: Served, folder: Path) -> None:
    first = answer(server, id_slot=1)
    assert (first["id_slot"], first["timings"]["cache_n"]) == (1, 0)
    n_tokens = first["tokens_evaluated"] + first["tokens_predicted"]
    further = [*server.post("/tokenize", {"content": PROMPT}).json()["tokens"], *first["tokens"], 20, 21]
    wanted = answer(server, further, cache_prompt=False)

    saved = act(server, 1, "save", "talk.bin")
    assert saved["n_saved"] == n_tokens - 1, "the last token drawn has no row"
    assert saved["n_written"] == (folder / "talk.bin").stat().st_size
    assert set(saved) == {"id_slot", "filename", "n_saved", "n_written", "timings"}
    assert act(server, 1, "erase")["n_erased"] == n_tokens - 1
    for slot in range(4):
        act(server, slot, "erase")
    assert answer(server, n_predict=1, id_slot=1)["timings"]["cache_n"] == 0, "erased rows are gone"
    for slot in range(4):
        act(server, slot, "erase")

    restored = act(server, 0, "restore", "talk.bin")
    assert (restored["id_slot"], restored["n_restored"]) == (0, n_tokens - 1)
    assert restored["n_read"] == saved["n_written"]
    continued = answer(server, further, id_slot=0)
    assert continued["timings"]["cache_n"] >= n_tokens - 1
    assert (continued["tokens"], continued["content"]) == (wanted["tokens"], wanted["content"])


def test_a_new_server_restores_what_another_saved(server: Served, folder: Path) -> None:
    first = answer(server, id_slot=2)
    act(server, 2, "save", "moved.bin")
    further = [*server.post("/tokenize", {"content": PROMPT}).json()["tokens"], *first["tokens"], 30]
    wanted = answer(server, further, cache_prompt=False)
    with served("--backend", "cpu", "--slot-save-path", str(folder)) as other:
        n = act(other, 3, "restore", "moved.bin")["n_restored"]
        continued = answer(other, further)
        assert continued["timings"]["cache_n"] == n
        assert continued["tokens"] == wanted["tokens"]


def test_erasing_keeps_what_other_slots_share(server: Served) -> None:
    for slot in range(4):
        act(server, slot, "erase")
    shared = [(i * 13) % 900 + 20 for i in range(64)]
    answer(server, [*shared, 1, 2], id_slot=0, n_predict=1)
    answer(server, [*shared, 3, 4], id_slot=1, n_predict=1)
    act(server, 1, "erase")
    again = answer(server, [*shared, 5, 6], id_slot=2, n_predict=1)
    assert again["timings"]["cache_n"] == 64
    for slot in range(4):
        act(server, slot, "erase")
    assert answer(server, [*shared, 5, 6], n_predict=1)["timings"]["cache_n"] == 0


def test_an_action_waits_for_the_slots_request(server: Served) -> None:
    body = {"prompt": PROMPT, "stream": True, "id_slot": 3, **DRAWN, "n_predict": 300}
    parts = server.stream("/completion", body)
    next(parts)
    reply = server.post("/slots/3?action=save", {"filename": "busy.bin"})
    *_, last = parts
    assert reply.json()["n_saved"] == last["tokens_evaluated"] + last["tokens_predicted"] - 1


def test_an_empty_slot_is_saved_and_restored(server: Served) -> None:
    act(server, 3, "erase")
    assert act(server, 3, "save", "empty.bin")["n_saved"] == 0
    assert act(server, 2, "restore", "empty.bin")["n_restored"] == 0


BAD_NAMES = [
    "../up.bin", "a/b.bin", "/etc/passwd", "a\\b", "..", ".", ".hidden", "a..b", "C:x", "a\0b", "a\nb",
    "a\x7fb", "con", "NUL.txt", "lpt1.bin", " lead", "trail ", "dot.", "a*b", "a?b", "x" * 201,
    "\u202efdp.exe", "a\u2215b", "a\uff0fb", "ä" * 150, "", 5, None, ["a"], "a<b", 'a"b', "a|b", "%2e%2e\\x",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("action", ["save", "restore"])
def test_a_name_reaches_no_other_place(server: Served, folder: Path, action: str, name: object) -> None:
    before = sorted(folder.parent.rglob("*"))
    assert refused(server, 0, action, name) == 400
    assert sorted(folder.parent.rglob("*")) == before


def test_links_pipes_and_folders_are_refused(server: Served, folder: Path, tmp_path: Path) -> None:
    answer(server, id_slot=0)
    act(server, 0, "save", "real.bin")
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    (folder / "link.bin").symlink_to(outside)
    (folder / "dangling.bin").symlink_to(tmp_path / "new")
    (folder / "inner.bin").symlink_to(folder / "real.bin")
    os.mkfifo(folder / "pipe.bin")
    (folder / "folder.bin").mkdir()
    for name in ("link.bin", "dangling.bin", "inner.bin", "pipe.bin", "folder.bin"):
        assert refused(server, 0, "save", name) == 400
        assert refused(server, 0, "restore", name) == 400
    assert outside.read_text() == "untouched"
    assert not (tmp_path / "new").exists()


def test_damaged_files_are_refused_and_change_nothing(server: Served, folder: Path) -> None:
    first = answer(server, id_slot=0)
    act(server, 0, "save", "good.bin")
    good = (folder / "good.bin").read_bytes()
    damages = {
        "short.bin": good[:-40], "none.bin": b"", "head.bin": good[:30], "text.bin": b"hello" * 100,
        "row.bin": good[:-100] + bytes([good[-100] ^ 1]) + good[-99:], "long.bin": good + b"x",
        "header.bin": good[:60] + bytes([good[60] ^ 1]) + good[61:],
        "version.bin": good[:8] + b"\x09" + good[9:],
    }  # fmt: skip
    for name, data in damages.items():
        (folder / name).write_bytes(data)
        reply = server.post("/slots/0?action=restore", {"filename": name})
        assert reply.status_code == 400, (name, reply.text)
        assert str(folder) not in reply.text, "no path leaves the server"
    assert refused(server, 0, "restore", "nothing.bin") == 404
    assert act(server, 0, "save", "again.bin")["n_saved"] == first["tokens_cached"]
    assert (folder / "again.bin").read_bytes() == good


def test_another_models_file_is_refused(server: Served, folder: Path, tmp_path: Path) -> None:
    answer(server, id_slot=0)
    act(server, 0, "save", "cria.bin")
    write_tiny_llama(tmp_path / "other.gguf", seed=3, vocab=1088)
    command = (str(tmp_path / "other.gguf"), "--backend", "cpu", "--slot-save-path", str(folder))
    with served(*command) as other:
        reply = other.post("/slots/0?action=restore", {"filename": "cria.bin"})
        assert reply.status_code == 400
        assert "cria" in reply.json()["error"]["message"]
    with served("--backend", "cpu", "--kv-type", "f16", "--slot-save-path", str(folder)) as other:
        assert refused(other, 0, "restore", "cria.bin") == 400


def test_a_full_disk_leaves_no_part_and_harms_nobody(folder: Path) -> None:
    with served("--backend", "cpu", "--slot-save-path", str(folder)) as server:
        whole = answer(server, id_slot=0)
        act(server, 0, "save", "disk.bin")
        before = {path.name: path.lstat().st_size for path in folder.iterdir()}
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        for name in ("disk.bin", "fresh.bin"):
            reply = server.post("/slots/0?action=save", {"filename": name})
            assert reply.status_code == 507
            assert reply.json()["error"]["type"] == "server_error"
            assert str(folder) not in reply.text
        assert {path.name: path.lstat().st_size for path in folder.iterdir()} == before
        assert answer(server, cache_prompt=False)["tokens"] == whole["tokens"]
        assert act(server, 1, "restore", "disk.bin")["n_restored"] > 0, "the old file is whole"


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with served("--backend", "cpu", "--slot-save-path", str(gone)) as server:
        shutil.rmtree(gone)
        assert refused(server, 0, "save", "a.bin") == 507
        assert refused(server, 0, "restore", "a.bin") == 404


def test_a_slot_belongs_to_its_key(folder: Path) -> None:
    keys = ("--api-key", "one", "--api-key", "two")
    with served("--backend", "cpu", "--slot-save-path", str(folder), *keys) as server:
        one, two = ({"authorization": f"Bearer {name}"} for name in ("one", "two"))
        body = {"prompt": PROMPT, **DRAWN, "id_slot": 1}
        assert server.post("/completion", body, **one).status_code == 200
        assert refused(server, 1, "save", "mine.bin", **two) == 403
        assert refused(server, 1, "erase", **two) == 403
        act(server, 1, "save", "mine.bin", **one)
        saved = (folder / "mine.bin").read_bytes()
        assert server.post("/completion", {**body, "id_slot": 2}, **two).status_code == 200
        assert refused(server, 2, "save", "mine.bin", **two) == 403
        assert (folder / "mine.bin").read_bytes() == saved
        assert refused(server, 0, "restore", "mine.bin", **two) == 403
        assert act(server, 0, "restore", "mine.bin", **one)["n_restored"] > 0
        assert b"one" not in (folder / "mine.bin").read_bytes()[:400]


@pytest.mark.parametrize("slot", ["4", "-1", "x", "1e9", "٣", "99999999999999999999"])
def test_a_slot_that_does_not_exist_is_named(server: Served, slot: str) -> None:
    assert refused(server, slot, "erase") == 400
    assert server.get(f"/slots/{slot}").status_code == 400


def test_an_unknown_action_is_refused(server: Served) -> None:
    assert refused(server, 0, "explode") == 400
    assert server.post("/slots/0").status_code == 400


def test_a_full_server_has_no_slot() -> None:
    with served("--backend", "cpu", "--parallel", "1") as server:
        assert server.get("/slots?fail_on_no_slot=1").status_code == 200
        parts = server.stream("/completion", {"prompt": PROMPT, "stream": True, **DRAWN, "n_predict": -1})
        next(parts)
        assert server.get("/slots?fail_on_no_slot=1").status_code == 503
        for _ in parts:
            pass
