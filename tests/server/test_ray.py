"""Replicas in Ray without a cluster: affinity, router, autoscaling policy, replies of the gate, options."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("ray.serve", reason="needs Ray: pip install 'camelid[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Ray's own warnings are not ours

from ray.exceptions import RayActorError  # noqa: E402
from ray.serve._private.common import (  # noqa: E402
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
)
from ray.serve.request_router import PendingRequest  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import Response  # noqa: E402

from camelid.errors import RequestError  # noqa: E402
from camelid.ray import Autoscaling, app  # noqa: E402
from camelid.ray.affinity import Affinity, affinity_of, tag_of  # noqa: E402
from camelid.ray.gate import MAX_BODIES, Gate, Relay  # noqa: E402
from camelid.ray.heads import BLOCK_CHARS, MAX_BLOCKS, Heads, chain, head_of  # noqa: E402
from camelid.ray.replica import MAX_BODY  # noqa: E402
from camelid.ray.router import AffinityRouter, ranked, tag  # noqa: E402
from camelid.ray.scaling import PLACES, replicas_for_places  # noqa: E402
from camelid.ray.stages import Cut  # noqa: E402
from camelid.server.http.call import INLINE_BYTES  # noqa: E402
from camelid.server.http.errors import ApiError  # noqa: E402
from camelid.server.http.keys import ANONYMOUS  # noqa: E402
from camelid.server.service.response_store import ResponseStore, StoredResponse  # noqa: E402


def test_equal_beginnings_have_equal_hashes() -> None:
    one, other = chain("a" * 300 + "b" * 300), chain("a" * 300 + "c" * 300)
    assert one[:2] == other[:2]
    assert not set(one[2:]) & set(other[2:])


def test_a_head_is_bounded_and_ignores_options() -> None:
    long = "x" * (BLOCK_CHARS * MAX_BLOCKS * 2)
    heads = [affinity_of("/completion", json.dumps({"prompt": long, "n": n}).encode()).head for n in (1, 2)]
    assert heads[0] == heads[1]
    assert len(heads[0]) == MAX_BLOCKS


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"[" * 100_000])
def test_a_body_that_is_no_object_has_no_affinity(body: bytes) -> None:
    assert affinity_of("/v1/responses", body) == Affinity()


@pytest.mark.parametrize(
    ("path", "fields", "home"),
    [
        ("/v1/responses", {"previous_response_id": "resp_0a1b2c3d_x"}, "0a1b2c3d"),
        ("/responses/input_tokens", {"previous_response_id": "resp_0a1b2c3d_x"}, "0a1b2c3d"),
        ("/v1/responses/resp_0a1b2c3d_x", {}, "0a1b2c3d"),
        ("/v1/responses/resp_0a1b2c3d_x/input_items", {}, "0a1b2c3d"),
        ("/v1/responses", {"previous_response_id": "resp_without-a-tag"}, ""),
        ("/v1/responses", {"previous_response_id": 7}, ""),
        ("/v1/responses", {"input": "resp_0a1b2c3d_x"}, ""),
        ("/v1/models/resp_0a1b2c3d_x", {}, ""),
    ],
)
def test_a_named_response_gives_its_home(path: str, fields: dict[str, Any], home: str) -> None:
    assert affinity_of(path, json.dumps(fields).encode()).home == home


def test_ids_lead_to_the_store_that_made_them() -> None:
    """A store says whether the response, or with it its replica, is unknown."""
    store = ResponseStore(tag=tag_of("some replica"))
    id = f"{store.prefix}x"
    assert affinity_of(f"/v1/responses/{id}", b"").home == store.tag
    store.add(ANONYMOUS, StoredResponse({"id": id}, (), ()))
    assert store.find(ANONYMOUS, id).body["id"] == id
    assert unknown(store, f"{store.prefix}y").endswith("deleted or dropped")
    assert unknown(store, "resp_0a1b2c3d_x").endswith("the replica that held it has ended")
    assert ResponseStore().prefix == "resp_"
    assert unknown(ResponseStore(), "resp_0a1b2c3d_x").endswith("deleted or dropped")


def unknown(store: ResponseStore, id: str) -> str:
    with pytest.raises(ApiError) as caught:
        store.find(ANONYMOUS, id)
    assert caught.value.status == 404
    return caught.value.message


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


DEPLOYMENT = DeploymentID(name="replica")


@dataclass(eq=False)
class Seen:
    """A replica of `n` places as Ray's routers see it."""

    name: str
    max_ongoing_requests: int = 1
    n: int = 0
    routing_stats: dict[str, Any] = field(default_factory=dict[str, Any])
    n_asked: int = 0

    @property
    def replica_id(self) -> ReplicaID:
        return ReplicaID(self.name, DEPLOYMENT)

    async def get_queue_len(self, *, deadline_s: float) -> int:
        self.n_asked += 1
        return self.n


class Routed:
    """A router of two replicas of one place each, and the requests that it routes."""

    def __init__(self) -> None:
        self.a, self.b = Seen("a"), Seen("b")
        self.router = AffinityRouter(DEPLOYMENT, DeploymentHandleSource.UNKNOWN)
        self.router.initialize_state()
        self.router.update_replicas(cast("list[Any]", [self.a, self.b]))
        self._n = 0

    def ask(self, home: str = "") -> asyncio.Future[Any]:
        """A request that waits for a replica."""
        self._n += 1
        metadata = RequestMetadata(request_id=str(self._n), internal_request_id=str(self._n))
        pending = PendingRequest([Affinity((), home)], {}, metadata)
        return asyncio.ensure_future(self.router._choose_replica_for_request(pending))

    def home(self, replica: Seen) -> str:
        return tag(cast("Any", replica))


async def soon(*requests: asyncio.Future[Any]) -> list[Any]:
    """The replicas of requests."""
    return await asyncio.wait_for(asyncio.gather(*requests), 30)


def test_a_named_response_waits_for_its_replica_and_stops_nobody() -> None:
    """Also with more such requests than Ray routes at a time."""

    async def run() -> None:
        routed = Routed()
        routed.a.n = 1
        waiting = [routed.ask(routed.home(routed.a)) for _ in range(8)]
        assert await soon(routed.ask()) == [routed.b]
        assert not any(each.done() for each in waiting)
        routed.a.n = 0
        assert await soon(*waiting) == [routed.a] * 8

    asyncio.run(run())


def test_a_named_response_goes_to_its_replica_though_another_is_emptier() -> None:
    async def run() -> None:
        routed = Routed()
        routed.a.max_ongoing_requests, routed.a.n = 9, 8
        assert await soon(*(routed.ask(routed.home(routed.a)) for _ in range(4))) == [routed.a] * 4

    asyncio.run(run())


def test_any_replica_tells_that_a_response_and_its_replica_are_gone() -> None:
    async def run() -> None:
        routed = Routed()
        routed.a.n = 1
        waiting = routed.ask(routed.home(routed.a))
        assert await soon(routed.ask("0a1b2c3d")) == [routed.b]
        routed.router.update_replicas(cast("list[Any]", [routed.b]))
        assert await soon(waiting) == [routed.b]

    asyncio.run(run())


def test_a_free_place_goes_to_the_request_that_waited_longest() -> None:
    async def run() -> None:
        routed = Routed()
        routed.a.n = routed.b.n = 1
        waiting, order = [routed.ask() for _ in range(3)], list[int]()
        await asyncio.sleep(1)  # Ray now looks for their places more seldom than for the next one's
        waiting.append(routed.ask())
        for i, each in enumerate(waiting):
            each.add_done_callback(lambda _, i=i: order.append(i))
        routed.b.n = 0
        await soon(*waiting)
        assert order == [0, 1, 2, 3]

    asyncio.run(run())


def test_full_replicas_are_asked_with_pauses() -> None:
    """Without them a router asks thousands of times a second."""

    async def run() -> None:
        routed = Routed()
        routed.a.n = routed.b.n = 1
        waiting = routed.ask()
        await asyncio.sleep(1)
        assert routed.a.n_asked < 30
        waiting.cancel()

    asyncio.run(run())


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


class Handle:
    """A handle of replicas that notes what a gate sends."""

    def __init__(self) -> None:
        self.sent = list[tuple[Affinity, dict[str, Any], bytes]]()

    def options(self, **_: Any) -> Handle:
        return self

    def remote(self, *sent: Any) -> Any:
        self.sent.append(sent)


def through(path: str, messages: list[dict[str, Any]], *, has_slots: bool) -> tuple[Response, Handle]:
    """The reply of a gate, and what it sent on."""
    scope = {"type": "http", "path": path, "method": "POST", "headers": []}

    async def receive() -> Any:
        return messages.pop(0)

    async def run() -> tuple[Response, Handle]:
        handle = Handle()
        gate = Gate(cast("Any", handle), has_slots=has_slots)
        return await gate(Request(scope, receive)), handle

    return asyncio.run(run())


def body_of(content: bytes) -> list[dict[str, Any]]:
    return [{"type": "http.request", "body": content, "more_body": False}]


@pytest.mark.parametrize("path", ["/slots", "/slots/0"])
def test_slots_are_refused_by_name_unless_the_replica_is_alone(path: str) -> None:
    refused, handle = through(path, body_of(b"{}"), has_slots=False)
    error = json.loads(bytes(refused.body))["error"]
    assert (refused.status_code, error["code"], "/slots" in error["message"]) == (501, 501, True)
    assert not handle.sent
    assert len(through(path, body_of(b"{}"), has_slots=True)[1].sent) == 1


def test_a_gate_sends_the_affinity_and_the_whole_body() -> None:
    body = b'{"previous_response_id": "resp_0a1b2c3d_x"}'
    parts = [*body_of(body[:9]), *body_of(body[9:])]
    parts[0]["more_body"] = True
    _, handle = through("/v1/responses", parts, has_slots=False)
    assert [(each[0].home, each[2]) for each in handle.sent] == [("0a1b2c3d", body)]


def test_a_gate_reads_a_long_body_beside_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[str]()

    def noted(path: str, body: bytes) -> Affinity:
        threads.append(threading.current_thread().name)
        return affinity_of(path, body)

    monkeypatch.setattr("camelid.ray.gate.affinity_of", noted)
    fields = {"messages": [{"role": "user", "content": "a" * INLINE_BYTES}]}
    _, handle = through("/v1/chat/completions", body_of(json.dumps(fields).encode()), has_slots=False)
    assert handle.sent[0][0].head == head_of(fields)
    through("/v1/chat/completions", body_of(b"{}"), has_slots=False)
    assert [name.startswith("camelid json") for name in threads] == [True, False]


def test_a_gate_sends_nothing_of_a_body_that_is_too_large_or_ends_early() -> None:
    large = [{"type": "http.request", "body": bytes(MAX_BODY // 2 + 1), "more_body": True}] * 2
    replies = [
        through("/v1/responses", list(large), has_slots=True),
        through("/v1/responses", [large[0], {"type": "http.disconnect"}], has_slots=True),
    ]
    assert [(reply.status_code, handle.sent) for reply, handle in replies] == [(413, []), (499, [])]


def test_a_gate_bounds_the_bodies_under_way_together() -> None:
    part = {"type": "http.request", "body": bytes(MAX_BODY), "more_body": True}

    async def run() -> tuple[int, int]:
        over = asyncio.Event()
        gate = Gate(cast("Any", Handle()), has_slots=True)
        scope = {"type": "http", "path": "/v1/responses", "method": "POST", "headers": []}

        def open_body(messages: list[dict[str, Any]]) -> asyncio.Task[Response]:
            async def receive() -> Any:
                if not messages:
                    await over.wait()
                return messages.pop() if messages else {"type": "http.disconnect"}

            return asyncio.create_task(gate(Request(scope, receive)))

        held = [open_body([part]) for _ in range(MAX_BODIES // MAX_BODY)]
        await asyncio.sleep(0.01)
        refused = (await open_body([{**part, "body": b"{}"}])).status_code
        over.set()
        await asyncio.gather(*held)
        return refused, (await open_body([*body_of(b"{}")])).status_code

    refused, status = asyncio.run(run())
    assert (refused, status) == (503, 200)


def test_unknown_load_option_is_refused_before_anything_starts() -> None:
    with pytest.raises(RequestError, match="unknown"):
        app("cria", backened="cpu")


def test_autoscaling_is_by_our_policy_over_the_engines_rows() -> None:
    replica = app("cria", replicas=Autoscaling(max_replicas=3), parallel=6)._bound_deployment.init_args[0]
    config = replica._bound_deployment._deployment_config.autoscaling_config
    assert (config.target_ongoing_requests, config.min_replicas, config.max_replicas) == (6, 1, 3)
    policy = config.policy.get_policy()
    assert policy(context([12, 3], 4)) == replicas_for_places(context([12, 3], 4))


def context(places: list[float], waiting: float | None) -> Any:
    """The input of a scaling policy: means of each replica's places, and of the requests in the gate."""
    metrics = {PLACES: dict(enumerate(places)), "running_requests": {0: 99.0}} if places else None
    config = SimpleNamespace(target_ongoing_requests=6)
    return SimpleNamespace(aggregated_metrics=metrics, total_queued_requests=waiting, config=config)


@pytest.mark.parametrize(
    ("places", "waiting", "replicas"),
    [
        ([6.0], 0.0, 1),  # full, and nothing waits
        ([6.0000000001], 0.0, 1),  # a mean's last digit
        ([6.0], 0.3, 1.05),  # Ray rounds up
        ([12.0], 8.0, 3.33),
        ([2.0, 3.0], 0.0, 0.83),
        ([], None, 0),  # nothing reported yet; Ray keeps its least number
    ],
)
def test_replicas_follow_the_places(places: list[float], waiting: float | None, replicas: float) -> None:
    assert replicas_for_places(context(places, waiting)) == (replicas, {})


@pytest.mark.parametrize(
    ("replicas", "has_slots"),
    [(1, True), (2, False), (Autoscaling(max_replicas=1), True), (Autoscaling(), False)],
)
def test_only_a_replica_that_stays_alone_has_slots(replicas: int | Autoscaling, has_slots: bool) -> None:
    assert app("cria", replicas=replicas)._bound_deployment.init_kwargs == {"has_slots": has_slots}


@pytest.mark.parametrize(
    ("words", "field"), [({"stages": 0}, "stages"), ({"placement": "NEAR"}, "placement")]
)
def test_what_does_not_exist_is_refused_before_anything_starts(words: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        app("cria", **words)
    assert caught.value.field == field


def test_each_stage_has_a_place() -> None:
    """A bundle for the replica, and one for each stage with its resources."""
    options = {"num_cpus": 3, "memory": 7, "resources": {"seat": 1}}
    group = Cut(2, "cpu", options, "STRICT_SPREAD").group({"num_cpus": 1, "num_gpus": 0})
    own = {"CPU": 3.0, "memory": 7.0, "seat": 1.0}
    assert group["placement_group_bundles"] == [{"CPU": 1.0}, own, own]
    assert group["placement_group_strategy"] == "STRICT_SPREAD"
    assert Cut().group({"num_cpus": 1}) == {}
