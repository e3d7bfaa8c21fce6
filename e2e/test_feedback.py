"""Feedback in the page: thumbs, and an edited answer as the right one, in the model's memory alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page

from e2e.browser import ROOT, build_site, open_browser, serve_site
from e2e.chat_visit import act, turns
from e2e.visit import Json, open_page, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
QUERY = "backend=cpu&threads=1&temperature=0&max_tokens=24"
WHO, AGAIN, SUM, RIGHT = "Who are you?", "who are you", "What is 12 plus 30?", "My name is Pico."
TOLD = "(n) => document.getElementById('toast').textContent.startsWith('Thank you')"


async def ask(page: Page, prompt: str) -> str:
    """The answer to a prompt in a new conversation."""
    await page.click("#clear")
    await page.evaluate("(prompt) => window.camelid.say(prompt)", prompt)
    return (await turns(page))[-1]


async def visit(address: str) -> Json:
    seen: Json = {}
    async with open_browser() as browser:
        page, notes = await open_page(browser, f"{address}?{QUERY}", locale="en-US")
        await wait_ready(page)
        seen["before"] = [await ask(page, prompt) for prompt in (SUM, WHO)]
        await act(page, "assistant", "edit")
        await page.fill("#transcript .edit textarea", RIGHT)
        await page.click("#transcript .edit [type=submit]")
        await page.wait_for_function(TOLD)
        seen["after"] = [await ask(page, prompt) for prompt in (SUM, AGAIN)]
        await act(page, "assistant", "good")
        await page.wait_for_function(TOLD)
        seen["good"] = await page.inner_text("#toast")
        await act(page, "assistant", "bad")
        seen["labels"] = await page.locator("#transcript [data-act=good]").all_inner_texts()
        await page.reload()
        await wait_ready(page)
        seen["thumbs after a reload"] = await page.locator("#transcript [data-act=good]").count()
        seen["reloaded"] = await ask(page, AGAIN)
        seen["foreign"] = [url for url in notes.urls if not url.startswith((address, "data:", "blob:"))]
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    site = tmp_path_factory.mktemp("feedback") / "site"
    build_site(site, {"cria.gguf": CRIA.read_bytes()})
    with serve_site(site) as address:
        yield asyncio.run(visit(address))


def test_an_edited_answer_acts_on_the_next_one(seen: Json) -> None:
    assert "cria" in seen["before"][1]
    assert seen["after"] == [seen["before"][0], RIGHT]


def test_thumbs_are_taken(seen: Json) -> None:
    assert seen["good"].startswith("Thank you. The next answers know")
    assert len(seen["labels"]) == 1


def test_a_closed_page_has_forgotten(seen: Json) -> None:
    assert seen["thumbs after a reload"] == 0
    assert seen["reloaded"] == seen["before"][1]
    assert seen["foreign"] == []
