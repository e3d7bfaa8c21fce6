"""Clients that leave, read slowly or send slowly: their units are free within a step, others go on."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.served_here import ServedHere, served_here, until

STORY: list[Any] = [{"role": "user", "content": "Tell me a long story."}]
LONG: dict[str, Any] = {"messages": STORY, "max_tokens": 900, "ignore_eos": True, "seed": 3}
# A prompt that prefills in several steps.
LONG_PROMPT = {
    "messages": [{"role": "user", "content": "llama " * 700}],
    "max_tokens": 100,
    "ignore_eos": True,
}
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 800}},
    "required": ["text"],
}
GUIDED = {
    "messages": STORY,
    "max_tokens": 900,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
}


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(parallel=2, max_queue=2) as running:
        yield running


def send(served: ServedHere, body: dict[str, Any], *, buffer: int = 0) -> socket.socket:
    """Sends a chat over a connection of its own and returns without reading."""
    connection = served.connect()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    "body", [LONG, {**LONG, "n": 2}, LONG_PROMPT, GUIDED], ids=["decode", "n", "prefill", "grammar"]
)
def test_a_client_that_leaves_frees_its_units(
    served: ServedHere, body: dict[str, Any], streams: bool
) -> None:
    before = served.engine.counters.requests
    connection = send(served, {**body, "stream": streams})
    until(lambda: served.engine.counters.requests > before and served.engine.n_running > 0)
    connection.close()
    served.wait_idle()


def test_a_queued_client_that_leaves_disturbs_nobody(served: ServedHere) -> None:
    running = [send(served, {**LONG, "seed": seed}) for seed in range(2)]
    until(lambda: served.engine.n_running == 2)
    queued = send(served, LONG)
    until(lambda: served.engine.n_waiting == 1)
    queued.close()
    until(lambda: served.engine.n_waiting == 0)
    assert served.engine.n_running == 2
    for connection in running:
        assert b"200 OK" in connection.recv(4096)
        connection.close()
    served.wait_idle()


def test_a_full_queue_is_503_with_a_time(served: ServedHere) -> None:
    taken = [send(served, {**LONG, "seed": seed}) for seed in range(4)]
    until(lambda: served.service.admission.n_places == 4)
    reply = served.http.post("/v1/chat/completions", json=LONG)
    assert reply.status_code == 503
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert reply.json()["error"]["code"] == "server_is_overloaded"
    for connection in taken:
        connection.close()
    served.wait_idle()


def test_a_slow_reader_holds_its_own_sequence_only(served: ServedHere) -> None:
    body = {**LONG, "stream": True, "logprobs": True, "top_logprobs": 20}
    wanted = served.http.post("/v1/chat/completions", json=body).text
    slow = send(served, body, buffer=16 << 10)
    until(lambda: any(s.is_held for s in served.engine._sequences.values()))
    n_rows = [s.n_rows for s in served.engine._sequences.values()]
    other = served.http.post("/v1/chat/completions", json={**LONG, "max_tokens": 40}).json()
    assert other["usage"]["completion_tokens"] == 40
    assert [s.n_rows for s in served.engine._sequences.values()] == n_rows
    assert texts(read_all(slow)) == texts(wanted)  # nothing is lost once the client reads on
    slow.close()
    served.wait_idle()


def read_all(connection: socket.socket) -> str:
    """The bytes of a chunked reply, without the sizes of its chunks."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    received = bytearray()
    while not received.endswith(b"0\r\n\r\n"):
        received += connection.recv(1 << 16)
    return re.sub(rb"\r\n[0-9a-f]+\r\n", b"", bytes(received)).decode()


def texts(stream: str) -> list[str]:
    """The texts of a stream's chunks."""
    return re.findall(r'"delta": {"content": (".*?")}', stream)


def test_a_body_in_small_parts_is_read(served: ServedHere) -> None:
    data = json.dumps({"messages": STORY, "max_tokens": 2}).encode()
    slow = served.connect()
    slow.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(data)
    )
    for at in range(0, len(data), 8):
        slow.sendall(data[at : at + 8])
        time.sleep(0.005)
    assert served.http.get("/health").status_code == 200
    assert b"200 OK" in slow.recv(4096)
    slow.close()
    served.wait_idle()
