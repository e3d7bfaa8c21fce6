"""Runs the asynchronous API from code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from threading import get_ident
from typing import Any, TypeVar

from camelid.errors import RequestError

T = TypeVar("T")


class Runner:
    """Runs coroutines on the calling thread, in one event loop that is created on first use."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._thread = 0  # the latest that used it

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns a coroutine's result. Raises RequestError if this thread already runs an event loop."""
        try:
            runner = self._open()
        except RequestError:
            work.close()
            raise
        return runner.run(work)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, for the work of one token: `asyncio.Runner.run` takes 0.15 ms to handle signals.

        Raises RequestError if this thread already runs an event loop.
        """
        return self._open().get_loop()

    @property
    def is_free(self) -> bool:
        """True if this thread has used this loop before, and runs no other."""
        return self._thread == get_ident() and self._runner is not None and not _has_loop()

    def _open(self) -> asyncio.Runner:
        if _has_loop():
            raise RequestError(
                "this thread already runs an event loop; use the asynchronous twin (aload, agenerate, "
                "astream, achat, alogits, aclose)",
                field="loop",
            )
        self._runner, self._thread = self._runner or asyncio.Runner(), get_ident()
        return self._runner

    def close(self) -> None:
        """Closes the event loop, if it was created."""
        if self._runner:
            self._runner.close()
            self._runner = None

    def __del__(self) -> None:
        if self._runner:  # Runner.close runs the loop, which fails while another loop runs
            self._runner.get_loop().close()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
