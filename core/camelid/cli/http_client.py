"""A small HTTP client for `chat --server` and `bench --server`: JSON requests and streamed events.

On asyncio's streams alone. The usual clients are no dependency of Camelid, and a load generator shares its
machine with the server that it measures: here an event costs a few microseconds.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from camelid.errors import CamelidError
from camelid.version import __version__

CONNECT_S, CLOSE_S = 10.0, 1.0
GET_S, POST_S = 60.0, 600.0  # until the reply, or the head of a stream; a first POST may load the model
READ_BYTES = 64 << 10
MAX_ERROR_BYTES = 1 << 20
DONE = b"[DONE]"
OK = (200, 202)  # 202: accepted, of feedback
Json = dict[str, Any]
T = TypeVar("T")


class ServerError(CamelidError):
    """A server refused a request or broke an answer off. Facts: status; 0 where no reply came."""


class ClosedError(ServerError):
    """The server closed a connection before the first byte of a reply. Facts: status, 0."""


@dataclass(frozen=True, slots=True)
class Address:
    """The base address of an API, and the key that it wants."""

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    key: str | None = None

    @classmethod
    def of(cls, url: str, key: str | None = None) -> Address:
        """The address of a URL, with or without a final /v1. Raises ServerError for any other text."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.username or parts.query:
            raise ServerError(f"{url!r:.200} is no address of a server, expected http://HOST:PORT", status=0)
        is_safe = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        tls = ssl.create_default_context() if is_safe else None
        return cls(host, port or (443 if is_safe else 80), path, tls, key)

    def head(self, method: str, path: str, body: bytes) -> bytes:
        """The request line and headers."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{method} {self.path}{path} HTTP/1.1", f"host: {name}:{self.port}",
            f"user-agent: camelid/{__version__}", "accept: application/json, text/event-stream",
            "content-type: application/json", f"content-length: {len(body)}",
            *([f"authorization: Bearer {self.key}"] if self.key else []),
        ]  # fmt: skip
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


@dataclass(slots=True)
class Connection:
    """One connection. It can carry another request once a reply was read to its end."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    is_free: bool = False

    async def aclose(self) -> None:
        """Closes the connection, which ends the request that it carries."""
        self.writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of a reply, and its body to read."""

    status: int
    headers: Mapping[str, str]
    connection: Connection

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises ServerError if the connection ends before the body."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            async for piece in self._chunks():
                yield piece
        elif "content-length" in self.headers:
            left = self._length()
            while left:
                piece = await self._read(min(left, READ_BYTES))
                left -= len(piece)
                yield piece
        else:
            while piece := await self._received(READ_BYTES):
                yield piece
            return
        self.connection.is_free = self.headers.get("connection", "").lower() != "close"

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The body of a chunked reply; several chunks that arrived together come as one."""
        decoder = Chunks()
        while not decoder.is_done:
            piece = decoder.push(await self._read(READ_BYTES))
            if piece:
                yield piece

    def _length(self) -> int:
        text = self.headers["content-length"]
        if not text.isdecimal():
            raise ServerError(f"content-length is {text!r:.80}, expected a number of bytes", status=0)
        return int(text)

    async def _read(self, n: int) -> bytes:
        data = await self._received(n)
        if not data:
            raise ServerError("the connection ended before the answer did", status=0)
        return data

    async def _received(self, n: int) -> bytes:
        """Up to `n` bytes; none at the end of the connection. Raises ServerError for a broken one."""
        try:
            return await self.connection.reader.read(n)
        except OSError as error:
            raise ServerError(f"the connection broke off: {error.strerror or error}", status=0) from error

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The data of server-sent events up to [DONE]; comments are left out."""
        rest, is_done = b"", False
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:") and not is_done:
                        data = line[5:].strip()
                        is_done = data == DONE
                        if not is_done:
                            yield data
        if not is_done:
            raise ServerError("the connection ended before the answer did", status=0)

    async def text(self) -> str:
        """The whole body, or the beginning of a huge one."""
        found = b""
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                found += piece
                if len(found) > MAX_ERROR_BYTES:
                    break
        return found.decode("utf-8", "replace")


@dataclass(slots=True)
class Chunks:
    """The decoder of a chunked body."""

    is_done: bool = False
    _held: bytes = b""

    def push(self, data: bytes) -> bytes:
        """The content of these bytes. Raises ServerError for a length that is none."""
        held, at = self._held + data, 0
        found: list[bytes] = []
        while (end := held.find(b"\r\n", at)) >= 0:
            size, start = chunk_size(held[at:end]), end + 2
            if size == 0:  # trailers may follow
                self.is_done = held.startswith(b"\r\n", start) or b"\r\n\r\n" in held[end:]
                break
            if len(held) < start + size + 2:
                break
            found.append(held[start : start + size])
            at = start + size + 2
        self._held = held[at:]
        return b"".join(found)


def chunk_size(line: bytes) -> int:
    """The length on a chunk's first line."""
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise ServerError(f"the server sent the chunk length {line!r:.40}", status=0) from None


@dataclass(slots=True)
class Client:
    """Requests to one server, over connections that are used again."""

    address: Address
    _free: list[Connection] = field(default_factory=list[Connection])

    async def get(self, path: str) -> Json:
        """The JSON reply of a GET. Raises ServerError, after GET_S too."""
        return await self._json("GET", path, b"", GET_S)

    async def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """The JSON reply of a POST. Raises ServerError, after POST_S too."""
        return await self._json("POST", path, json.dumps(body).encode(), POST_S)

    async def _json(self, method: str, path: str, body: bytes, limit_s: float) -> Json:
        text = await within(limit_s, path, self._text(method, path, body))
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ServerError(f"the reply of {path} is no JSON object: {text[:80]!r}", status=200)
        return cast(Json, value)

    async def _text(self, method: str, path: str, body: bytes) -> str:
        reply = await self._send(method, path, body)
        try:
            return await self._checked(reply)
        finally:
            await self._leave(reply.connection)

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """The data of the events of a streamed POST. Closing the generator ends the request."""
        reply = await within(POST_S, path, self._send("POST", path, json.dumps(body).encode()))
        try:
            if reply.status != 200:
                await self._checked(reply)
            async with aclosing(reply.events()) as events:
                async for event in events:
                    yield event
        finally:
            await self._leave(reply.connection)

    async def _checked(self, reply: Reply) -> str:
        text = await reply.text()
        if reply.status in OK:
            return text
        raise ServerError(refusal(reply.status, text, reply.headers), status=reply.status)

    async def _send(self, method: str, path: str, body: bytes) -> Reply:
        """Sends a request. A used connection that the server closed meanwhile is replaced."""
        data = self.address.head(method, path, body) + body
        while True:
            is_used = bool(self._free)
            connection = self._free.pop() if is_used else await self._connect()
            try:
                return await exchange(connection, data)
            except BaseException as error:
                await connection.aclose()
                if not (is_used and isinstance(error, ClosedError)):
                    raise

    async def _connect(self) -> Connection:
        address = self.address
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls)
        except (OSError, TimeoutError) as error:
            why = error if str(error) else "no connection in time"
            raise ServerError(f"no server at {address.host}:{address.port}: {why}", status=0) from error
        return Connection(reader, writer)

    async def _leave(self, connection: Connection) -> None:
        if connection.is_free:
            connection.is_free = False
            self._free.append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Closes the free connections."""
        while self._free:
            await self._free.pop().aclose()


async def within(limit_s: float, path: str, work: Awaitable[T]) -> T:
    """The result of a request. Raises ServerError after `limit_s` seconds."""
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError as error:
        raise ServerError(f"no reply of {path} within {limit_s:g} s", status=0) from error


async def exchange(connection: Connection, data: bytes) -> Reply:
    """Sends a request and reads the head of its reply. Raises ServerError for anything but HTTP/1."""
    try:
        connection.writer.write(data)
        await connection.writer.drain()
        head = await connection.reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ServerError("the head of the reply is too long", status=0) from error
    except (asyncio.IncompleteReadError, OSError) as error:
        kind = ServerError if getattr(error, "partial", b"") else ClosedError
        raise kind("the server closed the connection without a reply", status=0) from error
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
        raise ServerError(f"this is no HTTP server; it said {first[:60]!r}", status=0)
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Reply(int(words[1]), headers, connection)


def refusal(status: int, text: str, headers: Mapping[str, str]) -> str:
    """The server's own sentence on an error, with its status and the way out: a key, or when to try again."""
    said = error_message(text) or text.strip()[:200] or "no reason given"
    again = f"; try again in {headers['retry-after']} s" if "retry-after" in headers else ""
    key = "; give --api-key, or CAMELID_API_KEY in the environment" if status == 401 else ""
    return f"the server answered {status}: {said}{again}{key}"


def error_message(text: str) -> str:
    """The message of an error object in any of the usual shapes; "" if there is none."""
    try:
        value: Json = json.loads(text)
        error: Any = value.get("error", value)
        return str(error if isinstance(error, str) else error.get("message", ""))
    except (ValueError, AttributeError):
        return ""
