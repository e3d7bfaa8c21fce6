"""Token budgets of keys: each token counts once, and a client that hangs up has spent what it used."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.served_here import ServedHere, served_here, until

from camelid.server.http.guard import Budget
from camelid.server.http.keys import Key, KeyRing, digest_of
from camelid.server.service import host

HEADERS = {"authorization": "Bearer one"}
CHAT, PATH = "/v1/chat/completions", "/v1/completions"
N_TOKENS = 100_000
LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a long story."}],
    "max_tokens": 900, "ignore_eos": True, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    key = Key("ann", digest_of("one"), tokens_per_minute=N_TOKENS)
    with served_here(keys=KeyRing([key]), parallel=2) as running:
        yield running


@pytest.fixture
def budget(served: ServedHere) -> Budget:
    """The key's whole budget, which does not refill."""
    served.server.guard.budgets.clear()
    assert served.http.post("/tokenize", json={"content": "a"}, headers=HEADERS).is_success
    budget = served.server.guard.budgets["ann"]
    budget.now, budget.tokens = lambda: 0.0, N_TOKENS
    return budget


def send(served: ServedHere, body: dict[str, Any], *, buffer: int = 0) -> socket.socket:
    """Sends a chat over a connection of its own and returns without reading."""
    connection = served.connect()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer one\r\n"
    connection.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    return connection


WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {**LONG, "max_tokens": 30}),
    "choices": (CHAT, {**LONG, "max_tokens": 30, "n": 2}),
    "a stop": (PATH, {"prompt": "the llama", "stop": [" "], "temperature": 0}),
    "an end token": (CHAT, {"messages": [{"role": "user", "content": "Who are you?"}], "temperature": 0}),
    "prompts": (PATH, {"prompt": ["the llama", "a"], "max_tokens": 10, "n": 2, "best_of": 2}),
    "no answer": (PATH, {"prompt": "the llama", "max_tokens": 0, "echo": True, "logprobs": 1}),
}


@pytest.mark.parametrize(("path", "body"), WHOLE.values(), ids=WHOLE)
def test_a_whole_answer_costs_its_usage(
    served: ServedHere, budget: Budget, path: str, body: dict[str, Any]
) -> None:
    reply = served.http.post(path, json=body, headers=HEADERS)
    assert reply.status_code == 200, reply.text
    served.wait_idle()
    assert N_TOKENS - budget.tokens == reply.json()["usage"]["total_tokens"] > 0


@pytest.fixture
def n_prompt(served: ServedHere, budget: Budget) -> int:
    """The tokens of the long request's prompt."""
    reply = served.http.post(CHAT, json={**LONG, "max_tokens": 1}, headers=HEADERS)
    budget.tokens = N_TOKENS
    return reply.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_hangs_up_has_spent_its_tokens(
    served: ServedHere, budget: Budget, n_prompt: int, streams: bool
) -> None:
    n_before = served.engine.counters.decode_rows
    connection = send(served, {**LONG, "stream": streams})
    until(lambda: served.engine.counters.decode_rows > n_before + 20)
    connection.close()
    served.wait_idle()
    n_rows = served.engine.counters.decode_rows - n_before
    assert 15 <= N_TOKENS - budget.tokens - n_prompt <= n_rows + 1, "tokens of steps in flight may be dropped"


def test_unread_tokens_are_spent(
    served: ServedHere, budget: Budget, n_prompt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MAX_EVENTS", 64)
    n_before = served.engine.counters.decode_rows
    slow = send(served, {**LONG, "stream": True, "logprobs": True, "top_logprobs": 20}, buffer=16 << 10)
    until(lambda: any(s.is_held and not s.n_in_flight for s in served.engine._sequences.values()))
    slow.close()
    served.wait_idle()
    n_rows = served.engine.counters.decode_rows - n_before
    assert n_rows > host.MAX_EVENTS
    assert n_rows - 2 <= N_TOKENS - budget.tokens - n_prompt <= n_rows + 1


def test_the_next_request_after_hanging_up_is_429(served: ServedHere, budget: Budget) -> None:
    budget.tokens = 60
    n_rows = served.engine.counters.decode_rows
    connection = send(served, {**LONG, "stream": True})
    until(lambda: served.engine.counters.decode_rows > n_rows + 80)
    connection.close()
    served.wait_idle()
    reply = served.http.post(CHAT, json=LONG, headers=HEADERS)
    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(reply.headers["retry-after"]) >= 1


def test_a_key_whose_limits_changed_keeps_the_new_ones(served: ServedHere, budget: Budget) -> None:
    """Its request under way began with the old ones."""
    connection = send(served, {**LONG, "stream": True})
    until(lambda: served.engine.n_running > 0)
    del served.server.guard.budgets[budget.key.name]  # as after a reload of the keys
    assert connection.recv(4096)
    connection.close()
    served.wait_idle()
    assert not served.server.guard.budgets
