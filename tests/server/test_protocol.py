"""Bytes of a connection that are no body: heads, trailers, chunk extensions and requests sent ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from camelid.server.http import protocol
from camelid.server.http.protocol import MAX_AHEAD, MAX_HEAD_BYTES, BoundedProtocol

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
PART_S = 0.02  # so that two writes arrive as two
LONGEST_S = 20.0
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Scene:
    """A server of one small application, whose reply is the size of the body."""

    def __init__(self, app: Any = None, *, reads: bool = True) -> None:
        self.app, self.reads = app or self.answer, reads
        self.scopes = list[Any]()
        self.protocols = list[BoundedProtocol]()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        size, more = 0, self.reads
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        await self.may_answer.wait()
        content = str(size).encode()
        length = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": content})

    def made(self, config: uvicorn.Config) -> BoundedProtocol:
        self.protocols.append(BoundedProtocol(config, ServerState(), {}))
        return self.protocols[-1]

    async def run(self, talk: Talk) -> None:
        config = uvicorn.Config(self.app, lifespan="off", log_config=None, ws="none", interface="asgi3")
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: self.made(config), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        try:
            async with asyncio.timeout(LONGEST_S):
                await talk(reader, writer)
        finally:
            writer.close()
            server.close()


async def reply_of(reader: asyncio.StreamReader) -> bytes:
    """Status line, headers and content of one reply."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    return head + await reader.readexactly(int(length.partition(b":")[2]))


async def flooded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, part: bytes) -> int:
    """Sends until the server closes the connection; returns the number of bytes sent."""
    n_sent = 0
    try:
        while not reader.at_eof() and n_sent < 64 << 20:
            writer.write(part)
            await writer.drain()
            n_sent += len(part)
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    return n_sent


def kept(connection: BoundedProtocol) -> int:
    """Bytes of header fields that a connection holds."""
    return sum(len(name) + len(value) for name, value in connection.headers)


@pytest.mark.parametrize("is_answered", [True, False], ids=["after the reply", "before it"])
@pytest.mark.parametrize(
    "part", [b"name: value\r\n" * 1000, b"x" * 10_000], ids=["trailers", "a trailer without end"]
)
def test_trailers_are_dropped_and_bounded(part: bytes, *, is_answered: bool) -> None:
    async def main() -> None:
        scene = Scene(reads=not is_answered)

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"0\r\n")
            if is_answered:
                await reply_of(reader)
            assert await flooded(reader, writer, part) < 64 << 20
            assert kept(scene.protocols[0]) < 100

        await scene.run(talk)

    asyncio.run(main())


def test_a_trailer_is_no_header() -> None:
    async def main() -> None:
        scene = Scene()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"2\r\nab\r\n0\r\nauthorization: Bearer sesame\r\n\r\n")
            writer.write(b"GET /next HTTP/1.1\r\nhost: y\r\n\r\n")
            assert (await reply_of(reader)).endswith(b"\r\n\r\n2")
            assert (await reply_of(reader)).startswith(b"HTTP/1.1 200")
            names = [[name for name, _ in scope["headers"]] for scope in scene.scopes]
            assert names == [[b"host", b"transfer-encoding"], [b"host"]]

        await scene.run(talk)

    asyncio.run(main())


def test_chunk_extensions_are_bounded_and_a_body_in_chunks_is_not() -> None:
    async def main() -> None:
        async def small_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"1;a=b\r\nx\r\n" * 100_000 + b"0\r\n\r\n")
            assert (await reply_of(reader)).endswith(b"\r\n\r\n100000")

        async def extension(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED)
            assert await flooded(reader, writer, b"1;a=" + b"b" * 10_000) < 64 << 20

        await Scene().run(small_chunks)
        await Scene().run(extension)

    asyncio.run(main())


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_head_whose_end_is_split_is_counted_without_the_body(at: int) -> None:
    async def main() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            body = b"x" * (3 * MAX_HEAD_BYTES)
            head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(head[:-at])
            await writer.drain()
            await asyncio.sleep(PART_S)
            writer.write(head[-at:] + body)
            assert (await reply_of(reader)).endswith(b"\r\n\r\n%d" % len(body))

        await Scene().run(talk)

    asyncio.run(main())


def test_the_431_ends_the_connection() -> None:
    async def main() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nx: ".ljust(MAX_HEAD_BYTES, b"a"))
            await asyncio.sleep(PART_S)
            writer.write(b"a")
            assert (await reply_of(reader)).startswith(b"HTTP/1.1 431 ")
            assert await reader.read() == b""

        await Scene().run(talk)

    asyncio.run(main())


def test_few_requests_wait_behind_a_running_one() -> None:
    async def main() -> None:
        scene = Scene()

        async def few(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(GET * (1 + MAX_AHEAD))
            for _ in range(1 + MAX_AHEAD):
                assert (await reply_of(reader)).startswith(b"HTTP/1.1 200")

        async def many(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            scene.may_answer.clear()
            writer.write(GET * (2 + MAX_AHEAD))
            assert b" 200 " not in await reader.read()
            assert len(scene.protocols[-1].pipeline) <= MAX_AHEAD

        await scene.run(few)
        await scene.run(many)

    asyncio.run(main())


@pytest.mark.parametrize("waiting", [b"", GET], ids=["alone", "behind a waiting one"])
def test_a_malformed_request_behind_a_stream_does_not_write_into_it(waiting: bytes) -> None:
    async def main() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            await asyncio.Event().wait()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(GET)
            await reader.readuntil(b"begun\r\n")
            writer.write(waiting + b"no request\r\n\r\n")
            assert await reader.read() == b""

        await Scene(app).run(talk)

    asyncio.run(main())


def test_the_end_of_a_connection_reaches_the_running_request_before_one_that_waits() -> None:
    async def main() -> None:
        begun, gone = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            begun.set()
            assert (await receive())["type"] == "http.disconnect"
            gone.set()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(GET * 2)
            await begun.wait()
            writer.transport.abort()
            await gone.wait()

        await Scene(app).run(talk)

    asyncio.run(main())


def test_empty_lines_keep_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.3)

    async def main() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(GET)
            assert (await reply_of(reader)).startswith(b"HTTP/1.1 200")
            writer.write(b"\r\n")
            assert await reader.read() == b""

        await Scene().run(talk)

    asyncio.run(main())


def test_a_body_that_nobody_reads_is_freed_with_the_reply() -> None:
    async def main() -> None:
        scene = Scene(reads=False)

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n" + b"x" * 50_000)
            await reply_of(reader)
            cycle: Any = scene.protocols[0].cycle
            assert (cycle.response_complete, len(cycle.body)) == (True, 0)

        await scene.run(talk)

    asyncio.run(main())


@pytest.mark.parametrize("rest", [b"x", b"x" * 100], ids=["unfinished", "whole"])
def test_the_rest_of_an_answered_body_is_awaited_for_a_time(
    rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)

    async def main() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
            await reply_of(reader)
            writer.write(rest)
            assert await reader.read() == b""

        await Scene(reads=False).run(talk)

    asyncio.run(main())
