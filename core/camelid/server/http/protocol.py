"""uvicorn's protocol with bounds that httptools lacks: on heads, trailers and requests sent ahead."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10  # of the request line and headers; without a bound, 32 MB were buffered
MAX_AHEAD = 16  # requests that wait behind a running one on its connection
HEAD_S = 30.0  # from a connection, or the first byte of a head, to its end; from a reply to the body's end
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s"
)
BODY = (
    b'{"error": {"message": "the request line and headers are larger than 65536 bytes", '
    b'"type": "invalid_request_error", "param": null, "code": "headers_too_large"}}'
)


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection of which MAX_HEAD_BYTES come without the end of a head or a byte of a body.

    For an endless head the reply is 431; chunk extensions and trailers count too, and trailers are dropped.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._n_waiting = 0  # bytes since the last end of a head, or byte of a body
        self._in_head = True
        self._running: Any = None  # uvicorn's `cycle` is the last one read, which may wait behind this one

    def connection_made(self, transport: Any) -> None:
        """Starts the time limit of the first head."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_S, self._time_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the time limit, and the running request, of which uvicorn ends the last one read alone."""
        self._timer.cancel()
        super().connection_lost(exc)
        if self._is_busy:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _limit_time(self) -> None:
        self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_S, self._time_out)

    def _time_out(self) -> None:
        if self.pipeline:  # nothing is read while requests wait behind the running one
            self._limit_time()
        elif not self.transport.is_closing():
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Parses bytes, up to the bound of those that are not part of a body."""
        while data and not self.transport.is_closing():
            room = MAX_HEAD_BYTES - self._n_waiting
            if room <= 0:
                self._refuse()
                return
            part, data = data[:room], data[room:]
            self._n_waiting += len(part)
            super().data_received(part)
        if self._in_head and self._timer.cancelled() and not self._is_busy:
            self._limit_time()  # a line without a request has ended uvicorn's limit of idle connections

    def on_message_begin(self) -> None:
        """A new request: its head is read."""
        self._in_head = True
        self._limit_time()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head. Trailers are dropped: uvicorn would add them to the head."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole. Raises ValueError for too many requests ahead, which ends the connection."""
        self._in_head, self._n_waiting = False, 0
        self._timer.cancel()
        if len(self.pipeline) >= MAX_AHEAD:
            raise ValueError(f"{MAX_AHEAD} requests wait on this connection")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Bytes of a body."""
        self._n_waiting = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole: the next bytes are a head."""
        self._in_head = True
        self._timer.cancel()
        if self.cycle.response_complete:  # uvicorn has ended its own timer at the last bytes
            self._limit_time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The reply is whole: frees unread bytes of the body, and bounds the wait for its rest."""
        if self.cycle.response_complete:
            self.cycle.body.clear()
            if not self._in_head:
                self._limit_time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Ends a connection with malformed bytes; the reply would be in the midst of one under way."""
        if self._is_answering:
            self.transport.close()
        else:
            super().send_400_response(msg)

    @property
    def _is_answering(self) -> bool:
        return self._is_busy and self._running.response_started

    def _refuse(self) -> None:
        if self._in_head and not self._is_answering:
            self.transport.write(REFUSAL % (len(BODY), BODY))
        self.transport.close()
