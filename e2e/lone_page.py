"""A page of Chromium whose DevTools session is the page's alone.

Playwright's session also stops each service worker at its start. A worker that starts again while it hands
over to a new build then loses requests, in one of ten tries; without such a session in none of 70.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from e2e.browser import launch_options

START_S = 30
POLL_S = 0.1
PORT_FILE = "DevToolsActivePort"  # of the profile: the port's number in its first line


class LonePage:
    """Commands of a page: those of the DevTools protocol that the tests need."""

    def __init__(self, session: ClientConnection) -> None:
        self._session = session
        self._last_id = 0

    async def evaluate(self, expression: str) -> Any:
        """Value of an expression, or of its promise. Raises AssertionError with its error."""
        given = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        found = await self._call("Runtime.evaluate", given)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def wait(self, expression: str, seconds: float = START_S) -> None:
        """Waits until an expression is true, through navigations. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not await self._holds(expression):
                await asyncio.sleep(POLL_S)

    async def _holds(self, expression: str) -> bool:
        try:
            return bool(await self.evaluate(expression))
        except AssertionError as error:
            if "navigated" in str(error):
                return False
            raise

    async def open(self, address: str) -> None:
        await self._call("Page.navigate", {"url": address})

    async def close(self) -> None:
        await self._call("Page.close", {})

    async def _call(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        await self._session.send(json.dumps({"id": self._last_id, "method": method, "params": given}))
        while True:
            answer = json.loads(await self._session.recv())
            if answer.get("id") == self._last_id:
                assert "error" not in answer, answer["error"]
                return answer["result"]


@asynccontextmanager
async def lone_pages(profile: Path, n: int) -> AsyncIterator[list[LonePage]]:
    """n pages of a Chromium with a profile of its own."""
    options = launch_options(["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}"])
    quiet = asyncio.subprocess.DEVNULL
    command = [options["executable_path"], *options["args"], "about:blank"]
    browser = await asyncio.create_subprocess_exec(*command, env=options["env"], stdout=quiet, stderr=quiet)
    try:
        port = await asyncio.wait_for(port_in(profile / PORT_FILE), START_S)
        async with AsyncExitStack() as sessions:
            yield [LonePage(await sessions.enter_async_context(connect(new_target(port)))) for _ in range(n)]
    finally:
        browser.terminate()
        await browser.wait()


async def port_in(file: Path) -> int:
    """The port, once the browser has written it."""
    while not (file.exists() and (lines := file.read_text().split())):
        await asyncio.sleep(POLL_S)
    return int(lines[0])


def new_target(port: int) -> str:
    """Address of the session of a new page."""
    return httpx.put(f"http://127.0.0.1:{port}/json/new?about:blank").json()["webSocketDebuggerUrl"]
