"""Tabs that open the same model run it once: answers, other models, tabs that are closed."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page

from e2e.browser import build_site, open_browser, serve_site
from e2e.visit import BUSY_WITH_TEXT, ask, reference_ids, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(__file__).parents[1] / "core" / "camelid" / "data" / "cria.gguf"
QUERY = "?backend=cpu&temperature=0&max_tokens=24"
PROMPTS = ["What is 12 plus 30?", "What is 3 plus 4?", "Hello"]
ENDLESS = """() => window.camelid.ask("Hello", {max_tokens: 1000000, overflow: "shift", ignore_eos: true})
  .then((answer) => answer.finish_reason, ({ message }) => message)"""
SILENT_S = 10  # without a sign of life of a tab, after which others wait no longer
LIMIT_S = 120
SAY = "(prompt) => window.camelid.say(prompt).then(({ token_ids }) => token_ids, ({ message }) => message)"


async def open_tab(context: BrowserContext, address: str) -> Page:
    page = await context.new_page()
    await page.goto(address)
    await wait_ready(page)
    return page


async def visit(address: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with open_browser() as browser:
        context = await browser.new_context()
        tabs = [await open_tab(context, address + QUERY) for _ in PROMPTS]
        seen["workers"] = [len(tab.workers) for tab in tabs]
        answers = await asyncio.gather(*map(ask, tabs, PROMPTS))
        seen["answers"] = [answer["token_ids"] for answer in answers]
        other = await open_tab(context, f"{address}{QUERY}&threads=1")
        seen["other"] = len(other.workers)
        await other.close()
        await abandon(tabs, seen)
    return seen


async def abandon(tabs: list[Page], seen: dict[str, Any]) -> None:
    """Closes a tab during its answer, then the tab that runs the model during another's answer."""
    host, guest, last = tabs
    closing = asyncio.create_task(guest.evaluate(ENDLESS))
    await guest.wait_for_function(BUSY_WITH_TEXT)
    waiting = asyncio.create_task(ask(last, PROMPTS[2]))
    await guest.close()
    await asyncio.gather(closing, return_exceptions=True)
    seen["freed"] = (await asyncio.wait_for(waiting, LIMIT_S))["token_ids"]
    seen["turns"] = [await last.evaluate(SAY, PROMPTS[0])]
    lost = asyncio.create_task(last.evaluate(ENDLESS))
    await last.wait_for_function(BUSY_WITH_TEXT)
    await host.close()
    seen["lost"] = await lost
    seen["turns"].append(await last.evaluate(SAY, PROMPTS[1]))
    seen["again"] = (await ask(last, PROMPTS[0]))["token_ids"]
    seen["note"] = await last.inner_text("#note")
    seen["moved"] = len(last.workers)


async def lose(address: str, model: Path) -> dict[str, Any]:
    """Closes the tab that runs a model whose file is gone by then."""
    async with open_browser() as browser:
        context = await browser.new_context()
        host, guest = [await open_tab(context, f"{address}{QUERY}&model={model.name}") for _ in range(2)]
        first = (await ask(guest, PROMPTS[0]))["token_ids"]
        model.unlink()
        await host.close()
        ends = [await guest.evaluate(SAY, PROMPTS[0]) for _ in range(2)]
        shutil.copy(CRIA, model)
        later = await open_tab(context, f"{address}{QUERY}&model={model.name}")
        return {"first": first, "ends": ends, "later": (await ask(later, PROMPTS[0]))["token_ids"]}


async def pause(address: str) -> dict[str, Any]:
    """Stops the page of the tab that runs the model, as a debugger does, during the answer of another tab."""
    async with open_browser() as browser:
        context = await browser.new_context()
        host, guest, idle = [await open_tab(context, address + QUERY) for _ in range(3)]
        seen: dict[str, Any] = {"turns": [await idle.evaluate(SAY, PROMPTS[0])]}
        lost = asyncio.create_task(guest.evaluate(ENDLESS))
        await guest.wait_for_function(BUSY_WITH_TEXT)
        devtools = await context.new_cdp_session(host)
        await devtools.send("Debugger.enable")
        await devtools.send("Debugger.pause")
        began = time.monotonic()
        seen["turns"].append(await idle.evaluate(SAY, PROMPTS[1]))
        seen["turn_s"] = time.monotonic() - began
        seen["lost"], seen["problem"] = await lost, await guest.inner_text("#problem-text")
        seen["answers"] = [(await ask(guest, PROMPTS[0]))["token_ids"]]
        seen["notes"] = [await tab.inner_text("#note") for tab in (guest, idle)]
        late = await open_tab(context, address + QUERY)
        seen["answers"].append((await ask(late, PROMPTS[0]))["token_ids"])
        seen["workers"] = [len(tab.workers) > 0 for tab in (guest, idle, late)]
        await devtools.send("Debugger.resume")
        seen["answers"].append((await ask(host, PROMPTS[0]))["token_ids"])
        return seen


async def pause_shortly(address: str) -> dict[str, Any]:
    """Stops the page of a tab during its answer for a moment, in which Chromium drops messages to it."""
    async with open_browser() as browser:
        context = await browser.new_context()
        host, guest = [await open_tab(context, address + QUERY) for _ in range(2)]
        reading = asyncio.create_task(guest.evaluate(ENDLESS))
        await guest.wait_for_function(BUSY_WITH_TEXT)
        devtools = await context.new_cdp_session(guest)
        await devtools.send("Debugger.enable")
        await devtools.send("Debugger.pause")
        await asyncio.sleep(1)
        await devtools.send("Debugger.resume")
        end = await reading
        return {"end": end, "answers": [(await ask(tab, PROMPTS[0]))["token_ids"] for tab in (host, guest)]}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    site = tmp_path_factory.mktemp("page") / "site"
    build_site(site, {})
    with serve_site(site) as address:
        yield asyncio.run(visit(address))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = tmp_path_factory.mktemp("tabs") / "site"
    build_site(site, {})
    with serve_site(site) as address:
        yield address


@pytest.fixture(scope="module")
def wanted() -> list[list[int]]:
    return reference_ids(CRIA, PROMPTS, 24)


def test_one_tab_has_the_worker(seen: dict[str, Any]) -> None:
    assert seen["workers"][0] > 0 and seen["workers"][1:] == [0, 0]
    assert seen["other"] > 0, "other options are another model"


def test_answers_of_all_tabs_are_the_references(seen: dict[str, Any], wanted: list[list[int]]) -> None:
    assert seen["answers"] == wanted


def test_a_closed_tab_ends_its_answer(seen: dict[str, Any], wanted: list[list[int]]) -> None:
    assert seen["freed"] == wanted[2], "another tab's answer waits for that of the closed tab"


def test_the_next_tab_takes_over(seen: dict[str, Any], wanted: list[list[int]]) -> None:
    assert seen["lost"] == "the tab that ran this model stopped it, and another loads it; ask again"
    assert seen["note"] == "The tab that ran this model stopped it or was closed; it is loaded again."
    assert seen["again"] == wanted[0] and seen["moved"] > 0


def test_a_conversation_goes_on_after_that(seen: dict[str, Any], wanted: list[list[int]]) -> None:
    first, second = seen["turns"]
    assert first == wanted[0]
    assert isinstance(second, list) and second, second


@pytest.mark.exhaustive
def test_a_model_that_is_gone_is_an_error_and_can_be_opened_again(
    tmp_path: Path, wanted: list[list[int]]
) -> None:
    build_site(tmp_path / "site", {"lost.gguf": CRIA.read_bytes()})
    with serve_site(tmp_path / "site") as address:
        gone = asyncio.run(lose(address, tmp_path / "site" / "lost.gguf"))
    assert gone["first"] == gone["later"] == wanted[0]
    for end in gone["ends"]:
        assert "404" in end and "load the model again" in end


@pytest.mark.exhaustive
def test_a_tab_that_does_not_answer_is_left_with_a_word(address: str, wanted: list[list[int]]) -> None:
    seen = asyncio.run(asyncio.wait_for(pause(address), LIMIT_S))
    assert SILENT_S / 2 < seen["turn_s"] < 3 * SILENT_S
    assert seen["turns"][0] == wanted[0]
    assert isinstance(seen["turns"][1], list) and seen["turns"][1], seen["turns"][1]
    assert "lost touch" in seen["lost"] and seen["lost"].endswith("ask again")
    words = "This tab lost touch with the tab that {} the model: one of them was frozen or paused. This tab "
    assert seen["problem"] == f"{words.format('runs')}loads the model itself. Ask again."
    note = f"{words.format('ran')}runs the model itself; close the other tab to free its memory."
    assert seen["notes"] == 2 * [note]
    assert seen["workers"] == [True, True, True], "a tab that is opened later waits no longer, either"
    assert seen["answers"] == 3 * [wanted[0]], "the last of them after the pause, in the paused tab"


@pytest.mark.exhaustive
def test_lost_messages_are_told(address: str, wanted: list[list[int]]) -> None:
    seen = asyncio.run(asyncio.wait_for(pause_shortly(address), LIMIT_S))
    assert "lost touch" in seen["end"] and seen["end"].endswith("ask again")
    assert seen["answers"] == 2 * [wanted[0]]
