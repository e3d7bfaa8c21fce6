"""Reading of the engine's streams."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from camelid.engine.request import Request
from camelid.engine.stream import Stream

C = TypeVar("C")


async def read(stream: Stream[Any, C]) -> C:
    """Reads a stream to its end and returns the completion."""
    try:
        async for _ in stream:
            pass
    finally:
        await stream.aclose()
    return stream.completion


async def redirected(stream: Stream[Any, Any], request: Request) -> Request | None:
    """The request that a stream's probe chooses in its place, the stream closed; None to read on."""
    if request.probe is None:
        return None
    began = time.monotonic()
    try:
        await stream.begin()
        other = await request.probe.redirected(request.after(time.monotonic() - began))
    except BaseException:
        await stream.aclose()
        raise
    if other:
        await stream.aclose()
    return other
