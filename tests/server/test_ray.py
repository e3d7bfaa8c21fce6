"""Replicas in Ray: the router's choice, its bounded memory, and replies through gate and replica."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("ray.serve", reason="needs Ray: pip install 'camelid[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Ray's own warnings are not ours

from ray.exceptions import RayActorError  # noqa: E402

from camelid.errors import RequestError  # noqa: E402
from camelid.ray import Autoscaling, app  # noqa: E402
from camelid.ray.gate import Relay  # noqa: E402
from camelid.ray.heads import BLOCK_CHARS, MAX_BLOCKS, Heads, chain, head_of  # noqa: E402
from camelid.ray.router import ranked  # noqa: E402

PORT = 8312
ROOT = Path(__file__).parents[2]


def test_equal_beginnings_have_equal_hashes() -> None:
    one, other = chain("a" * 300 + "b" * 300), chain("a" * 300 + "c" * 300)
    assert one[:2] == other[:2]
    assert not set(one[2:]) & set(other[2:])


def test_a_head_is_bounded_and_ignores_options() -> None:
    long = "x" * (BLOCK_CHARS * MAX_BLOCKS * 2)
    bodies = [json.dumps({"prompt": long, "max_tokens": n}).encode() for n in (1, 2)]
    assert head_of(bodies[0]) == head_of(bodies[1])
    assert len(head_of(bodies[0])) == MAX_BLOCKS


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"[" * 100_000])
def test_a_body_that_is_no_object_has_no_head(body: bytes) -> None:
    assert head_of(body) == ()


def test_memory_of_heads_is_bounded_and_keeps_beginnings() -> None:
    heads = Heads(most=4)
    heads.add((1, 2, 3))
    heads.add((1, 7, 8))
    assert heads.match((1, 7, 8)) == 3
    assert heads.match((1, 2, 3)) == 2
    assert len(heads.latest(100)) == 4


@pytest.mark.parametrize(
    ("matches", "loads", "order"),
    [
        ([0, 9], [0, 3], [1, 0]),  # the best match, though busier
        ([0, 9], [0, 5], [0, 1]),  # too busy
        ([1, 0], [2, 1], [1, 0]),  # a small match does not count
        ([4, 8, 8], [0, 2, 1], [2, 0, 1]),  # of equal matches the emptier
    ],
)
def test_order_of_replicas(matches: list[int], loads: list[int], order: list[int]) -> None:
    assert ranked(matches, loads, 20, slack=4) == order


def test_equal_replicas_take_turns() -> None:
    assert [ranked([0, 0, 0], [1, 1, 1], 0, slack=4, start=i)[0] for i in range(4)] == [0, 1, 2, 0]
    assert ranked([0, 0, 0], [2, 1, 1], 0, slack=4, start=2) == [2, 1, 0]


@pytest.mark.parametrize(
    ("path", "type", "beginning"),
    [
        ("/api/chat", "application/x-ndjson", b'{"error":'),
        ("/v1/messages", "text/event-stream", b"event: error"),
    ],
)
def test_a_lost_replica_is_told_in_the_replys_own_form(path: str, type: str, beginning: bytes) -> None:  # noqa: A002
    """After its first bytes, in one more line or event; the reply then ends."""

    class Replies:
        async def __aiter__(self) -> AsyncIterator[list[Any]]:
            headers = [(b"content-type", type.encode())]
            yield [{"type": "http.response.start", "status": 200, "headers": headers}]
            yield [{"type": "http.response.body", "body": b"first", "more_body": True}]
            raise RayActorError

    sent = list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    asyncio.run(Relay(Replies(), path, "id")({"type": "http"}, receive, send))
    assert [message["type"] for message in sent] == ["http.response.start", *["http.response.body"] * 2]
    last = sent[-1]
    assert last["body"].replace(b" ", b"").startswith(beginning.replace(b" ", b""))
    assert (b"lost" in last["body"], last["body"].endswith(b"\n"), last["more_body"]) == (True, True, False)


def test_unknown_load_option_is_refused_before_anything_starts() -> None:
    with pytest.raises(RequestError, match="unknown"):
        app("cria", backened="cpu")


def test_autoscaling_aims_at_the_engines_rows() -> None:
    replica = app("cria", replicas=Autoscaling(max_replicas=3), parallel=6)._bound_deployment.init_args[0]
    config = replica._bound_deployment._deployment_config.autoscaling_config
    assert (config.target_ongoing_requests, config.min_replicas, config.max_replicas) == (6, 1, 3)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    import ray
    from ray import serve

    paths = os.pathsep.join(str(ROOT / name) for name in ("core", "native"))
    env = {"env_vars": {"PYTHONPATH": paths}}
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=env)
    try:
        serve.start(http_options={"port": PORT})
        serve.run(app("cria", replicas=2, backend="reference", parallel=1, max_queue=1))
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60) as client:
            yield client
    finally:
        serve.shutdown()
        ray.shutdown()


CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}


def test_reply_whole_and_streamed(client: httpx.Client) -> None:
    whole = client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "mine"})
    assert whole.status_code == 200
    assert whole.headers.get_list("x-request-id") == ["mine"]
    text = whole.json()["choices"][0]["message"]["content"]
    streamed = client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    frames = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
    parts = [choice["delta"].get("content") or "" for f in frames for choice in json.loads(f)["choices"]]
    assert text
    assert "".join(parts) == text


def test_errors_keep_the_servers_form(client: httpx.Client) -> None:
    assert client.get("/nowhere").status_code == 404
    reply = client.post("/v1/chat/completions", json={"messages": []})
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_prompt_returns_to_the_replica_that_knows_it(client: httpx.Client) -> None:
    chats = [
        CHAT | {"max_tokens": 1, "messages": [{"role": "user", "content": f"{topic} " * 60}]}
        for topic in ("sun", "sea", "oak", "fox")
    ]
    for _ in range(3):
        replies = [client.post("/v1/chat/completions", json=chat) for chat in chats]
    cached = [reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
    assert min(cached) > 50


def places() -> int:
    """Requests under way on the replicas, the most of some looks at each."""
    from ray import serve

    handle = serve.get_deployment_handle("replica", "default")
    return max(handle.record_routing_stats.remote().result(timeout_s=30)["n_places"] for _ in range(6))


def settled(wanted: bool) -> bool:
    """True once requests are, or are not, under way."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if bool(places()) == wanted:
            return True
        time.sleep(0.05)
    return False


def test_a_client_that_leaves_frees_its_units(client: httpx.Client) -> None:
    """A stream and a plain reply of the longest answers."""
    long = CHAT | {"max_tokens": 400, "ignore_eos": True}
    assert settled(wanted=False)  # the first call by a handle takes longer than the answer
    with client.stream("POST", "/v1/chat/completions", json=long | {"stream": True}) as reply:
        parts = reply.iter_raw()  # collected, it would close the connection
        next(parts)
        assert settled(wanted=True)
    assert settled(wanted=False), "the stream goes on without its reader"
    with pytest.raises(httpx.ReadTimeout):
        client.post("/v1/chat/completions", json=long, timeout=0.5)
    assert settled(wanted=False), "the plain request goes on without its reader"


def test_a_full_application_says_when_to_come_again(client: httpx.Client) -> None:
    """Two replicas hold two requests each, and one waits."""
    with ThreadPoolExecutor(16) as pool:
        body = CHAT | {"max_tokens": 40, "ignore_eos": True}
        replies = list(pool.map(lambda _: client.post("/v1/chat/completions", json=body), range(16)))
    full = [reply for reply in replies if reply.status_code == 503]
    assert {reply.status_code for reply in replies} == {200, 503}
    assert {reply.json()["error"]["code"] for reply in full} == {"server_is_overloaded"}
    assert all(1 <= int(reply.headers["retry-after"]) <= 60 for reply in full)
    assert len({r.json()["choices"][0]["message"]["content"] for r in replies if r not in full}) == 1
