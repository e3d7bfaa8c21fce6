"""Faults between request and engine: requests that end with an error leave the bits of all others alone."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import pytest
from tests.support.served_here import ServedHere, served_here, until
from tests.support.undisturbed import undisturbed, witness_of

from camelid.errors import BackendError
from camelid.server.http import listen
from camelid.server.service.limits import Limits

pytestmark = pytest.mark.faults
PATH = "/v1/chat/completions"
STORY: list[Any] = [{"role": "user", "content": "Tell me a long story."}]
LONG: dict[str, Any] = {"messages": STORY, "max_tokens": 900, "ignore_eos": True}
STEP_S = 5e-3  # so that both requests are in a step when the third waits, on a busy machine too
TCP_REPAIR = 19  # tcp(7): a socket closed in this mode sends nothing


@pytest.fixture
def served() -> Iterator[ServedHere]:
    with served_here(parallel=2, max_queue=4) as running:
        yield running


@pytest.mark.parametrize("when", ["run", "read"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_step_that_fails_ends_its_requests_alone(
    served: ServedHere, monkeypatch: pytest.MonkeyPatch, when: str, streams: bool
) -> None:
    """Two requests are in the step, a third waits; later ones may not find rows of the failed step."""
    ask = witness_of(served.http)
    alone, backend = ask(), served.engine.backend
    plain, failing, raised = getattr(backend, when), list[int](), list[int]()

    def fails(*arguments: Any) -> Any:
        if failing:
            raised.append(failing.pop())
            raise BackendError("a planted fault", backend="cpu")
        if not raised:
            sleep(STEP_S)
        return plain(*arguments)

    monkeypatch.setattr(backend, when, fails)
    with ThreadPoolExecutor(3) as pool:
        caught = [pool.submit(served.http.post, PATH, json={**LONG, "stream": streams}) for _ in range(2)]
        until(lambda: served.engine.n_running == 2)
        waiting = pool.submit(ask)
        until(lambda: served.engine.n_waiting == 1)
        failing.append(1)
        assert waiting.result() == alone
        for reply in (each.result() for each in caught):
            assert reply.status_code == (200 if streams else 500)
            assert "planted fault" in reply.text
            assert reply.text.count("[DONE]") == 0
    assert [ask() for _ in range(3)] == [alone] * 3
    served.wait_idle()


def test_a_prompt_larger_than_the_kv_cache_is_refused_with_the_numbers() -> None:
    with served_here(parallel=2, kv_rows=512) as served, undisturbed(served.http):
        reply = served.http.post(
            PATH, json={**LONG, "messages": [{"role": "user", "content": "llama " * 700}]}
        )
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (400, "context_length_exceeded"), error
        assert "512" in error["message"]


def test_more_requests_than_the_kv_cache_holds_all_end_whole() -> None:
    """Sequences are preempted and computed again; their answers keep their bits."""
    body = {**LONG, "max_tokens": 300, "seed": 5, "temperature": 1.0, "logprobs": True, "top_logprobs": 3}
    with served_here(parallel=4, kv_rows=512) as served, ThreadPoolExecutor(4) as pool:

        def choice(_: int) -> Any:
            return served.http.post(PATH, json=body).json()["choices"][0]

        alone = choice(0)
        assert list(pool.map(choice, range(4))) == [alone] * 4
        assert served.engine.counters.preemptions > 0
        served.wait_idle()


def test_the_time_limit_covers_the_grammar() -> None:
    """The limit holds for another model than the witness asks."""
    names = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(2000)}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": names}}
    with served_here(others={"limited": "cria"}) as served:
        assert served.http.post(
            PATH, json={"model": "limited", "messages": STORY, "max_tokens": 1}
        ).is_success
        limited = served.server.models.find("limited").service
        assert limited is not None
        limited.limits = Limits(timeout_s=0.5)
        with undisturbed(served.http):
            asked = {"model": "limited", "messages": STORY, "response_format": form}
            reply = served.http.post(PATH, json=asked)
        assert (reply.status_code, reply.json()["error"]["code"]) == (408, "timeout"), reply.text


def vanish(connection: socket.socket) -> None:
    """Closes a connection without a packet, as a machine that loses its power."""
    try:
        connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except OSError:
        pytest.skip("not on this platform: TCP_REPAIR needs Linux and CAP_NET_ADMIN")
    connection.close()


@pytest.mark.parametrize("streams", [True, False])
def test_a_peer_that_vanishes_is_given_up(monkeypatch: pytest.MonkeyPatch, streams: bool) -> None:
    """Without a stream the server writes nothing meanwhile: only a probe finds the peer gone."""
    monkeypatch.setitem(listen.SILENCE, "TCP_KEEPIDLE", 1)
    with served_here(parallel=1) as served:
        data = json.dumps({**LONG, "n": 16, "stream": streams}).encode()
        connection = served.connect()
        head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        until(lambda: served.engine.n_running > 0)
        vanish(connection)
        served.wait_idle()
        assert served.engine.counters.decode_rows < 16 * 900
