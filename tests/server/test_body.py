"""A body within bounds of time and bytes: drip-fed ones end, and all bodies together are bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.support.served_here import ServedHere, served_here, until

from camelid.server.http import body
from camelid.server.http.body import BODY_S, MIN_RATE, Bodies, ClientGone, read_body
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, openai_body
from camelid.server.http.guard import MIN_BODIES, Guard
from camelid.server.http.keys import ANONYMOUS, KeyRing
from camelid.server.http.reply import Handler, JsonReply, Responder

PATH = "/v1/chat/completions"
MB = 1 << 20
Receive = Callable[[], Awaitable[Any]]


class ToldTime(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector.select = self._jump  # type: ignore[attr-defined]

    def _jump(self, seconds: float | None) -> list[Any]:
        assert seconds is not None, "no timer is left"
        self.now += seconds
        return []

    def time(self) -> float:
        return self.now


def read(parts: Iterator[tuple[float, bytes]], most: int = 64 * MB) -> tuple[int, float]:
    """Reads parts that come after so many seconds each; returns the size, and the time that it took."""

    async def receive() -> Any:
        seconds, part = next(parts)
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": part, "more_body": bool(part)}

    async def main() -> tuple[int, float]:
        try:
            return len(await read_body(receive, most)), asyncio.get_running_loop().time()
        except ApiError as error:
            return -error.status, asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=ToldTime) as runner:
        return runner.run(main())


def steady(every_s: float, part: bytes, n: int = 1 << 30) -> Iterator[tuple[float, bytes]]:
    yield from ((every_s, part) for _ in range(n))
    yield (every_s, b"")


def test_a_drip_fed_body_ends_in_time() -> None:
    status, seconds = read(steady(1.0, b"x"))
    assert status == -408
    assert BODY_S <= seconds < BODY_S + 2


def test_a_body_that_stops_ends_in_time_however_fast_it_began() -> None:
    status, seconds = read(iter([(0.0, b"x" * MB), (10 * BODY_S, b"x")]))
    assert (status, seconds) == (-408, BODY_S)


def test_a_slow_large_body_is_read() -> None:
    size, seconds = read(steady(1.0, b"x" * MIN_RATE, 200))
    assert size == 200 * MIN_RATE
    assert seconds > 6 * BODY_S


def test_a_rate_below_the_least_ends() -> None:
    status, seconds = read(steady(1.0, b"x" * (MIN_RATE // 2)))
    assert status == -408
    assert 2 * BODY_S - 2 <= seconds <= 2 * BODY_S + 2


def test_too_many_bytes_are_refused_at_once() -> None:
    assert read(steady(0.0, b"x" * MB), most=2 * MB) == (-413, 0.0)


def test_a_client_that_leaves_is_gone() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        asyncio.run(read_body(receive, 10))


def test_all_bodies_together_are_bounded_and_their_bytes_come_back() -> None:
    bodies = Bodies(100)
    with bodies.hold() as first:
        first(60)
        with bodies.hold() as second:
            second(40)
            with pytest.raises(ApiError) as refused:
                second(1)
            assert refused.value.status == 503
            assert "retry-after" in refused.value.headers
        assert bodies.n_held == 60
        first(40)
    assert bodies.n_held == 0


def test_the_bound_of_all_bodies_has_room_for_many_of_the_largest() -> None:
    def most(max_body: int) -> int:
        return Guard(KeyRing(), max_body, frozenset()).bodies.most

    assert most(1) == MIN_BODIES
    assert most(MIN_BODIES) == 16 * MIN_BODIES


@pytest.fixture
def served() -> Iterator[ServedHere]:
    with served_here(max_body=MB) as running:
        yield running


def begin(connection: socket.socket, n_sent: int) -> None:
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n" % PATH.encode()
    connection.sendall(head + b" " * n_sent)


def test_unfinished_bodies_of_many_connections_are_bounded(served: ServedHere) -> None:
    bodies = served.server.guard.bodies
    bodies.most = 1_500_000
    with served.connect() as first, served.connect() as second:
        begin(first, 800_000)
        until(lambda: bodies.n_held == 800_000)
        begin(second, 800_000)
        status, *headers = second.recv(4096).split(b"\r\n")
        assert b" 503 " in status
        assert any(line.startswith(b"retry-after: ") for line in headers)
        until(lambda: bodies.n_held == 800_000)
        asked = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        assert served.http.post(PATH, json=asked).status_code == 200
    until(lambda: bodies.n_held == 0)


def test_bytes_are_held_until_the_reply_ends() -> None:
    bodies, seen = Bodies(100), list[int]()
    messages = iter([{"type": "http.request", "body": b"x" * 60, "more_body": False}])

    async def receive() -> Any:
        return next(messages, None) or await asyncio.Event().wait()

    async def main() -> None:
        scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
        call = Call(scope, receive, ANONYMOUS, "id", 100)

        async def send(message: Any) -> None:
            seen.append(bodies.n_held)

        async def answer(call: Call) -> JsonReply:
            return JsonReply(b"{}")

        async def prepare(call: Call) -> Handler:
            await call.read(bodies)
            return answer

        await Responder(call, send, openai_body, {}).run(prepare)

    asyncio.run(main())
    assert seen == [60, 60]
    assert bodies.n_held == 0


def test_a_drip_feeding_client_gets_408(served: ServedHere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "BODY_S", 0.5)
    monkeypatch.setattr(body, "MIN_RATE", 100 * MB)
    n_sent, reply = 0, b""
    with served.connect() as connection:
        begin(connection, 1)
        connection.settimeout(0.02)
        while not reply and n_sent < 500:
            connection.sendall(b" ")
            n_sent += 1
            try:
                reply = connection.recv(4096)
            except TimeoutError:
                continue
    assert b" 408 " in reply.split(b"\r\n")[0]
