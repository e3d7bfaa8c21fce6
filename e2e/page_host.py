"""A host that forwards every call to web/executor.js in a bare page, without Python or a model."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playwright.async_api import Page

from e2e.browser import ROOT

Json = dict[str, Any]


def write_bare_site(site: Path) -> None:
    """Writes a site with the executor and bare.html only."""
    for folder, names in (
        (ROOT / "web", ("executor.js", "device.js", "remembered.js", "section.js", "source.js", "http.js")),
        (ROOT / "e2e", ("bare.html", "bare.js")),
    ):
        for name in names:
            shutil.copyfile(folder / name, site / name)


class PageHost:
    """`Host` over a Playwright page. Runs and writes are sent with the next call that returns a value."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._waiting: list[list[Any]] = []
        self._last_ticket = 0
        self._memory: Json = {}

    async def open(self, spec: Json) -> Json:
        return await self._call("open", spec)

    async def load(self, section: Json, sources: Mapping[str, Any]) -> None:
        await self._call("load", section, dict(sources))

    async def allocate(self, section: Json) -> None:
        await self._call("allocate", section)

    def prepare(self, section: Json) -> None:
        """Queues the call, which is sent with the next one."""
        self._waiting.append(["prepare", section])

    async def compile(self, section: Json) -> int:
        return await self._call("compile", section)

    def run(self, program: int, step: bytes) -> int:
        self._waiting.append(["run", program, _encoded(step)])
        self._last_ticket += 1  # equals the executor's ticket
        return self._last_ticket

    async def read(self, ticket: int) -> bytes:
        return base64.b64decode(await self._call("read", ticket))

    async def read_state(self, buffer: str, offset: int, n_bytes: int) -> bytes:
        return base64.b64decode(await self._call("readState", buffer, offset, n_bytes))

    async def write_state(self, buffer: str, offset: int, data: bytes) -> None:
        self.write(buffer, offset, data)

    def write(self, buffer: str, offset: int, data: bytes) -> None:
        """Queues a write, which takes effect before the next submitted step."""
        self._waiting.append(["writeState", buffer, offset, _encoded(data)])

    def memory(self) -> Json:
        return self._memory

    async def counters(self) -> Json:
        return await self._page.evaluate("() => globalThis.executor.counters")

    async def close(self) -> None:
        self._memory = await self._call("memory")
        await self._call("close")
        self._last_ticket = 0

    async def _call(self, method: str, *arguments: Any) -> Any:
        calls, self._waiting = [*self._waiting, [method, *arguments]], []
        # As JSON text: Playwright would serialize an object entry by entry.
        result = await self._page.evaluate("(calls) => callAll(JSON.parse(calls))", json.dumps(calls))
        if "error" in result:
            raise RuntimeError(result["error"])
        return result.get("value")


def _encoded(data: bytes) -> Json:
    return {"base64": base64.b64encode(data).decode("ascii")}
