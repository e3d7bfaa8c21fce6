"""The two kinds of reply, and the endpoint that ends its work as soon as the client is gone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from camelid.server.http.body import ClientGone
from camelid.server.http.call import Call
from camelid.server.http.errors import ApiError, Dialect, api_error

LOG = logging.getLogger("camelid.server")
GONE = 499  # status in logs of a call whose client was gone first
BLOCKED_S = 60.0  # a client that reads nothing for this long is gone
COMMENT = b": keep-alive\n\n"
COMMENT_S = 10.0  # between keep-alive comments before the first event
JSON_TYPE, EVENT_TYPE, LINES_TYPE = "application/json", "text/event-stream", "application/x-ndjson"


@dataclass(slots=True)
class JsonReply:
    """A whole reply."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    media_type: str = JSON_TYPE

    def content(self) -> bytes:
        """The bytes of the body: JSON, or text and bytes as they are."""
        if isinstance(self.body, bytes):
            return self.body
        if isinstance(self.body, str):
            return self.body.encode()
        return json.dumps(self.body, ensure_ascii=False).encode()


@dataclass(slots=True)
class StreamReply:
    """A streamed reply: whole frames, joined where the client is slower than the engine.

    `failed` makes the last frame from an error that comes after the status line.
    """

    frames: AsyncIterator[bytes]
    failed: Callable[[ApiError], bytes]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    media_type: str = EVENT_TYPE


Reply = JsonReply | StreamReply
Handler = Callable[[Call], Awaitable[Reply]]


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class Responder:
    """Runs a handler and sends its reply; cancels the handler where the client disconnects first."""

    def __init__(self, call: Call, send: Send, dialect: Dialect, headers: Mapping[str, str]) -> None:
        self._call, self._send, self._dialect, self._headers = call, send, dialect, headers
        self.status = 0  # of the reply; 499 where the client was gone first
        self.error: ApiError | None = None  # the one that the client was sent

    async def run(self, prepare: Callable[[Call], Awaitable[Handler]]) -> None:
        """Prepares the handler, which reads the body, then answers while watching the connection."""
        try:
            with self._call.closing:
                await self._run(prepare)
        except (ClientGone, OSError):
            self.status = GONE

    async def _run(self, prepare: Callable[[Call], Awaitable[Handler]]) -> None:
        try:
            handler = await prepare(self._call)
        except (asyncio.CancelledError, ClientGone):
            raise
        except Exception as error:
            await self.refuse(logged(error, self._call))
            return
        work = asyncio.ensure_future(self._answer(handler))
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                self.status = GONE
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    async def _disconnected(self) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass

    async def _answer(self, handler: Handler) -> None:
        try:
            reply = await handler(self._call)
        except (asyncio.CancelledError, ClientGone):
            raise
        except Exception as error:
            await self.refuse(logged(error, self._call))
            return
        if isinstance(reply, StreamReply):
            await self._stream(reply)
        else:
            await self._whole(reply)

    async def refuse(self, error: ApiError) -> None:
        """Sends an error."""
        self.error = error
        body = self._dialect(error, self._call.request_id)
        await self._whole(JsonReply(body, error.status, error.headers))

    async def _whole(self, reply: JsonReply) -> None:
        content = reply.content()
        await self._start(reply.status, {**reply.headers, "content-length": str(len(content))}, reply)
        await self._send({"type": "http.response.body", "body": content})

    async def _start(self, status: int, headers: Mapping[str, str], reply: Reply) -> None:
        self.status = status
        fields = {"content-type": reply.media_type, **self._headers, **headers}
        if self._call.warnings:
            fields["warning"] = ", ".join(f'199 camelid "{text}"' for text in self._call.warnings)
        raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def _stream(self, reply: StreamReply) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no", **reply.headers}
        frames = reply.frames
        try:
            with Watch() as watch:
                watch.since = watch.now()  # earlier replies on this connection may be unread
                await self._start(200, headers, reply)
        except BaseException:
            await aclose(frames)
            raise
        try:
            with Watch() as watch:
                await self._push_all(reply, watch)
        except (asyncio.CancelledError, ClientGone):
            raise
        except Exception as error:
            self.error = logged(error, self._call)
            with Watch() as watch:
                await self._push(reply.failed(self.error), watch)
        finally:
            await aclose(frames)
        await self._send({"type": "http.response.body", "body": b""})

    async def _push_all(self, reply: StreamReply, watch: Watch) -> None:
        frames = reply.frames
        if reply.media_type == EVENT_TYPE:
            first = await self._first(frames, watch)
            if first is None:
                return
            await self._push(first, watch)
        async for frame in frames:
            await self._push(frame, watch)

    async def _first(self, frames: AsyncIterator[bytes], watch: Watch) -> bytes | None:
        """The first frame, or None without one; sends keep-alive comments for as long as it is awaited."""
        first = asyncio.ensure_future(anext(frames, None))
        try:
            while not (await asyncio.wait((first,), timeout=COMMENT_S))[0]:
                await self._push(COMMENT, watch)
        except BaseException:
            first.cancel()
            with suppress(BaseException):
                await first
            raise
        return first.result()

    async def _push(self, frame: bytes, watch: Watch) -> None:
        watch.since = watch.now()
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})
        watch.since = 0.0


class Watch:
    """Ends a task whose client reads nothing for `BLOCKED_S`, by ClientGone at the end of its `with` block.

    One timer looks at all frames of a stream: a timeout around each was a fifth of the server's time.
    """

    def __init__(self) -> None:
        self.since = 0.0  # when the frame under way was handed over; 0.0 without one
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._has_ended = False

    def __enter__(self) -> Watch:
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(BLOCKED_S / 4, self._look)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._has_ended and self._task and kind is asyncio.CancelledError and not self._task.uncancel():
            raise ClientGone

    def _look(self) -> None:
        if self.since and self.now() - self.since > BLOCKED_S:
            self._has_ended = True
            assert self._task is not None, "a watch is entered by a task"
            self._task.cancel()
        else:
            self._timer = self._loop.call_later(BLOCKED_S / 4, self._look)


async def aclose(frames: AsyncIterator[bytes]) -> None:
    """Closes a generator of frames, which cancels its request."""
    close = getattr(frames, "aclose", None)
    if close:
        await close()


def logged(error: Exception, call: Call) -> ApiError:
    """The reply for an exception; a fault of the server goes to the log."""
    found = api_error(error)
    if found.status == 500:
        LOG.error("%s %s failed", call.request_id, call.path, exc_info=error)
    return found
