"""`camelid pull` and hub ids on the command line: processes against a hub on loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import every, share_of
from tests.support.hub_server import Hub, serve_hub

import camelid

CORE = Path(__file__).parents[2] / "core"
CRIA = Path(camelid.__file__).parent / "data" / "cria.gguf"
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub() as served:
        served.add("o/cria", {"cria-Q8_0.gguf": CRIA.read_bytes(), "README.md": b"x"})
        yield served


def environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return {
        **kept,
        "PYTHONPATH": str(CORE),
        "PYTHONUTF8": "1",
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        **more,
    }


def shell(hub: Hub, home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "camelid", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        env=environment(hub, home, **more),
    )  # fmt: skip


def test_pulled_model_runs_from_the_cache(hub: Hub, tmp_path: Path) -> None:
    pulled = shell(hub, tmp_path, "pull", "o/cria:q8_0")
    (path,) = pulled.stdout.splitlines()
    assert Path(path).read_bytes() == CRIA.read_bytes()
    assert path.startswith(str(tmp_path / "hub"))  # HF_HOME
    (line,) = pulled.stderr.splitlines()  # in a pipe: no progress bar
    assert line.endswith("3.681 MB · cria-Q8_0.gguf · run it with: camelid run o/cria:q8_0 -p TEXT")
    words = ("-p", "What is 12 plus 30?", "--backend", "reference")
    answers = {shell(hub, tmp_path, "run", name, *words).stdout for name in (path, "o/cria:Q8_0", "cria")}
    assert len(answers) == 1
    assert len(hub.downloads()) == 1


def test_pull_as_json_with_revision(hub: Hub, tmp_path: Path) -> None:
    commit = hub.repos["o/cria"].names["main"]
    facts = json.loads(shell(hub, tmp_path, "pull", f"o/cria@{commit}", "--json").stdout)
    assert facts["commit"] == commit
    assert facts["bytes"] == CRIA.stat().st_size
    assert facts["files"] == [facts["path"]]
    assert facts["hub_id"] == f"o/cria@{commit}"


def test_tower_is_pulled_with_its_model_and_left_out_on_request(hub: Hub, tmp_path: Path) -> None:
    cria = CRIA.read_bytes()
    hub.add("o/both", {"m-Q8_0.gguf": cria, "mmproj-F16.gguf": cria[::-1]})
    alone = json.loads(shell(hub, tmp_path, "pull", "o/both", "--no-mmproj", "--json").stdout)
    assert (alone["mmproj"], alone["files"]) == (None, [alone["path"]])
    pulled = shell(hub, tmp_path, "pull", "o/both")
    assert pulled.stdout == f"{alone['path']}\n"
    assert "7.361 MB · m-Q8_0.gguf with mmproj-F16.gguf · run it with" in pulled.stderr
    words = ("run", "o/both", "-p", "What is 12 plus 30?", "-n", "1", "--backend", "reference")
    assert "mmproj-F16.gguf: " in shell(hub, tmp_path, *words).stderr  # it is no GGUF file
    assert shell(hub, tmp_path, *words, "--no-mmproj").returncode == 0


@pytest.mark.parametrize(
    "words", share_of([["tokenize", "o/cria", "hello"], ["info", "o/cria"], ["explain", "o/cria"]])
)
def test_verbs_take_hub_ids(hub: Hub, tmp_path: Path, words: list[str]) -> None:
    done = shell(hub, tmp_path, *words)
    assert (done.returncode, done.stderr) == (0, "")
    own = shell(hub, tmp_path, words[0], str(CRIA), *words[2:]).stdout
    assert done.stdout.splitlines()[-1] == own.splitlines()[-1]
    assert len(hub.downloads()) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    every(2, [
        (("pull", "o/none"), 1, "camelid: error: o/none is no file here, and no repository at "),
        (("pull", "o/cria:Q4_0"), 1, "camelid: error: o/cria has no Q4_0; it has Q8_0"),
        (("pull", "o/cria", "--offline"), 1, "is not complete in the cache"),
        (("run", "o/cria:Q6_K", "-p", "x"), 1, "has no Q6_K"),
        (("run", "o/cria"), 2, "no prompt"),
        (("pull", "cria"), 2, "'cria' is not a hub id"),
        (("pull", "o/cria@a/../b"), 2, "invalid revision 'a/../b'; expected a branch"),
        (("pull",), 2, "HUB_ID"),
    ]),
)  # fmt: skip
def test_exit_codes(hub: Hub, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = shell(hub, tmp_path, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert code == 2 or len(done.stderr.splitlines()) == 1


def test_offline_by_environment(hub: Hub, tmp_path: Path) -> None:
    path = shell(hub, tmp_path, "pull", "o/cria").stdout
    n_asked = len(hub.asked)
    assert shell(hub, tmp_path, "pull", "o/cria", HF_HUB_OFFLINE="1").stdout == path
    assert len(hub.asked) == n_asked


@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: SIGINT")
def test_ctrl_c_exits_with_130_and_the_next_pull_resumes(hub: Hub, tmp_path: Path) -> None:
    hub.add("o/big", {"big-Q8_0.gguf": bytes(30 << 20)})
    hub.delay_s = 0.005  # 2.4 s in total; huggingface_hub writes chunks of 10 MiB
    child = subprocess.Popen(
        [sys.executable, "-m", "camelid", "pull", "o/big"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(hub, tmp_path),
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not any(path.stat().st_size for path in tmp_path.glob("hub/models--*/blobs/*.incomplete")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, "")
    assert "partial files are kept" in err
    hub.delay_s = 0
    assert shell(hub, tmp_path, "pull", "o/big").returncode == 0
    assert re.fullmatch(r"bytes=[1-9]\d*-", hub.downloads()[-1]["range"])


@pytest.mark.skipif(sys.platform == "win32", reason="not on this platform: pseudo-terminals")
def test_bar_on_a_terminal(hub: Hub, tmp_path: Path) -> None:
    import pty

    hub.delay_s = 0.01
    leader, follower = pty.openpty()
    child: Any = subprocess.Popen(
        [sys.executable, "-m", "camelid", "pull", "o/cria"],
        stdout=subprocess.DEVNULL, stderr=follower,
        env=environment(hub, tmp_path, TERM="xterm", COLUMNS="100"),
    )  # fmt: skip
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 4096):
            shown += piece
    except OSError:  # Linux's signal that the other side closed
        pass
    os.close(leader)
    assert child.wait(30) == 0
    assert b"cria-Q8_0.gguf" in shown
    assert b"0/100" not in shown, "a progress bar before the files are known"
    assert re.search(rb"[\d.]+/3\.7 MB", shown)
