"""uvicorn's protocol with a bound on the request line and headers, which httptools lacks."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 << 10  # of the request line and headers; without a bound, 32 MB were buffered
HEAD_S = 30.0  # from a connection, or the first byte of a head, to its end
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s"
)
BODY = (
    b'{"error": {"message": "the request line and headers are larger than 65536 bytes", '
    b'"type": "invalid_request_error", "param": null, "code": "headers_too_large"}}'
)


class BoundedProtocol(HttpToolsProtocol):
    """Answers 431 and closes once the bytes before the end of the headers exceed MAX_HEAD_BYTES."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True

    def connection_made(self, transport: Any) -> None:
        """Starts the time limit of the first head."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._time_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the time limit."""
        self._head_timer.cancel()
        super().connection_lost(exc)

    def _time_out(self) -> None:
        if self._in_head and not self.transport.is_closing():
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Counts bytes of a head, then parses them."""
        if self._in_head:
            self._head_bytes += len(data)
            end = data.find(b"\r\n\r\n")
            n_head = self._head_bytes if end < 0 else self._head_bytes - len(data) + end
            if n_head > MAX_HEAD_BYTES:
                self._refuse()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A new request: its head is read."""
        self._in_head = True
        self._head_timer.cancel()
        self._head_timer = self.loop.call_later(HEAD_S, self._time_out)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head, self._head_bytes = False, 0
        self._head_timer.cancel()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is whole: the next bytes are a head."""
        self._in_head = True
        super().on_message_complete()

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(REFUSAL % (len(BODY), BODY))
            self.transport.close()
