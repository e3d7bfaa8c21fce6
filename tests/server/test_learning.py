"""POST /v1/feedback and /v1/learning: at once, by key, with scopes, bounded."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.served_here import ServedHere, served_here, until

from camelid.errors import RequestError
from camelid.server.http.keys import ANONYMOUS, Key, KeyRing, digest_of
from camelid.server.service.learning import space_name
from camelid.server.settings import Settings
from camelid.server.setup import build
from camelid.server.sources import Configured

pytestmark = pytest.mark.e2e
RIGHT = "My name is Pico."
FULL = frozenset({"use", "learn"})
KEYS = KeyRing([
    Key("ana", digest_of("ana-secret"), FULL),
    Key("ben", digest_of("ben-secret"), FULL),
    Key("reader", digest_of("reader-secret"), frozenset({"use"})),
])  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learning")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[ServedHere]:
    with served_here(keys=KEYS, learn="memory", learn_folder=folder, context=256, threads=1) as found:
        yield found


def headers(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-secret"}


def post(served: ServedHere, path: str, body: dict[str, Any], name: str = "ana") -> httpx.Response:
    return served.http.post(path, json=body, headers=headers(name))


def ask(served: ServedHere, text: str, name: str = "ana", **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
    reply = post(served, "/v1/chat/completions", body, name)
    assert reply.status_code == 200, reply.text
    return reply.json()


def text(reply: dict[str, Any]) -> str:
    return reply["choices"][0]["message"]["content"]


def learning(served: ServedHere, name: str = "ana") -> dict[str, Any]:
    return served.http.get("/v1/learning", headers=headers(name)).json()


def settled(served: ServedHere, name: str = "ana") -> None:
    """Waits until the contexts of every item are known."""
    service = served.service
    assert service.learners
    learner = service.learners._open[space_name(next(key for key in KEYS if key.name == name))]
    until(lambda: not learner.space.memory.without_contexts())


def test_feedback_acts_for_its_key_alone(served: ServedHere) -> None:
    plain = ask(served, "Who are you?")
    others = [text(ask(served, "Who are you?", name)) for name in ("ben", "reader")]
    reply = post(served, "/v1/feedback", {"completion_id": plain["id"], "rating": -1, "correction": RIGHT})
    assert (reply.status_code, reply.json()) == (202, {"object": "feedback", "id": 1, "rating": -1})
    settled(served)
    assert text(ask(served, "who are you")) == RIGHT
    assert [text(ask(served, "Who are you?", name)) for name in ("ben", "reader")] == others
    assert RIGHT not in others
    state = learning(served)
    assert [(item["id"], item["completion_id"], item["has_correction"]) for item in state["items"]] == [
        (1, plain["id"], True)
    ]
    assert (state["version"], state["form"], state["n_acting"]) == ("base", "mix", 1)
    assert "path" not in state
    assert learning(served, "ben")["items"] == []
    done = post(served, "/v1/learning/forget", {"item": 1})
    assert done.json() == {"object": "learning.forgotten", "item": 1, "stale": [], "also_in": []}
    assert text(ask(served, "who are you")) == text(plain)


def test_the_key_that_asked_gives_the_feedback(served: ServedHere) -> None:
    id = ask(served, "Hi there", "ana")["id"]
    for name, body in (("ben", {"completion_id": id}), ("ana", {"completion_id": "chatcmpl-none"})):
        reply = post(served, "/v1/feedback", {**body, "rating": 1}, name)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "completion_not_found")
    assert post(served, "/v1/feedback", {"completion_id": id, "rating": 1}).status_code == 202


def test_a_key_needs_the_scope(served: ServedHere) -> None:
    routes = ("feedback", "learning/use", "learning/undo", "learning/forget")
    for path in routes:
        reply = post(served, f"/v1/{path}", {"completion_id": "x", "rating": 1}, "reader")
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "scope_missing")
    assert served.http.get("/v1/learning", headers=headers("reader")).status_code == 403
    assert served.http.get("/v1/learning").status_code == 401


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"rating": 1}, None),
        ({"completion_id": "x", "rating": 0}, "rating"),
        ({"completion_id": "x", "rating": "1"}, "rating"),
        ({"completion_id": 5, "rating": 1}, "completion_id"),
        ({"completion_id": "x", "rating": 1, "correction": 7}, "correction"),
        ({"completion_id": "x" * 201, "rating": 1}, "completion_id"),
    ],
)
def test_malformed_feedback_is_refused(served: ServedHere, body: dict[str, Any], param: str | None) -> None:
    reply = post(served, "/v1/feedback", body)
    assert reply.status_code == 400, reply.text
    assert param in (None, reply.json()["error"]["param"])


def test_streams_and_other_choices_have_ids_too(served: ServedHere) -> None:
    body = {"messages": [{"role": "user", "content": "Hi there"}], "stream": True, "n": 2}
    reply = post(served, "/v1/chat/completions", body)
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: {")]
    id = json.loads(lines[0])["id"]
    for name in (id, f"{id}#1"):
        assert post(served, "/v1/feedback", {"completion_id": name, "rating": 1}).status_code == 202, name
    message = {"model": "cria", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi there"}]}
    sent = post(served, "/v1/messages", message).json()["id"]
    assert post(served, "/v1/feedback", {"completion_id": sent, "rating": -1}).status_code == 202


def test_a_flood_is_a_429_and_harms_nobody(served: ServedHere) -> None:
    id = ask(served, "Hi there", "ben")["id"]
    replies = [post(served, "/v1/feedback", {"completion_id": id, "rating": 1}, "ben") for _ in range(64)]
    assert [reply.status_code for reply in replies[:60]] == [202] * 60
    assert (replies[-1].status_code, replies[-1].json()["error"]["code"]) == (429, "feedback_quota")
    assert int(replies[-1].headers["retry-after"]) >= 1
    assert post(
        served, "/v1/feedback", {"completion_id": ask(served, "Hi there")["id"], "rating": 1}
    ).status_code == 202  # fmt: skip
    assert learning(served, "ben")["n_acting"] == 1


def test_versions_are_the_keys_own(served: ServedHere) -> None:
    assert post(served, "/v1/learning/undo", {}).json()["version"] == "base"
    assert post(served, "/v1/learning/use", {"version": "base"}).json()["version"] == "base"
    reply = post(served, "/v1/learning/use", {"version": "v7"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "version")


def test_files_are_in_folders_by_the_keys_hash(served: ServedHere, folder: Path) -> None:
    ask(served, "Hi there")
    names = {path.name for path in folder.iterdir()}
    assert names <= {space_name(key) for key in KEYS}
    assert not any("ana" in name for name in names)
    assert space_name(ANONYMOUS) == "local"
    other = Key("ana", digest_of("another secret"), FULL)
    assert space_name(other) not in names


def test_a_restarted_server_remembers(tmp_path: Path) -> None:
    ring = KeyRing([Key("ana", digest_of("ana-secret"), FULL)])
    options: dict[str, Any] = {"learn": "memory", "learn_folder": tmp_path, "context": 256, "threads": 1}
    with served_here(keys=ring, **options) as served:
        id = ask(served, "Who are you?")["id"]
    with served_here(keys=ring, **options) as served:
        body = {"completion_id": id, "rating": -1, "correction": RIGHT}
        assert post(served, "/v1/feedback", body).status_code == 202
        end = time.monotonic() + 20
        while text(ask(served, "who are you")) != RIGHT:
            assert time.monotonic() < end


def test_a_server_that_does_not_learn_says_so() -> None:
    with served_here(context=128, threads=1) as served:
        reply = served.http.post("/v1/feedback", json={"completion_id": "x", "rating": 1})
        assert (reply.status_code, reply.json()["error"]["type"]) == (501, "not_supported_error")
        assert "--learn memory" in reply.json()["error"]["message"]


def test_learning_and_a_witness_log_exclude_each_other(tmp_path: Path) -> None:
    configured = Configured(Settings(learn="memory", witness=tmp_path / "log"), {})
    with pytest.raises(RequestError, match="expected one of them"):
        build(configured)
