"""Reading a request's body: within bounds of bytes and time, one request's and all requests' together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Message, Receive

from camelid.server.http.errors import ApiError, retry_later

BODY_S = 30.0  # between two parts of a body, and for the whole of a small one
MIN_RATE = 16 << 10  # bytes a second that a large body must reach beyond its first BODY_S


class ClientGone(Exception):
    """The client closed the connection."""


@dataclass(slots=True)
class Bodies:
    """The bytes of all bodies under way: at most `most`, over all connections."""

    most: int
    n_held: int = 0

    @contextmanager
    def hold(self) -> Generator[Callable[[int], None]]:
        """A function that adds bytes to those held, until the end of the block.

        It raises ApiError 503 beyond `most` bytes.
        """
        n_own = 0

        def add(n_bytes: int) -> None:
            nonlocal n_own
            if self.n_held + n_bytes > self.most:
                raise retry_later(
                    503, f"requests under way hold {self.n_held:,} bytes, at most {self.most:,} are held; "
                    "send the request again", 1, "server_is_overloaded",
                )  # fmt: skip
            self.n_held += n_bytes
            n_own += n_bytes

        try:
            yield add
        finally:
            self.n_held -= n_own


async def read_body(receive: Receive, most: int, hold: Callable[[int], None] | None = None) -> bytes:
    """The body of at most `most` bytes; `hold` is told the size of each part.

    Raises ApiError 413 for a larger body, 408 for a slow one, and ClientGone.
    """
    body, more, began = bytearray(), True, asyncio.get_running_loop().time()
    while more:
        message = await _message(receive, began + BODY_S + len(body) / MIN_RATE)
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        if len(body) + len(part) > most:
            raise too_large(most)
        if hold:
            hold(len(part))
        body += part
        more = message.get("more_body", False)
    return bytes(body)


async def _message(receive: Receive, end: float) -> Message:
    """The next message. Raises ApiError 408 at the time `end`, or after BODY_S without one."""
    now = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(min(end, now + BODY_S)):
            return await receive()
    except TimeoutError:
        what = (
            f"comes at less than {MIN_RATE:,} bytes a second"
            if end < now + BODY_S
            else (f"had no byte within {BODY_S:g} s")
        )
        raise ApiError(
            408, f"the body {what}; send it at once", code="body_timeout", headers={"connection": "close"}
        ) from None


def too_large(limit: int) -> ApiError:
    """The refusal of a body beyond a limit of bytes."""
    return ApiError(
        413, f"the body is larger than {limit:,} bytes; shorten the request", code="request_too_large"
    )
