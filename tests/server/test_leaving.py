"""Clients that leave in numbers: the engine ends idle, and other requests keep their bits."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import Any

import pytest
from tests.support.served_here import WAIT_S, served_here, until
from tests.support.undisturbed import undisturbed

from camelid.server.http import reply

pytestmark = [pytest.mark.faults, pytest.mark.slow]
PATH = "/v1/chat/completions"
N_CLIENTS = 1000
# Each prompt has a beginning of its own, so that none is found in the prefix cache.
BODY: dict[str, Any] = {"max_tokens": 50, "ignore_eos": True, "stream": True}


def request(i: int) -> bytes:
    body = json.dumps({**BODY, "messages": [{"role": "user", "content": f"{i} " + "llama " * 500}]}).encode()
    return b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (
        PATH.encode(), len(body), body,
    )  # fmt: skip


def test_a_thousand_clients_that_leave_disturb_nobody() -> None:
    with served_here(max_queue=2 * N_CLIENTS) as served:
        counters = served.engine.counters
        with undisturbed(served.http):
            n_rows, n_under_way = counters.prefill_rows, 0
            for i in range(N_CLIENTS):
                before = counters.prefill_rows
                with served.connect() as connection:
                    connection.sendall(request(i))
                    if i % 10 == 0:  # else it leaves at once, in the queue or before
                        until(lambda: counters.prefill_rows > before)  # noqa: B023
                        n_under_way += 1
        served.wait_idle()
        assert n_under_way == N_CLIENTS // 10
        assert counters.prefill_rows > n_rows


MESSAGES = [{"role": "user", "content": "Hi"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 900, "ignore_eos": True},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 900},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 900},
    "/api/chat": {"model": "cria", "messages": MESSAGES},
}


def streaming(path: str) -> bytes:
    body = json.dumps({**REQUESTS[path], "stream": True})
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize("path", REQUESTS)
def test_a_client_that_reads_nothing_and_leaves_keeps_no_place(path: str) -> None:
    """The stream waits for the reply before it on the connection to be read, and then ends."""
    with served_here() as served, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", served.port))
        reader.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" + streaming(path))
        until(lambda: served.service.admission.n_places > 0)
        reader.close()
        served.wait_idle()


@pytest.mark.parametrize("path", REQUESTS)
def test_a_client_that_stays_and_reads_nothing_keeps_no_place(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "BLOCKED_S", 0.4)
    with served_here() as served, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", served.port))
        reader.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" + streaming(path))
        until(lambda: served.service.admission.n_places > 0)
        served.wait_idle()


def test_the_servers_end_closes_connections_that_nobody_reads() -> None:
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(WAIT_S)
        with served_here() as served:
            reader.connect(("127.0.0.1", served.port))
            reader.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 8)
            until(lambda: reader.recv(1, socket.MSG_PEEK) == b"H")
            begun = time.monotonic()
        assert time.monotonic() - begun < WAIT_S
        with suppress(ConnectionResetError):
            while reader.recv(1 << 16):
                pass
