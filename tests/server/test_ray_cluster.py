"""One Ray cluster of two nodes: replicas that are scaled and killed, and a model in stages.

The tests run in this order: those of replicas share an application, those of stages replace it. Ordinary
runs hold what one replica shows, and the bits of stages.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import httpx
import pytest

pytest.importorskip("ray.serve", reason="needs Ray: pip install 'camelid[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Ray's own warnings are not ours

import ray  # noqa: E402
import ray.serve as serve  # noqa: E402
from tests.support.ray_load import (  # noqa: E402
    CHAT,
    FRONT,
    N_TOKENS,
    Tally,
    cluster,
    load,
    n_running,
    pids_of,
)
from tests.support.stage_answers import answers  # noqa: E402

import camelid.ray  # noqa: E402
from camelid.loading.options import LoadOptions  # noqa: E402
from camelid.loading.start import start  # noqa: E402
from camelid.ray.stages import Cut, Stages  # noqa: E402

PORT = 8312
URL = f"http://127.0.0.1:{PORT}"
SEAT = {"num_cpus": 0.5, "resources": {"seat": 1}}
REPLICA, STAGE = "ray::ServeReplica:default:replica", "ray::Stage"
SCALED_S = 120.0  # until a burst must have a second replica; it takes 15 s
GONE_S = 30.0  # until the processes of an ended application must be gone
RESPONSES = "/v1/responses"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    quick = {"health_check_period_ms": 1000}  # by default 3 s, five of which tell of a dead node
    with cluster(PORT, seats=2, is_small=True, system=quick) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def alone(nodes: Any) -> Iterator[httpx.Client]:
    """A client of an application of one replica, which may become two."""
    bounds = camelid.ray.Autoscaling(max_replicas=2, upscale_delay_s=0, downscale_delay_s=600)
    words = {"backend": "reference", "parallel": 1, "actor_options": SEAT, "gate_options": FRONT}
    serve.run(camelid.ray.app("cria", replicas=bounds, max_queue=4, **words))
    with httpx.Client(base_url=URL, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def counts(alone: httpx.Client) -> list[int]:
    """The replicas before and after a burst."""
    before = n_running()
    with burst(alone):
        return [before, running_soon(2)]


def running_soon(n: int) -> int:
    """The replicas that run, once they are `n` or SCALED_S is over."""
    until = time.monotonic() + SCALED_S
    while n_running() < n and time.monotonic() < until:
        time.sleep(0.2)
    return n_running()


@contextmanager
def burst(client: httpx.Client) -> Iterator[None]:
    """One request at a time, of two choices: Ray counts one, the engine's queue two."""
    ended = Event()

    def ask() -> None:
        while not ended.is_set():
            client.post(CHAT, json=HELLO | {"max_tokens": 200, "ignore_eos": True, "n": 2}).raise_for_status()

    asking = Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()


@pytest.fixture(scope="module")
def client(alone: httpx.Client, counts: list[int]) -> httpx.Client:
    """A client of two replicas."""
    return alone


@pytest.mark.exhaustive
def test_a_queue_on_the_engine_starts_a_second_replica(counts: list[int]) -> None:
    assert counts == [1, 2]


def test_reply_whole_and_streamed(alone: httpx.Client) -> None:
    whole = alone.post(CHAT, json=HELLO, headers={"x-request-id": "mine"})
    assert whole.status_code == 200
    assert whole.headers.get_list("x-request-id") == ["mine"]
    text = whole.json()["choices"][0]["message"]["content"]
    streamed = alone.post(CHAT, json=HELLO | {"stream": True})
    frames = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
    parts = [choice["delta"].get("content") or "" for f in frames for choice in json.loads(f)["choices"]]
    assert text
    assert "".join(parts) == text


def test_errors_keep_the_servers_form(alone: httpx.Client) -> None:
    assert alone.get("/nowhere").status_code == 404
    reply = alone.post(CHAT, json={"messages": []})
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_slots_are_refused_by_name_and_a_wish_for_one_is_not(alone: httpx.Client) -> None:
    replies = [alone.get("/slots"), alone.post("/slots/0?action=erase", json={})]
    assert [reply.status_code for reply in replies] == [501, 501]
    assert all("/slots" in reply.json()["error"]["message"] for reply in replies)
    assert alone.post("/completion", json={"prompt": "a", "n_predict": 1, "id_slot": 0}).status_code == 200


@pytest.mark.exhaustive
def test_a_prompt_returns_to_the_replica_that_knows_it(client: httpx.Client) -> None:
    chats = [
        HELLO | {"max_tokens": 1, "messages": [{"role": "user", "content": f"{topic} " * 60}]}
        for topic in ("sun", "sea", "oak", "fox")
    ]
    for _ in range(3):
        replies = [client.post(CHAT, json=chat) for chat in chats]
    cached = [reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
    assert min(cached) > 50


def stored(client: httpx.Client) -> dict[str, str]:
    """A response of each of the two replicas, by the replica's tag."""
    found = dict[str, str]()
    for i in range(20):
        found |= answered(client, {"input": f"Tell me {i}."})
        if len(found) == 2:
            return found
    raise AssertionError(found)


def answered(client: httpx.Client, fields: dict[str, Any]) -> dict[str, str]:
    """The tag and the id of one response."""
    id = client.post(RESPONSES, json={**fields, "max_output_tokens": 4}).raise_for_status().json()["id"]
    tagged = re.match(r"resp_([0-9a-f]{8})_", id)
    assert tagged, id
    return {tagged[1]: id}


@pytest.mark.exhaustive
def test_a_stored_response_is_found_wherever_it_lives(client: httpx.Client) -> None:
    ids = stored(client)
    for _ in range(3):
        for tag, id in ids.items():
            assert list(answered(client, {"input": "And then?", "previous_response_id": id})) == [tag]
            counted = {"input": "And then?", "previous_response_id": id}
            assert client.post(f"{RESPONSES}/input_tokens", json=counted).status_code == 200
            assert client.get(f"{RESPONSES}/{id}").json()["id"] == id
            assert client.get(f"{RESPONSES}/{id}/input_items").status_code == 200
    for id in ids.values():
        assert client.delete(f"{RESPONSES}/{id}").json()["deleted"]
        assert client.get(f"{RESPONSES}/{id}").status_code == 404


def places() -> int:
    """Requests under way on the replicas, the most of some looks at each."""
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


@pytest.mark.exhaustive
def test_a_client_that_leaves_frees_its_units(client: httpx.Client) -> None:
    """A stream and a plain reply of the longest answers."""
    long = HELLO | {"max_tokens": 400, "ignore_eos": True}
    assert settled(wanted=False)  # the first call by a handle takes longer than the answer
    with client.stream("POST", CHAT, json=long | {"stream": True}) as reply:
        parts = reply.iter_raw()  # collected, it would close the connection
        next(parts)
        assert settled(wanted=True)
    assert settled(wanted=False), "the stream goes on without its reader"
    with pytest.raises(httpx.ReadTimeout):
        client.post(CHAT, json=long, timeout=0.5)
    assert settled(wanted=False), "the plain request goes on without its reader"


@pytest.mark.exhaustive
def test_a_full_application_says_when_to_come_again(client: httpx.Client) -> None:
    """Two replicas hold two requests each, and four wait."""
    with ThreadPoolExecutor(20) as pool:
        body = HELLO | {"max_tokens": 40, "ignore_eos": True}
        replies = list(pool.map(lambda _: client.post(CHAT, json=body), range(20)))
    full = [reply for reply in replies if reply.status_code == 503]
    assert {reply.status_code for reply in replies} == {200, 503}
    assert {reply.json()["error"]["code"] for reply in full} == {"server_is_overloaded"}
    assert all(1 <= int(reply.headers["retry-after"]) <= 60 for reply in full)
    assert len({r.json()["choices"][0]["message"]["content"] for r in replies if r not in full}) == 1


@pytest.mark.exhaustive
def test_a_replica_is_killed_under_load(nodes: Any, client: httpx.Client) -> None:
    """Every answer is whole at last, every attempt that failed says why, and stored responses say so too."""
    n, ids = 16, stored(client)
    tally, _ = load(URL, n, lambda: os.kill(pids_of(nodes, REPLICA)[0], signal.SIGKILL), n_clients=4)
    assert not tally.lost
    assert (len(tally.texts), tally.n_tokens) == (n, n * N_TOKENS)
    assert tally.errors, "nothing ran on the replica"
    assert set(tally.errors) <= {"503 replica_lost", "in the stream: replica_lost"}
    replies = [asked_again(client, f"{RESPONSES}/{id}") for id in ids.values()]
    assert sorted(reply.status_code for reply in replies) == [200, 404]
    messages = [reply.json()["error"]["message"] for reply in replies if reply.status_code == 404]
    assert messages[0].endswith("the replica that held it has ended")
    assert running_soon(2) == 2, "Ray started no other replica"


def asked_again(client: httpx.Client, path: str) -> httpx.Response:
    """The reply to a GET, asked again while the router does not know yet that the replica is lost."""
    until = time.monotonic() + GONE_S
    while (reply := client.get(path)).status_code == 503 and time.monotonic() < until:
        assert reply.json()["error"]["code"] == "replica_lost"
        time.sleep(float(reply.headers["retry-after"]))
    return reply


OPTIONS = LoadOptions(backend="cpu", threads=1, parallel=6)
N_REQUESTS = 48


@pytest.mark.usefixtures("nodes")
def test_bits_equal_one_process() -> None:
    """With a step under way in each stage, and each stage on a node of its own."""

    async def staged() -> Any:
        stages = Stages(Cut(2, "cpu", {**SEAT, "scheduling_strategy": "SPREAD"}))
        try:
            running = await start("cria", OPTIONS, stages=stages.backends)
            found = await answers(running)
            seen = running.backend.memory().counters["stages_at_once"]
            places = ray.get([actor.node.remote() for actor in stages._actors])
            await running.close()
        finally:
            stages.close()
        assert (seen, len(set(places))) == (2, 2)
        return found

    async def whole() -> Any:
        running = await start("cria", OPTIONS)
        found = await answers(running)
        await running.close()
        return found

    assert asyncio.run(staged()) == asyncio.run(whole())


@pytest.fixture(scope="module")
def expected(nodes: Any) -> Iterator[dict[int, str]]:
    """The texts of a quiet run of the application."""
    serve.delete("default")
    words = {"backend": "cpu", "threads": 1, "parallel": 8, "actor_options": FRONT, "gate_options": FRONT}
    serve.run(camelid.ray.app("cria", stages=2, stage_options=SEAT, **words))
    assert len(pids_of(nodes, STAGE)) == 2
    yield load(URL, N_REQUESTS)[0].texts
    serve.delete("default")
    until = time.monotonic() + GONE_S
    while (left := pids_of(nodes, STAGE)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left, "stages outlive their application"


def check(tally: Tally, expected: dict[int, str]) -> None:
    """Every answer is whole at last, with its bits; every attempt that failed says why."""
    assert not tally.lost
    assert tally.texts == expected
    assert tally.errors
    assert set(tally.errors) <= {"503 device_lost", "503 engine_failed", "in the stream: device_lost"}


@pytest.mark.exhaustive
def test_a_stage_is_killed_under_load(nodes: Any, expected: dict[int, str]) -> None:
    before = pids_of(nodes, STAGE)
    tally, _ = load(URL, N_REQUESTS, lambda: os.kill(before[0], signal.SIGKILL))
    check(tally, expected)
    after = pids_of(nodes, STAGE)
    assert (len(after), len(set(before) & set(after))) == (2, 1), "Ray started no other stage"


@pytest.mark.exhaustive
def test_a_node_is_killed_under_load(nodes: Any, expected: dict[int, str]) -> None:
    """Its stage moves to the node that is left."""
    tally, _ = load(
        URL, N_REQUESTS, lambda: nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
    )
    check(tally, expected)
    assert len(pids_of(nodes, STAGE)) == 2
