"""An HTTP server of a test's own making: raw bytes after known delays, and a record of what was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
MODELS = {"object": "list", "data": [{"id": "scripted"}, {"id": "other"}]}


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    connection: int  # counts from 0


Pieces = Iterable[tuple[float, bytes]]  # seconds of delay, then bytes; b"" closes the connection
Script = Callable[[Asked], Pieces]


@dataclass
class Scripted:
    """The running server: its address and its requests, in order."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    n_connections: int = 0

    @property
    def bodies(self) -> list[Any]:
        """The bodies of the chats."""
        return [one.body for one in self.asked if one.method == "POST"]


def whole(body: Any, status: int = 200, **headers: str) -> bytes:
    """A whole JSON reply."""
    data = json.dumps(body).encode()
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\n{lines}\r\n".encode() + data


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(body: Any) -> bytes:
    """A server-sent event as one chunk."""
    return chunk(b"data: " + (body if isinstance(body, bytes) else json.dumps(body).encode()) + b"\n\n")


def delta(text: str = "", reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A chat chunk."""
    content = {"content": text} if text else {}
    return {"choices": [{"index": 0, "delta": {**content, **more}, "finish_reason": reason}]}


def answer(texts: Iterable[str], *, every_s: float = 0.0, first_s: float = 0.0) -> Pieces:
    """A streamed answer: a piece at fixed intervals, then the usage."""
    pieces = list(texts)
    yield 0.0, HEAD
    for i, text in enumerate(pieces):
        yield every_s if i else first_s, event(delta(text))
    counts = {"prompt_tokens": 10, "completion_tokens": len(pieces)}
    last = event(delta(reason="stop")) + event({"choices": [], "usage": counts}) + event(b"[DONE]")
    yield 0.0, last + END


@contextmanager
def scripted(script: Script) -> Iterator[Scripted]:
    """Serves a script of chats on a thread; GET /v1/models has its own answer."""
    found: list[Scripted] = []
    started, end = threading.Event(), threading.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server, number = found[0], found[0].n_connections
        server.n_connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while await serve_one(server, number, reader, writer, script):
                    pass
        finally:
            writer.close()

    async def work() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        found.append(Scripted(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        started.set()
        while not end.is_set():
            await asyncio.sleep(0.01)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert started.wait(10)
        yield found[0]
    finally:
        end.set()
        thread.join()


async def serve_one(
    server: Scripted, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, script: Script
) -> bool:
    """Answers one request. Returns False after the end of the connection."""
    asked = await read_request(reader, number)
    server.asked.append(asked)
    loop = asyncio.get_running_loop()
    due = loop.time()
    for seconds, data in [(0.0, whole(MODELS))] if asked.method == "GET" else script(asked):
        due += seconds  # from the plan, so that delays do not add up
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        if not data:
            return False
        writer.write(data)
        await writer.drain()
    return True


async def read_request(reader: asyncio.StreamReader, number: int) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    data = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, json.loads(data) if data else None, number)
