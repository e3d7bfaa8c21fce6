"""The systemd unit and the Dockerfile of deploy/, by systemd's own tools and on a running server."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.dockerfile import DOCKERFILE, instructions, variables
from tests.support.served import ROOT, served

from camelid.server.http.guard import PUBLIC
from camelid.server.http.keys import KeyRing, read_key_file
from camelid.server.setting_rows import PREFIX
from camelid.server.settings import ROWS
from camelid.server.sources import configure

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "camelid.service"
PR_SET_MDWE, PR_GET_MDWE, REFUSE_EXEC_GAIN = 65, 66, 1
MOST_EXPOSURE = 2.0  # of systemd-analyze's 10


def values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def need_systemd() -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("not on this platform: no systemd")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    need_systemd()
    text = UNIT.read_text().replace("/opt/camelid/bin/camelid", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / UNIT.name)], capture_output=True, text=True
    )
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
    assert done.returncode == 0


def test_the_unit_is_hardened() -> None:
    need_systemd()
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MOST_EXPOSURE


def test_stopping_waits_for_the_drain() -> None:
    assert float(values("TimeoutStopSec")[0]) >= ROWS["drain"].default + 10
    assert values("ExecReload") == ["kill -HUP $MAINPID"]
    assert set(re.findall(r"--([a-z-]+)", values("ExecStart")[0])) <= {
        name.replace("_", "-") for name in ROWS
    }


def test_the_settings_of_the_readme_are_known(tmp_path: Path) -> None:
    text = (DEPLOY / "README.md").read_text()
    written = re.search(r"printf '(.*?)' > /etc/camelid/serve.toml", text)
    keys = re.search(r'`(api_key_file = ".*?")`', text)
    assert written
    assert keys
    file = tmp_path / "serve.toml"
    file.write_text(written[1].replace("\\n", "\n") + keys[1])
    found = configure({"config": str(file)}, {}).settings
    assert (list(found.models), found.port) == (["cria"], 8080)
    assert str(found.api_key_file) == "/run/credentials/camelid.service/api-keys"
    names = {variable for row in ROWS.values() for variable in row.variables}
    assert set(re.findall(r"CAMELID_SERVE_\w+", text)) <= names


def test_the_keys_of_the_readme_are_read(tmp_path: Path) -> None:
    written = re.search(r"```\n(# a key alone.*?)```", (DEPLOY / "README.md").read_text(), re.DOTALL)
    assert written
    file = tmp_path / "api-keys"
    file.write_text(written[1])
    alone, alice, ops = read_key_file(file)
    assert (alone.scopes, ops.scopes) == ({"use", "learn", "admin"}, {"use", "admin"})
    assert (alice.name, alice.scopes) == ("alice", {"use"})
    assert (alice.requests_per_minute, alice.tokens_per_minute, alice.concurrency) == (60, 100_000, 4)
    assert KeyRing([ops]).find("ops-secret") == ops


@pytest.mark.e2e
def test_the_server_runs_without_memory_that_is_written_and_executed(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform != "linux" or libc.prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0:
        pytest.skip("not on this platform: no PR_SET_MDWE")
    assert values("MemoryDenyWriteExecute") == ["yes"]
    # sitecustomize runs before the server in its process, and the mode holds for its children
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes, mmap, sys\n"
        f"assert ctypes.CDLL(None).prctl({PR_SET_MDWE}, {REFUSE_EXEC_GAIN}, 0, 0, 0) == 0\n"
        "try:\n    mmap.mmap(-1, 4096, prot=7)\nexcept PermissionError:\n    pass\n"
        "else:\n    sys.exit('memory is still executable')\n"
    )
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    paths = os.pathsep.join(map(str, (tmp_path, ROOT / "core", ROOT / "native")))
    with served("--backend", "cpu", PYTHONPATH=paths) as server:
        asked = {
            "messages": [{"role": "user", "content": "Count."}], "temperature": 0, "max_tokens": 40,
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        }  # fmt: skip
        reply = server.post("/v1/chat/completions", asked)
    assert isinstance(json.loads(reply.json()["choices"][0]["message"]["content"])["a"], int)


def test_the_image_runs_as_nobody_and_is_watched() -> None:
    by_name = dict(instructions())
    assert by_name["USER"].isdecimal()
    assert int(by_name["USER"]) > 0
    path = re.search(r"\}(/[a-z]+)'", by_name["HEALTHCHECK"])
    assert path
    assert path[1] in PUBLIC, "a health check has no key"
    known = {f"{PREFIX}{name.upper()}" for name in ROWS}
    assert {name for name in variables() if name.startswith(PREFIX)} <= known
    assert json.loads(by_name["ENTRYPOINT"]) == ["camelid", "serve"]


def test_the_image_is_built_from_wheels_alone() -> None:
    ignored = Path(f"{DOCKERFILE}.dockerignore").read_text().splitlines()
    assert [line for line in ignored if not line.startswith("#")] == ["*", "!dist/*.whl"]
    mounts = [words for name, words in instructions() if "target=/context" in words]
    assert mounts
    assert all("--find-links /context/dist" in words for words in mounts)
    assert [
        words for name, words in instructions() if name in ("ADD", "COPY") and "--from" not in words
    ] == []
