"""The models dialog on a page of its own, and the hub that it downloads from."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, expect
from tests.support.hub_server import Hub, sha256

from e2e.visit import WATCH

CHUNK = 4 << 20
BIG = random.Random(1).randbytes(5 * CHUNK + 12345)
SMALL = BIG[: 1 << 20]
PROMPT = "What is 12 plus 30?"
NAMES = ("models.html", "models_page.js")
PARTIAL = "async () => (await stored()).some(({ done, total }) => done > 0 && done < total)"
IDLE = "async () => (await navigator.locks.query()).held.length === 0"
WAITING = "async () => (await navigator.locks.query()).pending.length > 0"

# How often two clicks make the dialog's content.
CLICKED_TWICE = """async () => {
  let made = 0;
  const observer = new MutationObserver((records) => (made += records.length));
  observer.observe(document.getElementById("models"), { childList: true });
  for (const _ of "ab") document.getElementById("show").click();
  await new Promise((resolve) => setTimeout(resolve, 500));
  return made;
}"""


@dataclass
class Stage:
    """A browser, the page's address, the hub that it downloads from, a folder."""

    browser: Browser
    address: str
    hub: Hub
    folder: Path  # of the scene's files

    async def open(self, context: BrowserContext | None = None, **how: Any) -> Page:
        """The dialog in a new profile, or in a context's."""
        context = context or await self.browser.new_context(viewport={"width": 900, "height": 900}, **how)
        page = await context.new_page()
        await page.add_init_script(WATCH)
        await page.goto(f"{self.address}models.html")
        await expect(page.locator("#models")).to_be_visible()
        return page

    def starts(self) -> list[int]:
        """First byte of each request for a large file's bytes."""
        return [int(headers["range"][6:].split("-")[0]) for headers in self.hub.downloads()]


async def until(page: Page, condition: str) -> None:
    """Waits for an async condition, which page.wait_for_function would take for true at once."""
    async with asyncio.timeout(30):
        while not await page.evaluate(condition):
            await asyncio.sleep(0.02)


async def get(page: Page, address: str) -> None:
    await page.fill("#models-address", address)
    await page.press("#models-address", "Enter")


async def opened(page: Page, n: int = 1) -> dict[str, Any]:
    """{name, files} of the n-th model that was opened; fails with the dialog's problem."""
    done = f"() => opened.length >= {n} || document.querySelector('.problem').textContent"
    await page.wait_for_function(done, timeout=60_000)
    assert await page.evaluate("() => opened.length") >= n, await page.inner_text(".problem")
    return await page.evaluate("() => lastOpened()")


async def problem(page: Page) -> str:
    await expect(page.locator(".problem")).not_to_be_empty(timeout=30_000)
    return await page.inner_text(".problem")


def facts(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "size": len(data), "sha256": sha256(data)}


def fill(hub: Hub) -> None:
    """The hub's repositories, without faults."""
    hub.__dict__.update(Hub(repos={}, url=hub.url, cdn=hub.cdn).__dict__)
    hub.add("owner/big", {"big-Q4_K_M.gguf": BIG, "README.md": b"hello"})
    hub.add("owner/small", {"small.gguf": SMALL})
    hub.add("owner/moving", {"moving.gguf": BIG})
    hub.add("owner/text", {"README.md": b"hello"})
    hub.add("owner/holes", {"m-00001-of-00002.gguf": SMALL})
