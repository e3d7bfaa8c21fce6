"""The page's controls before its script has come; the store of conversations over time and after a fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route

from e2e.browser import build_site, open_browser, serve_site
from e2e.test_chat_turns import QUERY, ask, stored
from e2e.visit import open_page, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DAY_MS = 86_400_000
# Writes of the store fail until `mend`.
FAULT = """() => {
  const { put } = IDBObjectStore.prototype;
  window.mend = () => (IDBObjectStore.prototype.put = put);
  IDBObjectStore.prototype.put = () => {
    throw new DOMException("no room", "QuotaExceededError");
  };
}"""
NOTE = "() => [document.querySelector('#store-note').innerText, document.querySelector('#store-note').hidden]"
# Names of the controls that the visitor could press although nothing would happen.
DEAD = """() => [...document.querySelectorAll("button, input")]
  .filter((it) => it.checkVisibility() && !it.disabled && !it.closest("[inert]") && it.id !== "prompt")
  .map((it) => it.id || it.textContent)"""
ALIVE = "() => !document.querySelector('#bar').inert && !document.querySelector('#composer-row').inert"


async def visit(address: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with open_browser() as browser:
        page, notes = await open_page(browser, f"{address}?{QUERY}")
        await wait_ready(page)
        now = time.time() * 1000
        for id, days in (("old", 31), ("new", 29)):
            await stored(page, {"id": id, "deleted": now - days * DAY_MS})
        await ask(page, "Hello")
        await page.reload()
        await wait_ready(page)
        seen["kept"] = {*await stored(page)} & {"old", "new"}
        seen["n"] = len(await stored(page))
        await page.evaluate(FAULT)
        await ask(page, "What is 3 plus 4?")
        await page.wait_for_function("() => document.querySelector('#store-note').innerText")
        seen["note"] = await page.inner_text("#store-note")
        await page.evaluate("() => void mend()")
        await ask(page, "What is 12 plus 30?")
        await page.wait_for_function("() => window.camelid.state === 'ready'")
        await asyncio.sleep(0.2)
        seen["later"] = await page.evaluate(NOTE)
        seen["errors"] = notes.errors
    return seen


async def visit_early(address: str) -> dict[str, Any]:
    """A visit whose script comes late."""
    waits = asyncio.Event()

    async def hold(route: Route) -> None:
        await waits.wait()
        await route.continue_()

    async with open_browser() as browser:
        page = await browser.new_page()
        await page.route("**/app.js", hold)
        await page.goto(f"{address}?{QUERY}", wait_until="commit")
        await page.wait_for_selector("#prompt")
        await page.fill("#prompt", "Hello")
        dead = await page.evaluate(DEAD)
        waits.set()
        await wait_ready(page)
        alive = await page.evaluate(ALIVE)
        await page.click("#open-settings")
        await page.wait_for_selector("#settings[open]")
        return {"dead": dead, "alive": alive, "prompt": await page.input_value("#prompt")}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site: Path = tmp_path_factory.mktemp("store") / "site"
    build_site(site, {})
    with serve_site(site) as address:
        yield address


@pytest.fixture(scope="module")
def seen(address: str) -> dict[str, Any]:
    return asyncio.run(visit(address))


def test_records_of_deletions_are_forgotten_after_a_month(seen: dict[str, Any]) -> None:
    assert seen["kept"] == {"new"} and seen["n"] == 2, "the conversation and the newer record"


def test_a_fault_of_the_store_is_shown_until_it_works_again(seen: dict[str, Any]) -> None:
    assert seen["note"] == "no room"
    assert seen["later"] == ["", True]
    assert [error for error in seen["errors"] if not error.endswith(" failed")] == []  # a reload aborts


def test_controls_wait_for_their_script(address: str) -> None:
    early = asyncio.run(visit_early(address))
    assert early["dead"] == []
    assert early["alive"] and early["prompt"] == "Hello"
