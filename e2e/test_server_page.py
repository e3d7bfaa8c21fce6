"""The page of `camelid serve` in Chromium: a conversation, stop, key, errors, Markdown, the live panel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Page, Route
from tests.support.exhaustive import share_of
from tests.support.served_here import ServedHere, served_here, until
from tests.support.standing import standing

from camelid.server.http.keys import KeyRing, plain_keys
from e2e.browser import open_browser
from e2e.visit import Notes, open_page, screen, type_prompt

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEY = "sk-page-test"
SUM, NAME = "What is 2 plus 3?", "Who are you?"
READY = "() => window.camelid?.state === 'ready'"
LOCKED = "() => window.camelid?.state === 'locked'"
HAS_TEXT = "() => document.querySelector('.assistant[aria-busy] .text')?.textContent.length > 2"
ANSWERS = "() => [...document.querySelectorAll('.assistant > .text')].map((e) => e.textContent)"
RENDERED = """async (text) => {
    const { markdown } = await import("/page/server/markdown.js");
    const box = document.createElement("div");
    box.append(...markdown(text));
    return box.innerHTML;
}"""
NAMELESS = """() => [...document.querySelectorAll("input, select, textarea, button, summary")]
    .filter((e) => !(e.labels?.length ?? 0) && !e.textContent.trim()).map((e) => e.outerHTML)"""
LOAD = """() => Object.fromEntries(
    [...document.querySelectorAll("#load dt")].map((e) => [e.textContent, e.nextSibling.textContent]))"""
N_RUNNING = "() => document.querySelector('#load-line').textContent.startsWith('{} running')"
SUGGESTS = "() => document.querySelector('#problem-hint').textContent.includes('Try')"
MESSAGES = "() => window.camelid.messages"
IN_VIEW = """() => { const box = document.querySelector("#problem"), r = box.getBoundingClientRect();
    return box.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)); }"""
LINES_OF_A_ROW = """() => document.querySelector("tr").offsetHeight /
    parseFloat(getComputedStyle(document.querySelector("th")).lineHeight)"""
BLANK = 'target="_blank" rel="noopener noreferrer"'
REASONED = [
    {"reasoning_content": "Two and three"},
    {"reasoning_content": " make five."},
    {"content": "It is "},
    {"content": "**5**."},
]
# Markdown -> what the page makes of it.
MARKDOWN = {
    "plain\ntext": "<p>plain\ntext</p>",
    "# A\n## B ##": "<h3>A</h3><h4>B</h4>",
    "*a* **b** ***c*** ~~d~~ `e*f*`": "<p><em>a</em> <strong>b</strong> <strong><em>c</em></strong> "
    "<del>d</del> <code>e*f*</code></p>",
    "a_b_c 2*3*4 \\*x\\*": "<p>a_b_c 2<em>3</em>4 *x*</p>",
    "- a\n  - b\n- c": "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "> a\n> b\n\nc": "<blockquote><p>a\nb</p></blockquote><p>c</p>",
    "```py\nif a < b:\n  # *x*\n```\nz": '<pre tabindex="0"><code>if a &lt; b:\n  # *x*</code></pre><p>z</p>',
    "```\nopen": '<pre tabindex="0"><code>open</code></pre>',
    "a\n\n---\nb": "<p>a</p><hr><p>b</p>",
    "|a|b|\n|-|:-:|\n|1|2|": "<table><thead><tr><th>a</th><th>b</th></tr></thead>"
    "<tbody><tr><td>1</td><td>2</td></tr></tbody></table>",
    "[x](https://a.example/b)": f'<p><a href="https://a.example/b" {BLANK}>x</a></p>',
    "see https://a.example/b.": f'<p>see <a href="https://a.example/b" {BLANK}>'
    "https://a.example/b</a>.</p>",
    # Hostile text stays text.
    "<img src=x onerror=alert(1)>": "<p>&lt;img src=x onerror=alert(1)&gt;</p>",
    "[x](javascript:alert(1))": "<p>[x](javascript:alert(1))</p>",
    "[x](data:text/html,y)": "<p>[x](data:text/html,y)</p>",
}  # fmt: skip
# Texts that make a careless renderer slow or deep.
HEAVY = (
    *("*a " * 30_000, "`" * 60_000, "> " * 30_000 + "x", "[" * 60_000, "  - " * 20_000, "|" * 60_000),
    *("_" * 60_000, "*" * 60_000, "a|b\n-|-\n" + "|" * 60_000),
)


@pytest.fixture(scope="module")
def served() -> Iterator[ServedHere]:
    with served_here(parallel=2) as running:
        yield running


@pytest.fixture(scope="module")
def slow() -> Iterator[ServedHere]:
    """A server whose answers take seconds."""
    with served_here(parallel=2, backend="reference") as running:
        yield running


def in_page(work: Callable[[Page], Awaitable[Any]], **how: Any) -> tuple[Any, Notes]:
    """The result of a visit, which begins on an empty page, and the page's errors and requests."""

    async def visit() -> tuple[Any, Notes]:
        async with visited(**how) as (page, notes):
            found = await work(page)
            assert await page.evaluate("() => violations") == [], "the policy was violated"
            return found, notes

    return asyncio.run(visit())


@asynccontextmanager
async def visited(**how: Any) -> AsyncIterator[tuple[Page, Notes]]:
    async with open_browser() as browser:
        yield await open_page(browser, "about:blank", **how)


def address_of(served: ServedHere) -> str:
    return f"http://127.0.0.1:{served.port}/"


async def ready(page: Page) -> None:
    await page.wait_for_function(READY)


async def enter(page: Page, served: ServedHere, state: str = READY) -> None:
    """Opens the page and waits for a state."""
    await page.goto(address_of(served))
    await page.wait_for_function(state)


async def say(page: Page, text: str) -> None:
    """Sends a prompt and waits for the end of its answer."""
    n = len(await page.evaluate(MESSAGES))
    await type_prompt(page, text)
    await page.wait_for_function(f"() => window.camelid.messages.length > {n}")
    await ready(page)


async def set_options(page: Page, **values: str) -> None:
    await page.click(".settings summary")
    for name, value in values.items():
        await page.fill(f"#{name}", value)


async def endless(page: Page) -> None:
    """Makes the page's answers go on past end tokens."""

    async def forward(route: Route) -> None:
        body = json.loads(route.request.post_data or "{}")
        await route.continue_(post_data=json.dumps({**body, "ignore_eos": True}))

    await page.route("**/v1/chat/completions", forward)


def answer_of(served: ServedHere, messages: list[dict[str, str]]) -> str:
    """The API's own greedy answer."""
    body = {"messages": messages, "temperature": 0, "max_tokens": 40}
    return served.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]


def test_a_conversation_of_two_turns(served: ServedHere) -> None:
    async def work(page: Page) -> Any:
        await enter(page, served)
        await screen(page, "server-ready")
        await set_options(page, temperature="0", max_tokens="40", system="Be kind.")
        await page.click(".settings summary")
        await page.click("text=Who are you?")
        await page.wait_for_function("() => window.camelid.messages.length === 2")
        await say(page, SUM)
        await screen(page, "server-done")
        return await page.evaluate(ANSWERS), await page.inner_text("#figures"), await page.evaluate(NAMELESS)

    (answers, figures, nameless), notes = in_page(work)
    asked = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": NAME}]
    first = answer_of(served, asked)
    asked += [{"role": "assistant", "content": first}, {"role": "user", "content": SUM}]
    assert answers == [first, answer_of(served, asked)]
    assert "tok/s" in figures
    assert " cached" in figures, "the second turn's prompt begins with the first"
    assert nameless == [], "controls without an accessible name"
    assert [url for url in notes.urls if not url.startswith(address_of(served))] == []
    assert notes.errors == []


def test_stop_frees_the_sequence_and_keeps_the_text(slow: ServedHere) -> None:
    async def work(page: Page) -> Any:
        await endless(page)
        await enter(page, slow)
        with standing(slow.engine, after=40):
            await type_prompt(page, "Tell me a long story.")
            await page.wait_for_function(HAS_TEXT)
            await page.wait_for_function(N_RUNNING.format(1))
            loads = [await page.evaluate(LOAD)]
            await screen(page, "server-streaming")
            running = slow.engine.n_running
            await page.click("#send")
        await ready(page)
        await asyncio.to_thread(slow.wait_idle)
        await page.wait_for_function(N_RUNNING.format(0))
        loads.append(await page.evaluate(LOAD))
        return (
            running,
            await page.inner_text(".assistant"),
            await page.evaluate(MESSAGES),
            loads,
        )

    (running, shown, messages, loads), notes = in_page(work, color_scheme="dark")
    assert running == 1
    assert "Stopped." in shown
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[1]["content"], "the text so far stays in the conversation"
    assert (loads[0]["Running"], loads[1]["Running"]) == ("1", "0")
    assert loads[0]["KV cache held"] != "0 bytes"
    assert notes.errors == [f"{address_of(slow)}v1/chat/completions failed"], "the aborted request alone"


def test_a_key_is_asked_for_kept_and_forgotten() -> None:
    async def work(page: Page) -> Any:
        await enter(page, server, LOCKED)
        await screen(page, "server-locked")
        seen: list[Any] = [await page.is_visible("#key-form"), await page.is_visible("#problem")]
        await page.fill("#key", "sk-wrong")
        await page.press("#key", "Enter")
        await page.wait_for_selector("#problem:not([hidden])")
        seen.append(await page.inner_text("#problem"))
        await page.fill("#key", KEY)
        await page.click("#key-form button")
        await ready(page)
        await say(page, NAME)
        seen.append(await page.is_visible("#key-form"))
        await page.reload()
        await ready(page)
        stored = await page.evaluate("() => [{...sessionStorage}, {...localStorage}, document.cookie]")
        await page.click("#forget")
        await page.wait_for_function(LOCKED)
        return seen, stored

    with served_here(keys=KeyRing(plain_keys([KEY]))) as server:
        (seen, stored), notes = in_page(work)
    assert seen[:2] == [True, False]
    assert "refused this key" in seen[2]
    assert "Invalid API Key" in seen[2]
    assert seen[3] is False
    assert [list(stored[0].values()), stored[1], stored[2]] == [[KEY], {}, ""]
    assert not any(KEY in url for url in notes.urls)


def test_errors_are_shown_and_the_prompt_returns(served: ServedHere) -> None:
    async def work(page: Page) -> Any:
        await enter(page, served)
        await type_prompt(page, "llama " * 2000)
        await page.wait_for_selector("#problem:not([hidden])")
        too_long = await page.inner_text("#problem")
        assert (await page.input_value("#prompt")).startswith("llama")
        await page.route("**/v1/chat/completions", refuse)
        await type_prompt(page, NAME)
        await page.wait_for_function(SUGGESTS)
        busy = await page.inner_text("#problem")
        await screen(page, "server-problem")
        return too_long, busy, await page.evaluate(MESSAGES)

    async def refuse(route: Route) -> None:
        await route.fulfill(
            status=503, json={"error": {"message": "the server is full"}}, headers={"retry-after": "7"}
        )

    (too_long, busy, messages), _ = in_page(work)
    assert "1024" in too_long.replace(",", "")
    assert busy.split("\n\n") == ["the server is full", "Try again in 7 s."]
    assert messages == []


def test_a_broken_stream_keeps_what_came(served: ServedHere) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "half an ans"}, "finish_reason": None}]}
    error = {"error": {"message": "a step failed", "code": 500}}

    bodies: list[str] = []

    async def answer(route: Route) -> None:
        await route.fulfill(body=bodies.pop(), content_type="text/event-stream")

    async def work(page: Page) -> Any:
        await enter(page, served)
        await page.route("**/v1/chat/completions", answer)
        found: list[Any] = []
        for tail in ("", f"data: {json.dumps(error)}\n\n"):
            bodies.append(f"data: {json.dumps(chunk)}\n\n{tail}")
            await say(page, NAME)
            found.append(await page.inner_text("#problem"))
        return found, await page.evaluate(ANSWERS), await page.inner_text(".assistant")

    (problems, answers, shown), _ = in_page(work)
    assert "connection ended" in problems[0]
    assert "a step failed" in problems[1]
    assert answers == ["half an ans"] * 2
    assert "Incomplete." in shown


def test_reasoning_is_collapsed_and_not_sent_back(served: ServedHere) -> None:
    asked: list[Any] = []
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in REASONED]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + ": keep-alive\n\ndata: [DONE]\n\n"

    async def work(page: Page) -> Any:
        async def answer(route: Route) -> None:
            asked.append(json.loads(route.request.post_data or "{}")["messages"])
            await route.fulfill(body=body, content_type="text/event-stream")

        await enter(page, served)
        await page.route("**/v1/chat/completions", answer)
        await say(page, SUM)
        closed = await page.is_visible(".reasoning .text")
        await page.click(".reasoning summary")
        thoughts = await page.inner_text(".reasoning .text")
        await say(page, NAME)
        return closed, thoughts, await page.inner_html(".assistant > .text")

    (is_open, thoughts, html), _ = in_page(work)
    assert (is_open, thoughts) == (False, "Two and three make five.")
    assert html == "<p>It is <strong>5</strong>.</p>"
    assert asked[1][1] == {"role": "assistant", "content": "It is **5**."}


def test_a_long_answer_on_a_phone(served: ServedHere) -> None:
    """A table keeps its words whole, and an error is in view at the end of a long conversation."""
    text = "|name|value|description|another|\n|-|-|-|-|\n|a|200|" + "words " * 300 + "|z|"
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}

    async def answer(route: Route) -> None:
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
        await route.fulfill(body=body, content_type="text/event-stream")

    async def work(page: Page) -> Any:
        await page.set_viewport_size({"width": 390, "height": 667})
        await enter(page, served)
        await page.route("**/v1/chat/completions", answer, times=1)
        await say(page, SUM)
        n_lines = await page.evaluate(LINES_OF_A_ROW)
        await type_prompt(page, "llama " * 2000)
        await page.wait_for_selector("#problem:not([hidden])")
        await screen(page, "server-phone")
        width = await page.evaluate("() => document.documentElement.scrollWidth")
        return n_lines, await page.evaluate(IN_VIEW), width

    (n_lines, *rest), _ = in_page(work)
    assert 1 <= n_lines < 2
    assert rest == [True, 390]


def test_markdown(served: ServedHere) -> None:
    async def work(page: Page) -> Any:
        await enter(page, served)
        return {text: await page.evaluate(RENDERED, text) for text in MARKDOWN}

    found, _ = in_page(work)
    assert found == MARKDOWN


def test_markdown_is_bounded(served: ServedHere) -> None:
    async def work(page: Page) -> Any:
        await enter(page, served)
        times: dict[str, float] = {}
        for text in HEAVY:
            begun = asyncio.get_running_loop().time()
            await page.evaluate(RENDERED, text)
            times[text[:4]] = asyncio.get_running_loop().time() - begun
        return times

    times, _ = in_page(work)
    assert max(times.values()) < 5, times


@pytest.mark.parametrize("status", share_of([403, 401, 404]))
def test_the_panel_copes_without_figures(served: ServedHere, status: int) -> None:
    polls: list[str] = []

    async def work(page: Page) -> Any:
        async def refuse(route: Route) -> None:
            polls.append(route.request.url)
            await route.fulfill(status=status, json={"error": {"message": "no"}})

        await page.route("**/v1/stats", refuse)
        await page.goto(address_of(served))
        await ready(page)
        await page.click("#load summary")
        await page.wait_for_selector("#load-note:not([hidden])")
        await asyncio.sleep(2.5)
        return await page.inner_text("#load-note")

    note, _ = in_page(work)
    assert "figures" in note
    assert len(polls) == 1, "a refusal ends the polls"


def test_no_server(served: ServedHere) -> None:
    async def work(page: Page) -> Any:
        await page.route("**/v1/**", lambda route: route.abort())
        await page.goto(address_of(served))
        await page.wait_for_selector("#problem:not([hidden])")
        return await page.inner_text("#problem")

    problem, _ = in_page(work)
    assert "does not answer" in problem
    assert "Reload" in problem
    until(lambda: served.is_idle)
