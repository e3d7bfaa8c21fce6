"""Reading of the engine's streams."""

from __future__ import annotations

from typing import Any, TypeVar

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
