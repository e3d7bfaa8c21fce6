"""keep_alive of Ollama: durations, loading and unloading."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import ollama
import pytest
from tests.server.test_ollama import ASK, GREEDY
from tests.support.served_here import served_here, until

from camelid.server.fields.ollama import Duration
from camelid.server.http.errors import ApiError
from camelid.server.http.keys import Key, KeyRing, digest_of


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("0", 0),
        (0, 0),
        (-1, float("inf")),
        ("-1m", float("inf")),
    ],
)
def test_durations_are_gos(value: Any, seconds: float) -> None:
    assert Duration().read(value, "keep_alive") == seconds


@pytest.mark.parametrize("value", ["", "5", "m", "5 m", "1d", True, None, [], 1e308])
def test_other_durations_are_refused(value: Any) -> None:
    with pytest.raises(ApiError, match="keep_alive"):
        Duration().read(value, "keep_alive")


def test_keep_alive_loads_and_unloads() -> None:
    with served_here(parallel=1) as served, ollama.Client(host=str(served.http.base_url)) as client:
        entry = served.server.models.default
        assert client.generate("cria", "").done_reason == "load"
        assert client.generate("cria", "", keep_alive=0).done_reason == "unload"
        until(lambda: entry.service is None)
        assert client.ps().models == []
        (listed,) = client.list().models
        assert listed.model == "cria:latest"
        assert client.show("cria").capabilities == ["completion", "tools"]
        assert entry.service is None, "showing a model loads it"
        assert client.chat("cria", ASK, keep_alive="5m", options=GREEDY).done_reason == "stop"
        until(lambda: entry.keep_alive_s == 300 and entry.timer is not None)
        (held,) = client.ps().models
        assert held.expires_at
        assert 200 < (held.expires_at - datetime.now(UTC)).total_seconds() <= 300
        client.chat("cria", ASK, keep_alive=0, options=GREEDY)
        until(lambda: entry.service is None)
        client.chat("cria", ASK, options=GREEDY)
        assert entry.service, "keep_alive 0 counts once"
        (held,) = client.ps().models
        assert held.expires_at
        assert held.expires_at.year > 2300
        client.chat("cria", ASK, keep_alive="10ms", options=GREEDY)
        until(lambda: entry.service is None)


def test_a_model_in_use_is_unloaded_afterwards() -> None:
    long = {"model": "cria", "prompt": "a", "options": {"num_predict": 900}}
    with served_here(parallel=2) as served:
        url = f"{served.http.base_url}/api/generate"
        with httpx.stream("POST", url, json={**long, "format": STORY}, timeout=60) as running:
            lines = running.iter_lines()
            next(lines)
            reply = served.http.post("/api/generate", json={"prompt": "", "keep_alive": 0})
            assert reply.json()["done_reason"] == "unload"
            *_, last = lines
        assert json.loads(last)["eval_count"] > 100
        until(lambda: served.server.models.default.service is None)


STORY = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 300}},
    "required": ["text"],
}


def test_only_an_admin_may_unload() -> None:
    user = Key("user", digest_of("secret"), frozenset({"use"}))
    with served_here(keys=KeyRing([user])) as served:
        headers = {"authorization": "Bearer secret"}
        reply = served.http.post("/api/generate", json={"keep_alive": 0}, headers=headers)
        assert reply.status_code == 403
        assert served.server.models.default.service
        body = {"keep_alive": "1ms"}
        reply = served.http.post("/api/generate", json=body, headers=headers)
        assert "keep_alive was ignored" in reply.headers["warning"]
        assert served.server.models.default.keep_alive_s == -1
