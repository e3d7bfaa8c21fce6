"""A streamed reply: comments before its first frame, and an end where the client reads nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from camelid.server.http import reply
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, openai_body
from camelid.server.http.keys import ANONYMOUS
from camelid.server.http.reply import COMMENT, GONE, Handler, Responder, StreamReply

Send = Callable[[Any], Awaitable[None]]


class Scene:
    """A call whose client stays connected, its frames, and what was sent."""

    def __init__(self, frames: AsyncIterator[bytes]) -> None:
        self.sent = list[Any]()
        self.is_closed = False
        self._frames = frames
        self.blocks = False

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self.blocks:
            await asyncio.Event().wait()

    async def frames(self) -> AsyncIterator[bytes]:
        try:
            async for frame in self._frames:
                yield frame
        finally:
            self.is_closed = True

    async def run(self) -> Responder:
        scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
        call = Call(scope, self.receive, ANONYMOUS, "id", 100)

        async def handler(call: Call) -> StreamReply:
            return StreamReply(self.frames(), lambda error: b"failed: " + error.message.encode())

        async def prepare(call: Call) -> Handler:
            return handler

        responder = Responder(call, self.send, openai_body, {})
        await responder.run(prepare)
        return responder

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    async def until(self, n_bodies: int) -> None:
        """Waits until so many parts of the body are sent."""
        async with asyncio.timeout(20):
            while len(self.bodies) < n_bodies:
                await asyncio.sleep(0.001)


async def some(*frames: bytes, before: float = 0.0) -> AsyncIterator[bytes]:
    await asyncio.sleep(before)
    for frame in frames:
        yield frame


def test_frames_are_sent_in_order_and_the_body_ends() -> None:
    scene = Scene(some(b"1", b"2", b"3"))
    assert asyncio.run(scene.run()).status == 200
    assert scene.bodies == [b"1", b"2", b"3", b""]
    assert scene.is_closed


def test_no_frames_are_an_empty_body() -> None:
    scene = Scene(some())
    asyncio.run(scene.run())
    assert scene.bodies == [b""]


def test_comments_keep_the_connection_until_the_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "COMMENT_S", 0.02)

    async def late() -> AsyncIterator[bytes]:
        await scene.until(3)
        yield b"1"
        await asyncio.sleep(0.1)  # after the first frame, a pause brings no comment
        yield b"2"

    scene = Scene(late())
    asyncio.run(scene.run())
    *comments, one, two, end = scene.bodies
    assert (one, two, end) == (b"1", b"2", b"")
    assert 3 <= len(comments) <= 4
    assert set(comments) == {COMMENT}


@pytest.mark.faults
@pytest.mark.parametrize("at", ["first frame", "later frame", "comment"])
def test_a_client_that_reads_nothing_is_gone(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    monkeypatch.setattr(reply, "BLOCKED_S", 0.08)
    monkeypatch.setattr(reply, "COMMENT_S", 0.01)
    scene = Scene(some(before=9))

    async def frames() -> AsyncIterator[bytes]:
        if at == "comment":
            scene.blocks = True
            await asyncio.sleep(9)
        scene.blocks = at == "first frame"
        yield b"1"
        scene.blocks = True
        yield b"2"

    scene._frames = frames()
    responder = asyncio.run(asyncio.wait_for(scene.run(), 5))
    assert responder.status == GONE
    assert scene.is_closed, "the request would go on without a reader"


def test_a_slow_answer_is_no_blocked_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "BLOCKED_S", 0.04)

    async def frames() -> AsyncIterator[bytes]:
        for frame in (b"1", b"2"):
            await asyncio.sleep(0.15)
            yield frame

    scene = Scene(frames())
    assert asyncio.run(scene.run()).status == 200
    assert scene.bodies == [b"1", b"2", b""]


def test_an_error_after_the_first_byte_is_the_last_frame() -> None:
    async def frames() -> AsyncIterator[bytes]:
        yield b"1"
        raise ApiError(503, "why", code="c")

    scene = Scene(frames())
    responder = asyncio.run(scene.run())
    assert scene.bodies == [b"1", b"failed: why", b""]
    assert responder.error
    assert responder.error.code == "c"


def test_a_cancelled_server_task_stays_cancelled() -> None:
    async def main() -> bool:
        scene = Scene(some(before=9))
        task = asyncio.ensure_future(scene.run())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return scene.is_closed

    assert asyncio.run(main())
