"""Drives the asynchronous engine from code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from camelid.errors import RequestError

T = TypeVar("T")


class Runner:
    """Runs coroutines on the calling thread, in one loop that is made when first needed."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. RequestError if this thread already runs a loop."""
        return self._ready(work).run(work)

    def run_step(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for one token: `Runner.run` sets up signal handling each time, which costs 0.15 ms."""
        return self._ready(work).get_loop().run_until_complete(work)

    def _ready(self, work: Coroutine[Any, Any, Any]) -> asyncio.Runner:
        if _has_loop():
            work.close()
            raise RequestError(
                "this thread already runs an event loop; use the asynchronous twin (aload, agenerate, "
                "astream, achat, alogits, aclose)",
                field="loop",
            )
        self._runner = self._runner or asyncio.Runner()
        return self._runner

    def close(self) -> None:
        """Closes the loop, if one was made."""
        if self._runner:
            self._runner.close()
            self._runner = None

    def __del__(self) -> None:
        if self._runner:  # Runner.close would run a loop, which another one may forbid
            self._runner.get_loop().close()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
