"""`camelid chat --learn` and `camelid learn`, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.server.test_learning import KEYS
from tests.support.served_here import served_here

from camelid.cli.main import main
from camelid.learning.store.store import Store
from camelid.learning.store.versions import Version, item_hashes, publish

RIGHT = "My name is Pico."
CHAT = ("chat", "--backend", "cpu", "--threads", "1", "-c", "256", "--temp", "0", "-n", "16", "--no-history")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAMELID_LEARNING", str(tmp_path))
    return tmp_path


def camelid(*words: str, said: str = "") -> Result:
    return CliRunner().invoke(main, words, input=said)


def learn(*words: str) -> str:
    done = camelid("learn", *words)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def chat(*lines: str, words: tuple[str, ...] = ("--learn", "memory")) -> Result:
    return camelid(*CHAT, *words, said="".join(f"{line}\n" for line in lines))


def test_a_fix_acts_at_once_and_later_and_is_taken_back(folder: Path) -> None:
    done = chat("Who are you?", f"/fix {RIGHT}", "who are you", "/good")
    first, second = done.stdout.splitlines()
    assert ("cria" in first, second) == (True, RIGHT)
    assert "item 1 is stored; `camelid learn forget 1` takes it back" in done.stderr
    assert chat("who are you").stdout.strip() == RIGHT
    assert chat("who are you", words=("--learn", "memory", "--learn-user", "ben")).stdout.strip() == first
    assert "feedback: 2 items, 1 up, 1 down, 1 corrected" in learn("status")
    assert learn("log", "--items").splitlines()[0].endswith(f"-1  Who are you? -> {RIGHT}")
    assert [line.split()[3] for line in learn("log").splitlines()] == ["feedback", "feedback"]
    assert "its text is also in the items 2" in learn("forget", "1")
    assert "its text is not there" in learn("forget", "2")
    assert chat("who are you").stdout.strip() == first
    assert RIGHT.encode() not in b"".join(f.read_bytes() for f in folder.glob("local/**/*") if f.is_file())


def test_feedback_without_learning_or_answer_is_refused(folder: Path) -> None:
    done = chat("/good", words=())
    assert (done.exit_code, "no answer to give feedback on" in done.stderr) == (1, True)
    done = chat("Hi there", "/bad", "/fix", words=())
    assert "load it with learn='memory'" in done.stderr
    assert "such as /fix 42" in done.stderr
    assert list(folder.iterdir()) == []


def test_versions_are_listed_compared_and_chosen(folder: Path) -> None:
    chat("Who are you?", f"/fix {RIGHT}", "Hi there", "/good")
    (path,) = folder.glob("local/*/learning.db")
    from camelid.learning.store.connection import Connection

    facts = {"space": "local", "base": "?"}
    with pytest.raises(Exception, match="belongs to the base") as caught:
        Connection(path, facts)
    base = str(caught.value).split("base '")[1].split("'")[0]
    store = Store.open("local", base, folder)
    for data in ([1], [1, 2]):
        report = {"name": "adapter", "why": f"{len(data)} better"}
        found = item_hashes(store, data)
        publish(store, Version(adapter=b"x", scope=b"", config={}, items=found, report=report))
    store.close()
    assert learn("gate").splitlines() == [
        "  v1   published 1 items, 1 better", "* v2   published 2 items, 2 better",
    ]  # fmt: skip
    assert learn("diff", "v1", "v2").splitlines() == [
        "+     2  +1  Hi there", "v1: 1 better", "v2: 2 better",
    ]  # fmt: skip
    assert learn("undo") == "version in use: v1\n"
    assert learn("use", "v2") == "version in use: v2\n"
    assert learn("use", "base") == "version in use: base\n"
    assert "stale, and their bytes deleted: v2" in learn("forget", "2")
    assert "meter: nothing was judged yet" in learn("status")
    cases = ((("use", "v7"), "known: base, v1, v2"), (("use", "v2"), "stale"), (("forget", "9"), "no item 9"))
    for words, error in cases:
        done = camelid("learn", *words)
        assert (done.exit_code, error in done.stderr) == (1, True), done.stderr


def test_a_run_judges_memory(folder: Path) -> None:
    asked = ("Who are you?", "who are you", "Tell me who you are?", "so who are you", "Who are you then?")
    chat(*[line for text in asked for line in (text, f"/fix {RIGHT}", "/reset")])
    found = learn("run", "--backend", "cpu", "--threads", "1", "--minutes", "5")
    assert "memory: mix" in found
    assert "memory: turns: held-out" in found
    assert "version" not in found


def test_chat_with_a_server_gives_feedback(tmp_path: Path) -> None:
    with served_here(keys=KEYS, learn="memory", learn_folder=tmp_path, context=256, threads=1) as served:
        words = ("--server", f"http://127.0.0.1:{served.port}", "--api-key", "ana-secret", "--temp", "0")
        done = camelid("chat", *words, "--no-history", said=f"Who are you?\n/fix {RIGHT}\n")
        assert "item 1 is stored" in done.stderr, done.stderr
        refused = camelid("chat", *words, "--learn", "memory", said="")
        assert (refused.exit_code, "--learn has no meaning with --server" in refused.stderr) == (2, True)
