"""Streams over real HTTP: a lean load generator, whose own processor time is known.

It counts frames in the bytes as they come, and checks their texts after each answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

STRING = rb'("(?:[^"\\]|\\.)*")'


@dataclass(frozen=True, slots=True)
class Face:
    """An endpoint: its path, what begins a frame's text, and that text."""

    path: str
    frame: bytes
    text: re.Pattern[bytes]

    def body(self, stream: int, n_tokens: int) -> dict[str, Any]:
        """A stream's request: a prompt of its own, and exactly this many tokens."""
        prompt = prompt_of(stream)
        asked = (
            {"messages": [{"role": "user", "content": prompt}]} if "chat" in self.path else {"prompt": prompt}
        )
        return {
            **asked, "stream": True, "temperature": 0, "max_tokens": n_tokens, "ignore_eos": True,
        }  # fmt: skip

    def plain(self, choice: Mapping[str, Any]) -> str:
        """The text of a reply that is not streamed."""
        return choice["message"]["content"] if "chat" in self.path else choice["text"]


FACES: Mapping[str, Face] = {
    "chat": Face(
        "/v1/chat/completions", b'"delta": {"content": ', re.compile(rb'"delta": \{"content": ' + STRING)
    ),
    "completions": Face("/v1/completions", b'"text": ', re.compile(rb'"text": ' + STRING)),
}


def prompt_of(stream: int) -> str:
    """A stream's prompt."""
    return f"You are a clock that counts. Tell story number {stream} of a camel that is a clock."


@dataclass(slots=True)
class Load:
    """Counts and times of a load generator. Gaps are between arrivals; tokens of one arrival share a gap."""

    n_frames: int = 0
    n_answers: int = 0
    first_s: array[float] = field(default_factory=lambda: array("d"))
    gap_s: array[float] = field(default_factory=lambda: array("d"))
    faults: list[str] = field(default_factory=list[str])
    texts: dict[int, str] = field(default_factory=dict[int, str])  # of each stream's first answer

    def check(self, face: Face, stream: int, data: bytes) -> None:
        """Notes an answer that is cut, or differs from the stream's first one: temperature 0 repeats it."""
        text = "".join(map(json.loads, face.text.findall(data)))
        if b"data: [DONE]\n\n" not in data or b'"finish_reason": "length"' not in data:
            self.faults.append(f"stream {stream}: no end in {data[-200:]!r}")
        elif self.texts.setdefault(stream, text) != text:
            self.faults.append(f"stream {stream}: the text changed")
        self.n_answers += 1


class Client(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, load: Load, face: Face, stream: int, n_tokens: int, host: str) -> None:
        self._load, self._face, self._stream = load, face, stream
        body = json.dumps(face.body(stream, n_tokens)).encode()
        head = f"POST {face.path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._parts = list[bytes]()
        self._sent = self._last = 0.0
        self._tail = b""  # a reply's end may come in two pieces
        self._done: asyncio.Future[None] | None = None
        self.began = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    async def ask(self) -> None:
        """Sends the request, and returns after the reply's last byte."""
        self._parts.clear()
        self._last, self._tail, self._done = 0.0, b"", asyncio.get_running_loop().create_future()
        self._sent = time.perf_counter()
        self._transport.write(self._request)
        await self._done
        self._load.check(self._face, self._stream, b"".join(self._parts))

    def data_received(self, data: bytes) -> None:
        now, load = time.perf_counter(), self._load
        self._parts.append(data)
        n = data.count(self._face.frame)
        if n:
            load.n_frames += n
            if self._last:
                load.gap_s.extend([(now - self._last) / n] * n)
            else:
                load.first_s.append(now - self._sent)
                if not self.began.done():
                    self.began.set_result(None)
            self._last = now
        self._tail = (self._tail + data)[-5:]
        if self._tail == b"0\r\n\r\n" and self._done and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done and not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        self._transport.close()


async def connect(url: str, load: Load, face: Face, n_streams: int, n_tokens: int) -> list[Client]:
    """A connection per stream."""
    parts, loop = urlsplit(url), asyncio.get_running_loop()
    made = [
        loop.create_connection(
            lambda i=i: Client(load, face, i, n_tokens, parts.netloc),
            str(parts.hostname),
            int(parts.port or 80),
        )
        for i in range(n_streams)
    ]
    return [client for _, client in await asyncio.gather(*made)]


async def repeat(client: Client, until: float) -> None:
    """Asks again and again until a time."""
    while time.perf_counter() < until:
        await client.ask()


def shares(values: array[float]) -> Mapping[str, float]:
    """The median and the 99th percentile in milliseconds."""
    ordered = sorted(values)
    return {
        name: round(1e3 * ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2) if ordered else 0.0
        for name, share in (("p50 ms", 0.5), ("p99 ms", 0.99))
    }
