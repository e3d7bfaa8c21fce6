"""GET /props and /slots of a model that is not loaded: they answer, and load nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.served import served
from tests.support.served_here import until

from camelid.server.app import App
from camelid.server.server import Server
from camelid.server.setup import build
from camelid.server.sources import configure


@pytest.fixture
def server() -> Server:
    made = build(configure({"models": ("a=cria", "b=cria"), "parallel": "3"}, {}))
    made.phase = "ready"
    return made


def get(server: Server, path: str, query: str = "") -> tuple[int, Any]:
    """Status and body of the reply to a GET."""
    scope = {
        "type": "http", "method": "GET", "path": path, "query_string": query.encode(),
        "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    sent = list[Any]()
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        if message := next(messages, None):
            return message
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(App(server)(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_properties_load_nothing(server: Server) -> None:
    for name in ("", "b"):
        status, body = get(server, "/props", f"model={name}")
        assert (status, body["is_sleeping"], body["total_slots"]) == (200, True, 3)
        assert body["model_alias"] == (name or "a")
        assert body["build_info"].startswith("b")
    assert [entry.state for entry in server.models] == ["unloaded", "unloaded"]
    assert get(server, "/props", "model=c")[0] == 404


def test_slots_load_nothing(server: Server) -> None:
    status, slots = get(server, "/slots", "model=b&fail_on_no_slot=1")
    assert (status, [slot["id"] for slot in slots]) == (200, [0, 1, 2])
    assert not any(slot["is_processing"] for slot in slots)
    assert get(server, "/slots/2", "model=b") == (200, slots[2])
    assert get(server, "/slots/3", "model=b")[0] == 400
    assert [entry.state for entry in server.models] == ["unloaded", "unloaded"]


def test_a_loading_server_says_so(server: Server) -> None:
    server.phase = "loading"
    for path in ("/props", "/slots"):
        status, body = get(server, path)
        assert (status, body["error"]["message"]) == (503, "Loading model")


def test_reading_does_not_wake_a_sleeping_model(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    write_tiny_llama(file, seed=1)
    with served(str(file), "--backend", "cpu", "--sleep-idle-seconds", "1", "-c", "64") as sleeper:

        def sleeps() -> bool:
            return sleeper.get("/props").json()["is_sleeping"]

        until(sleeps)
        assert sleeper.get("/props").json()["default_generation_settings"]["n_ctx"] == 64
        assert sleeper.get("/slots").json()[0]["n_ctx"] == 64
        assert sleeps()
        asked = {"prompt": "the llama", "n_predict": 1}
        assert sleeper.post("/completion", asked).status_code == 200
