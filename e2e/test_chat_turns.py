"""The chat under interruption: two tabs, another model, keys, scrolling, faults of storage and network."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route

from e2e.browser import ROOT, build_site, open_browser, serve_site
from e2e.chat_visit import TOOL, act, answer_file, import_text, listed, menu, titles, turns
from e2e.turns_scripts import (
    ANNOUNCED,
    AT_END,
    BEGIN,
    COMPOSE,
    ENDED,
    FETCH,
    GROWS,
    IS_HIGH,
    LENGTH,
    OPEN,
    STORE,
)
from e2e.visit import Json, Notes, narrowed, open_page, settled, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
QUERY = "backend=cpu&threads=1&temperature=0&max_tokens=24"
SUM, FRANCE, ITALY = "What is 12 plus 30?", "What is the capital of France?", "What is the capital of Italy?"
NO_STORE = "Object.defineProperty(globalThis, 'indexedDB', { value: { open() { throw new Error('no'); } } })"


@dataclass
class Visit:
    """Observations of the visits."""

    notes: Notes = field(default_factory=Notes)
    found: Json = field(default_factory=dict)
    turns: dict[str, list[str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


async def ask(page: Page, prompt: str) -> None:
    await page.evaluate("(prompt) => window.camelid.say(prompt)", prompt)


async def stored(page: Page, change: Json | None = None) -> dict[str, Json]:
    return {one["id"]: one for one in await page.evaluate(STORE, change)}


async def begin(page: Page) -> None:
    await page.evaluate(BEGIN)
    await page.wait_for_function(GROWS)


async def until_turns(page: Page, n: int) -> None:
    await page.wait_for_function("(n) => document.querySelectorAll('#transcript > li').length === n", arg=n)


async def use_two_tabs(page: Page, address: str, seen: Visit) -> None:
    """Prompts in two tabs at once; a title, a removal and a deletion in one of them."""
    await ask(page, SUM)
    id = await page.evaluate("() => location.hash.slice(1)")
    other = await page.context.new_page()
    await other.goto(f"{address}?{QUERY}#{id}")
    await wait_ready(other)
    seen.turns["other tab"] = await turns(other)
    await asyncio.gather(ask(page, FRANCE), ask(other, ITALY))
    seen.turns["here"], seen.turns["there"] = await turns(page), await turns(other)
    one = (await stored(page))[id]
    seen.found["both"] = [
        node["message"]["content"] for node in one["nodes"] if node["message"]["role"] == "user"
    ]
    await begin(page)  # a tab that answers learns of changes, too
    await menu(other, "rename")
    await other.fill("#question-field", "Named")
    await other.keyboard.press("Enter")
    await act(other, "user", "remove", -1)
    await other.click("#question [type=submit]")
    await other.wait_for_selector("text=Italy", state="detached")
    await page.evaluate("() => (window.camelid.stop(), window.answer)")
    one = (await stored(page))[id]
    seen.words["title"] = one["title"] + "/" + await page.inner_text("#title")
    seen.found["removed"] = ITALY in json.dumps(one["nodes"])
    await begin(page)
    await menu(other, "delete")
    await other.click("#question [type=submit]")
    await until_turns(page, 0)
    await settled(page)
    seen.words["deleted"] = await page.inner_text("#toast")
    seen.found["deleted"] = "nodes" in (await stored(page))[id]
    seen.found["listed"] = await listed(page, 0)
    await ask(page, SUM)
    seen.turns["anew"] = await turns(page)
    await other.close()


async def interrupt(page: Page, seen: Visit) -> None:
    """Presses Escape in a menu and in a composition, then opens a model, while answers run."""
    await page.click("#clear")
    await begin(page)
    await page.click("#open-menu")
    await page.keyboard.press("Escape")
    await page.wait_for_function("() => !document.querySelector(':popover-open')")
    running = [await page.evaluate("() => window.camelid.state")]
    await page.evaluate("() => (window.camelid.stop(), window.answer)")
    await page.click("#clear")
    await begin(page)  # an answer for each key: on a busy machine one ends before the last key
    length = await page.evaluate(f"() => (({COMPOSE})(), ({LENGTH})())")
    await page.wait_for_function(f"(n) => ({LENGTH})() > n + 20 || camelid.state !== 'busy'", arg=length)
    seen.found["running"] = [*running, await page.evaluate("() => window.camelid.state")]
    await page.keyboard.press("Escape")
    seen.found["reason"] = await page.evaluate("() => window.answer.then((result) => result.finish_reason)")
    await page.click("#clear")
    await page.evaluate(FETCH)
    await begin(page)
    await page.evaluate(OPEN)
    await page.wait_for_function(
        "() => document.getElementById('status-text').textContent.startsWith('again')"
    )
    seen.words["opened"] = await page.inner_text("#main")
    seen.found["problem"] = await page.is_visible("#problem")
    await ask(page, SUM)
    seen.turns["again"] = await turns(page)


async def scroll(page: Page, seen: Visit) -> None:
    """Follows a long answer at its end; scrolls up in another, whose end changes its element."""
    await narrowed(page, 500, 420)
    await page.click("#open-sidebar")
    await page.click("#clear")
    await begin(page)
    await page.wait_for_function(IS_HIGH)
    seen.found["ends"] = [await page.evaluate(AT_END)]
    await page.evaluate("() => (window.camelid.stop(), window.answer)")
    seen.found["ends"].append(await page.evaluate(AT_END))
    await begin(page)
    await page.wait_for_function(IS_HIGH)
    await page.mouse.move(200, 200)
    await page.mouse.wheel(0, -20)
    await page.wait_for_timeout(200)
    place = await page.evaluate("() => scrollY")
    await page.evaluate("() => (window.camelid.stop(), window.answer)")
    await page.wait_for_timeout(100)
    seen.found["places"] = [place, await page.evaluate("() => scrollY")]
    await page.set_viewport_size({"width": 900, "height": 760})


async def import_files(page: Page, seen: Visit) -> None:
    """Answers an imported prompt by Alt+R; imports damaged files; opens a damaged stored conversation."""
    asked = json.loads(answer_file(""))
    [question, _] = asked["conversations"][0]["nodes"]
    asked["conversations"][0]["nodes"] = [question | {"message": {"role": "user", "content": SUM}}]
    await import_text(page, "asked.json", json.dumps(asked))
    await until_turns(page, 1)
    seen.found["button"] = await page.is_visible(".user [data-act=regenerate]")
    await page.keyboard.press("Alt+r")
    await until_turns(page, 2)
    await settled(page)
    seen.turns["asked"] = await turns(page)
    seen.found["no button"] = await page.locator(".user [data-act=regenerate]:visible").count()
    before = await titles(page)
    await import_text(page, "call.md", '<!-- camelid:assistant {"tool_calls": [{}]} -->\n## Assistant\n\nx\n')
    await page.wait_for_selector("#problem:not([hidden])")
    seen.words["import"] = await page.inner_text("#problem")
    seen.found["unchanged"] = before == await titles(page)
    await import_text(page, "null.json", answer_file("Null calls", tool_calls=None))
    await page.wait_for_function(
        "() => document.querySelector('.assistant .text')?.textContent.includes('Null calls')"
    )
    damaged = {"id": "damaged", "title": "Broken", "changed": 1, "created": 1, "system": "", "nodes": [{}]}
    await stored(page, damaged | {"chosen": {}})
    await page.evaluate("() => (location.hash = 'damaged')")
    await page.reload()
    await wait_ready(page)
    seen.words["damaged"] = await page.inner_text("#problem")
    await page.fill("#search", "null")
    seen.found["searched"] = await listed(page, 1)
    await page.fill("#search", "")
    await ask(page, SUM)
    seen.turns["went on"] = await turns(page)


async def keep_settings(page: Page, address: str, seen: Visit) -> None:
    """Changes a setting over an address with others."""
    await page.keyboard.press("Alt+,")
    await page.fill("#top_k", "7")
    await page.keyboard.press("Escape")
    seen.words["kept"] = await page.evaluate("() => localStorage.getItem('camelid.settings')")
    await page.goto(f"{address}?constructor=1")
    await page.wait_for_selector("#problem:not([hidden])")
    seen.words["constructor"] = await page.inner_text("#problem")


async def once(page: Page, pattern: str) -> None:
    """Fails the next request of an address."""

    async def fail(route: Route) -> None:
        await route.abort()

    await page.route(re.compile(pattern), fail, times=1)


async def lose_files(page: Page, seen: Visit) -> None:
    """Fetches of libraries fail once each; the sandbox's come late."""
    await once(page, r"vendor/highlight\.js")
    await once(page, r"models/models\.js")
    await once(page, r"chat/markdown\.js")
    found = []
    for n in range(3):  # without Markdown, without highlighting, with both
        await import_text(page, "code.json", answer_file(f"```python\nx = {n}  # one\n```"))
        await page.wait_for_function(
            f"() => document.querySelector('.assistant')?.textContent.includes('= {n}')"
        )
        if n:
            await page.wait_for_selector(f"#transcript {('pre', '.hljs-comment')[n - 1]}")
        await page.wait_for_timeout(500)  # what must not come would come meanwhile
        found.append([await page.locator(f"#transcript {name}").count() for name in ("pre", ".hljs-comment")])
    seen.found["libraries"] = found
    await page.keyboard.press("Alt+m")
    await page.wait_for_selector("#problem:not([hidden])")
    seen.words["models"] = await page.inner_text("#problem")
    await page.keyboard.press("Alt+m")
    await page.wait_for_selector("#models[open] #models-address")
    await page.keyboard.press("Escape")
    seen.found["stop"] = await page.evaluate(ENDED)

    async def delay(route: Route) -> None:
        await asyncio.sleep(3.5)
        await route.continue_()

    await page.context.route(re.compile(r"vendor/quickjs/ffi\.mjs"), delay)
    seen.words["late"] = await page.evaluate(TOOL, ["javascript", {"code": "6 * 7"}])


async def visit_without_model(browser: Browser, address: str, seen: Visit) -> None:
    """Edits and asks for an answer without a model and a store, then opens a model."""
    page, notes = await open_page(browser, "about:blank", locale="en-US")
    rejected = seen.found["rejected"] = []
    page.on("pageerror", lambda error: rejected.append(str(error)))
    await page.add_init_script(NO_STORE)
    await page.goto(f"{address}?model=absent.gguf")
    await page.wait_for_function("() => window.camelid?.state === 'failed'")
    seen.found["urls"] = [*notes.urls]
    await lose_files(page, seen)
    await import_text(page, "sample.json", answer_file("An answer"))
    await until_turns(page, 2)
    await page.keyboard.press("Alt+r")
    seen.words["no model"] = await page.inner_text("#toast")
    await page.keyboard.press("Alt+ArrowUp")
    await page.fill("#transcript .edit textarea", SUM)
    await page.click("#transcript .edit [type=submit]")
    await until_turns(page, 1)
    seen.words["edited"] = await page.inner_text("#toast")
    await page.set_input_files("#file", {"name": "cria.gguf", "mimeType": "", "buffer": CRIA.read_bytes()})
    await wait_ready(page)
    seen.words["no store"] = await page.inner_text("#store-note")
    await act(page, "user", "regenerate")
    await until_turns(page, 2)
    await settled(page)
    seen.turns["edited"] = await turns(page)


async def visit_with_model(browser: Browser, address: str, seen: Visit) -> None:
    page, seen.notes = await open_page(browser, "about:blank", locale="en-US")
    await page.add_init_script(ANNOUNCED)
    await page.goto(f"{address}?{QUERY}")
    await wait_ready(page)
    seen.found["announced"] = await page.evaluate("() => window.announced")
    await use_two_tabs(page, address, seen)
    await interrupt(page, seen)
    await scroll(page, seen)
    await import_files(page, seen)
    await keep_settings(page, address, seen)


async def visits(address: str) -> Visit:
    seen = Visit()
    async with open_browser() as browser:
        both = (visit(browser, address, seen) for visit in (visit_with_model, visit_without_model))
        await asyncio.gather(*both)
    return seen


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = tmp_path_factory.mktemp("turns") / "site"
    build_site(site, {"cria.gguf": CRIA.read_bytes()})
    with serve_site(site) as url:
        yield url


@pytest.fixture(scope="module")
def seen(address: str) -> Visit:
    return asyncio.run(visits(address))


def test_tabs_lose_no_turn_of_each_other(seen: Visit) -> None:
    assert "42" in seen.turns["other tab"][1]
    assert FRANCE in seen.turns["here"] and ITALY in seen.turns["there"], "behind the other turn or beside it"
    assert sorted(seen.found["both"]) == [SUM, FRANCE, ITALY]
    assert seen.words["title"] == "Named/Named"
    assert not seen.found["removed"], "a removed message does not come back"


def test_a_deleted_conversation_stays_deleted(seen: Visit) -> None:
    assert "another tab" in seen.words["deleted"]
    assert not seen.found["deleted"] and seen.found["listed"] == []
    assert "42" in seen.turns["anew"][1]


def test_escape_stops_an_answer_only_where_nothing_is_nearer(seen: Visit) -> None:
    assert (seen.found["running"], seen.found["reason"]) == (["busy", "busy"], "cancelled")


def test_another_model_ends_the_answer_first(seen: Visit) -> None:
    assert "Tell me a story." in seen.words["opened"] and "Stopped." in seen.words["opened"]
    assert not seen.found["problem"]
    assert "42" in seen.turns["again"][-1]


def test_the_end_is_followed_until_the_reader_scrolls_up(seen: Visit) -> None:
    assert seen.found["ends"] == [True, True]
    before, after = seen.found["places"]
    assert before > 0 and before == after


def test_a_prompt_without_an_answer_is_answered(seen: Visit) -> None:
    assert seen.found["button"] and seen.found["no button"] == 0
    assert "42" in seen.turns["asked"][1]
    assert "No model is loaded" in seen.words["no model"]
    assert "not answered" in seen.words["edited"] and "42" in seen.turns["edited"][1]


def test_damaged_conversations_are_named(seen: Visit) -> None:
    assert "call.md:1" in seen.words["import"] and seen.found["unchanged"]
    assert "nodes[0]" in seen.words["damaged"] and "42" in seen.turns["went on"][1]
    assert seen.found["searched"] == ["Sample"]


def test_settings_of_the_address_are_not_kept(seen: Visit) -> None:
    assert json.loads(seen.words["kept"]) == {"top_k": "7"}
    assert "'constructor'" in seen.words["constructor"]


def test_the_note_of_a_missing_store_stays(seen: Visit) -> None:
    assert "end with this tab" in seen.words["no store"]


def test_failed_fetches_are_tried_again(seen: Visit) -> None:
    assert seen.found["libraries"] == [[0, 0], [1, 0], [1, 1]]
    assert "models.js" in seen.words["models"]
    assert seen.found["rejected"] == []


def test_the_sandbox_is_timed_from_its_start_and_can_be_stopped(seen: Visit) -> None:
    assert seen.words["late"] == "42"
    result, milliseconds = seen.found["stop"]
    assert "stopped" in result and milliseconds < 1500


def test_phases_are_announced_without_figures(seen: Visit) -> None:
    *phases, ready = seen.found["announced"]
    assert len(phases) < 10 and len({*phases}) == len(phases)
    assert not [phase for phase in phases if re.search(r"\d", phase)]
    assert ready.startswith("cria.gguf")


def test_the_model_is_loaded_before_the_rest_of_the_page(seen: Visit) -> None:
    names = [url.partition("/")[2].partition("/")[2].partition("/")[2] for url in seen.found["urls"]]
    assert names.index("worker.js") < names.index("chat/chat.js")
    assert not {"chat/markdown.js", "vendor/marked.js", "models/models.css"} & {*names}


def test_console_is_clean(seen: Visit) -> None:
    assert [error for error in seen.notes.errors if not error.endswith(" failed")] == []  # a reload aborts
