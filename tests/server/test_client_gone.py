"""Clients that leave, read slowly or send slowly: their units are free within a step, others go on."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.coder_model import write_coder
from tests.support.served_here import WAIT_S, ServedHere, served_here, until
from tests.support.standing import standing

from camelid.server.http.keys import Key, KeyRing, digest_of
from camelid.server.service import host
from camelid.server.service.text_size import INLINE_CHARS

CHAT = "/v1/chat/completions"
STORY: list[Any] = [{"role": "user", "content": "Tell me a long story."}]
LONG: dict[str, Any] = {"messages": STORY, "max_tokens": 900, "ignore_eos": True, "seed": 3}
# A prompt that prefills in several steps.
LONG_PROMPT = {
    "messages": [{"role": "user", "content": "llama " * 700}],
    "max_tokens": 100,
    "ignore_eos": True,
    "cache_prompt": False,
}
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 800}},
    "required": ["text"],
}
COSTLY_SCHEMA = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(2000)}}


def guided(schema: Any) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"messages": STORY, "max_tokens": 900, "response_format": form}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHere]:
    model = tmp_path_factory.mktemp("coder") / "coder.gguf"
    write_coder(model)
    with served_here(str(model), parallel=2, max_queue=2) as running:
        yield running


def send(
    served: ServedHere, body: dict[str, Any], path: str = CHAT, *, buffer: int = 0, n_bytes: int | None = None
) -> socket.socket:
    """Sends a request, or its first bytes, over a connection of its own and returns without reading."""
    connection = served.connect()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer one\r\n"
    connection.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data[:n_bytes])
    return connection


def leaves(served: ServedHere, body: dict[str, Any], path: str = CHAT, *, after: int) -> None:
    """Sends a request and closes its connection while the engine stands in the step `after`.

    Not one row is computed from then on: the steps in flight were counted when they began.
    """
    engine, admission = served.engine, served.service.admission
    with standing(engine, after=after) as stand:
        connection = send(served, body, path)
        stand.wait()
        n_rows = engine.counters.decode_rows, engine.counters.prefill_rows
        assert admission.n_places, "the request is under way"
        if after == 1:
            assert all(s.n_rows < s.n_prompt for s in engine._sequences.values()), "the prompt is under way"
        connection.close()
        until(lambda: not admission.n_places)
    served.wait_idle()
    assert (engine.counters.decode_rows, engine.counters.prefill_rows) == n_rows


PHASES: dict[str, tuple[dict[str, Any], int]] = {
    "prefill": (LONG_PROMPT, 1),
    "decode": (LONG, 5),
    "n": ({**LONG, "n": 2}, 5),
    "grammar": (guided(SCHEMA), 5),
}
ENDPOINTS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Once", "max_tokens": 900, "ignore_eos": True},
    "/v1/responses": {"input": STORY, "max_output_tokens": 900, "ignore_eos": True},
    "/v1/messages": {"messages": STORY, "max_tokens": 900, "ignore_eos": True},
    "/completion": {"prompt": "Once", "n_predict": 900, "ignore_eos": True},
    "/infill": {"input_prefix": "def f(", "input_suffix": "return", "n_predict": 900, "ignore_eos": True},
    "/api/chat": {"messages": STORY, "options": {"num_predict": 900, "temperature": 0}},
    "/api/generate": {"prompt": "Tell me a long story.", "options": {"num_predict": 900, "temperature": 0}},
}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_leaves_frees_its_units_within_a_step(
    served: ServedHere, phase: str, streams: bool
) -> None:
    body, after = PHASES[phase]
    leaves(served, {**body, "stream": streams}, after=after)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_it_may_leave_every_endpoint(served: ServedHere, path: str, streams: bool) -> None:
    leaves(served, {**ENDPOINTS[path], "stream": streams}, path, after=3)


def test_a_client_that_leaves_during_its_upload_has_no_request_under_way() -> None:
    key = Key("ann", digest_of("one"), concurrency=1)
    headers = {"authorization": "Bearer one"}
    body = {"messages": STORY, "max_tokens": 2}
    with served_here(keys=KeyRing([key])) as served:
        connection = send(served, body, n_bytes=20)
        budgets = served.server.guard.budgets
        until(lambda: "ann" in budgets and budgets["ann"].n_running == 1)
        assert served.http.post(CHAT, json=body, headers=headers).status_code == 429
        connection.close()
        until(lambda: not budgets["ann"].n_running)
        assert served.http.post(CHAT, json=body, headers=headers).status_code == 200
        assert served.engine.counters.requests == 1


def test_a_client_may_leave_while_its_model_loads(
    served: ServedHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load goes on, for the next client."""
    models, entry, go_on = served.server.models, served.server.models.default, threading.Event()
    assert served.http.post("/v1/models/unload", json={"model": "cria"}).is_success
    load = models._open

    async def late(*arguments: Any) -> Any:
        assert await asyncio.to_thread(go_on.wait, WAIT_S)
        return await load(*arguments)

    monkeypatch.setattr(models, "_open", late)
    connection = send(served, LONG)
    until(lambda: entry.n_waiting == 1)
    connection.close()
    until(lambda: entry.n_waiting == 0)
    go_on.set()
    until(lambda: entry.service is not None)
    assert served.http.post(CHAT, json={**LONG, "max_tokens": 2}).status_code == 200
    assert served.engine.counters.requests == 1, "the client's request was never begun"


def test_a_client_may_leave_while_its_text_is_tokenized(
    served: ServedHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, begun, go_on = served.service.builder, threading.Event(), threading.Event()
    rendered, n_requests = builder.rendered, served.engine.counters.requests

    def late(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(WAIT_S)
        return rendered(*arguments)

    monkeypatch.setattr(builder, "rendered", late)
    connection = send(served, {"messages": [{"role": "user", "content": "a" * (INLINE_CHARS + 1)}]})
    assert begun.wait(WAIT_S)
    assert served.service.admission.n_places == 1
    connection.close()
    until(lambda: not served.service.admission.n_places)
    go_on.set()
    monkeypatch.undo()
    assert served.http.post(CHAT, json={**LONG, "max_tokens": 2}).status_code == 200
    assert served.engine.counters.requests == n_requests + 1


def test_a_client_may_leave_while_its_grammar_is_compiled(served: ServedHere) -> None:
    """The compilation ends with it."""
    constraints, n_requests = served.service.builder.constraints, served.engine.counters.requests

    def is_compiling() -> bool:
        """Workers start with another, smaller grammar."""
        workers = constraints.workers
        return workers is not None and any(name == "json_schema" for name, _ in workers._compiled)

    connection = send(served, guided(COSTLY_SCHEMA))
    until(is_compiling, 60)  # by a process at idle priority
    connection.close()
    until(lambda: not served.service.admission.n_places and not is_compiling())
    assert served.http.post(CHAT, json={**LONG, "max_tokens": 2}).status_code == 200
    assert served.engine.counters.requests == n_requests + 1


def test_a_queued_client_that_leaves_disturbs_nobody(served: ServedHere) -> None:
    running = [send(served, {**LONG, "seed": seed, "stream": True}) for seed in range(2)]
    until(lambda: served.engine.n_running == 2)
    queued = send(served, LONG)
    until(lambda: served.engine.n_waiting == 1)
    queued.close()
    until(lambda: served.engine.n_waiting == 0)
    assert served.engine.n_running == 2
    n_rows = served.engine.counters.decode_rows
    until(lambda: served.engine.counters.decode_rows > n_rows + 20)
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


def test_a_slow_reader_holds_its_own_sequence_only(
    served: ServedHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MAX_EVENTS", 64)
    body = {**LONG, "max_tokens": 250, "stream": True, "logprobs": True, "top_logprobs": 20}
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
