"""A visit to the chat, step by step, and all that it saw."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, ViewportSize

from e2e.browser import ROOT, open_browser
from e2e.visit import (
    AXE,
    VIOLATIONS,
    Json,
    Notes,
    narrowed,
    open_page,
    screen,
    settled,
    type_prompt,
    wait_ready,
)

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
QUERY = "backend=cpu&threads=1&temperature=0&max_tokens=48"
QUESTIONS = ("What is 12 plus 30?", "What is the capital of France?")
EDITED = "What is the capital of Italy?"
PHONE: ViewportSize = {"width": 390, "height": 760}
SAMPLE = r"""A **bold** word, `code`, a [link](https://example.org/a?b=c), and $e^{i\pi} + 1 = 0$.

$$\int_0^1 x^2\,dx = \frac{1}{3}, \quad \sqrt{\frac{a}{b}}$$

```python
def double(x: int) -> int:  # comment
    return 2 * x
```

| name | bits |
|---|---|
| Q4_0 | 4.5 |

1. one
2. two

- [x] done
"""
HOSTILE = """<script>window.hit = 1</script><img src=x onerror="window.hit = 2"><svg onload="window.hit = 3">
[a](javascript:window.hit=4) [b](data:text/html,<script>window.hit=5</script>) [c](//evil.example/c)
<javascript:hit>

![pixel](https://evil.example/p.png) ![inline](data:image/svg+xml,<svg/onload=alert(1)>)

<style>body { display: none }</style><p style="position:fixed;inset:0">cover</p>
<a href="https://evil.example" id=form>x</a>
<iframe src="https://evil.example"></iframe><form action=https://evil.example><input name=q></form>

$\\href{javascript:window.hit=6}{x}$ $\\includegraphics{https://evil.example/x.png}$ $\\def\\a{\\a\\a}\\a$

```"><img/src=x/onerror=window.hit=7>
code
```
"""
NESTED = "\n\n".join(
    (">" * 20_000, "- " * 5_000 + "x", "[" * 20_000, "*_" * 10_000, "$" * 9_999, "(" * 9_999)
)
REMAINS = """() => [...document.querySelectorAll(
    "#transcript :is(script, style, iframe, form, object, embed, img, svg:not(.icon), [style*=fixed])")]
  .map((element) => element.outerHTML.slice(0, 200))"""
ATTRIBUTES = """() => [...document.querySelectorAll("#transcript *")].flatMap((element) => element
  .getAttributeNames().filter((name) => name.startsWith("on") || name === "id"))"""
LINKS = """() => [...document.querySelectorAll("#transcript a")]
  .map(({ href, rel, target }) => [href, rel, target])"""
TOOL = """async ([name, given]) => {
  const { runCall } = await import(new URL("chat/tools.js", location.href));
  return runCall({ function: { name, arguments: JSON.stringify(given) } }, ["calculator", "javascript"]);
}"""
PROGRAMS = {
    "value": "const xs = [1, 2, 3]; console.log('sum'); xs.reduce((a, b) => a + b)",
    "endless": "while (true) {}",
    "memory": "const a = []; while (true) a.push(new Array(1e6).fill(1))",
    "stack": "const f = () => 1 + f(); f()",
    "network": "[typeof fetch, typeof XMLHttpRequest, typeof WebSocket, typeof self, typeof document].join()",
    "fault": "JSON.parse('{')",
}
# A text in pieces: the first block stays the same element while the others grow.
GROWTH = """async (text) => {
  const { AnswerView } = await import(new URL("chat/answer_view.js", location.href));
  const element = document.createElement("div");
  const view = new AnswerView(element);
  const firsts = new Set();
  let made = 0;
  new MutationObserver((changes) => { made += changes.flatMap(({ addedNodes }) => [...addedNodes]).length; })
    .observe(element, { childList: true });
  for (let n = 1; n <= text.length; n += 1) {
    view.update(text.slice(0, n));
    if (n > 100) firsts.add(element.firstChild);
    if (n % 100 === 0) await new Promise(requestAnimationFrame);
  }
  view.update(text, true);
  const { showMarkdown } = await import(new URL("chat/answer_view.js", location.href));
  const whole = document.createElement("div");
  showMarkdown(whole, text);
  await new Promise((resolve) => setTimeout(resolve, 300));
  return { firsts: firsts.size, isEqual: whole.textContent === element.textContent };
}"""


@dataclass
class Visit:
    """Observations of one visit."""

    notes: Notes = field(default_factory=Notes)
    turns: dict[str, list[str]] = field(default_factory=dict)
    listed: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    axe: dict[str, list[str]] = field(default_factory=dict)
    found: Json = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


async def look(page: Page, name: str, seen: Visit) -> None:
    """Screenshots in light and dark, wide and as a phone; findings of axe in both colours."""
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        await screen(page, f"chat-{name}-{scheme}")
        seen.axe[f"{name} {scheme}"] = await page.evaluate(VIOLATIONS)
    wide = page.viewport_size
    assert wide
    await page.set_viewport_size(PHONE)
    await screen(page, f"chat-{name}-phone")
    seen.axe[f"{name} phone"] = await page.evaluate(VIOLATIONS)
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(wide)


async def turns(page: Page) -> list[str]:
    return await page.locator("#transcript > li > .text").all_inner_texts()


async def say(page: Page, text: str) -> None:
    n = await page.locator("#transcript > .assistant").count()
    await type_prompt(page, text)
    is_answered = "(n) => document.querySelectorAll('#transcript > .assistant').length > n"
    await page.wait_for_function(is_answered, arg=n)
    await settled(page)


async def act(page: Page, role: str, action: str, nth: int = -1) -> None:
    """Presses a button of a message."""
    turn = page.locator(f"#transcript > .{role}").nth(nth)
    await turn.hover()
    await turn.locator(f"[data-act={action}]").click()


async def menu(page: Page, id: str) -> None:
    await page.click("#open-menu")
    await page.click(f"#{id}")


async def exported(page: Page, id: str) -> str:
    async with page.expect_download() as download:
        await menu(page, id)
    return Path(await (await download.value).path()).read_text("utf-8")


async def import_text(page: Page, name: str, text: str) -> None:
    file: Any = {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
    await page.set_input_files("#import", [file])


async def converse(page: Page, seen: Visit) -> None:
    """Says two things, reloads, edits the first message, goes between branches, asks for another answer."""
    for question in QUESTIONS:
        await say(page, question)
    seen.turns["said"] = await turns(page)
    await look(page, "answered", seen)
    await page.reload()
    await wait_ready(page)
    await page.evaluate(AXE.read_text("utf-8"))
    seen.turns["reloaded"] = await turns(page)
    seen.listed["reloaded"] = await listed(page, 1)
    await act(page, "user", "edit", 0)
    await page.fill("#transcript .edit textarea", EDITED)
    await look(page, "editing", seen)
    await page.click("#transcript .edit [type=submit]")
    await page.wait_for_function(
        "() => window.camelid.state === 'busy' || document.querySelector('.assistant')"
    )
    await settled(page)
    seen.turns["edited"] = await turns(page)
    await act(page, "user", "before", 0)
    seen.turns["back"] = await turns(page)
    await act(page, "assistant", "regenerate")
    await page.wait_for_function("() => document.querySelectorAll('.assistant .branches').length")
    await settled(page)
    seen.turns["regenerated"] = await turns(page)
    seen.words["place"] = await page.inner_text(".assistant .branches span")
    await look(page, "branches", seen)


async def listed(page: Page, count: int) -> list[str]:
    """Titles in the sidebar once it has `count` of them: a list shows after the store is read."""
    rows = "document.querySelectorAll('#conversations .open').length"
    await page.wait_for_function(f"(count) => {rows} === count", arg=count)
    return await titles(page)


async def titles(page: Page) -> list[str]:
    """Titles that the sidebar has now."""
    return await page.locator("#conversations .open").all_inner_texts()


async def exchange(page: Page, seen: Visit) -> None:
    """Exports, deletes, imports; searches; imports damaged files."""
    seen.files = {kind: await exported(page, f"export-{kind}") for kind in ("json", "markdown")}
    await menu(page, "delete")
    await page.click("#question [type=submit]")
    await page.wait_for_function("() => !document.querySelector('#conversations .open')")
    seen.turns["deleted"] = await turns(page)
    for kind, text in seen.files.items():
        await import_text(page, f"chat.{kind}", text)
        await page.wait_for_function("() => document.querySelectorAll('#transcript > li').length === 4")
        seen.turns[kind] = await turns(page)
        seen.words[f"{kind} branches"] = str(await page.locator(".branches").count())
        await page.click("#clear")
    for name, words, count in (("found", "france capital", 2), ("not found", "no such words", 0)):
        await page.fill("#search", words)
        seen.listed[name] = await listed(page, count)
    await page.fill("#search", "")
    bad = {
        "cut": seen.files["json"][:-20],
        "other": "{}",
        "orphan": answer_file("An orphan").replace('"parent": "q"', '"parent": "x"'),
        "prose": "# Notes\n\nNothing here.",
    }
    for name, text in bad.items():
        await import_text(page, f"{name}.json", text)
        await page.wait_for_selector("#problem:not([hidden])")
        seen.faults[name] = await page.inner_text("#problem")
        await page.click("#dismiss")


def answer_file(content: str, **more: object) -> str:
    """An exported conversation with one answer."""
    question = {"id": "q", "parent": "root", "message": {"role": "user", "content": "Show me"}}
    answer = {"id": "a", "parent": "q", "message": {"role": "assistant", "content": content, **more}}
    one = {"title": "Sample", "system": "", "nodes": [question, answer], "chosen": {}}
    return json.dumps({"format": "camelid-conversations", "version": 1, "conversations": [one]})


async def render(page: Page, seen: Visit) -> None:
    """Shows a sample of Markdown, then hostile and deeply nested Markdown."""
    thoughts = {"reasoning_content": "They want a sample.\nI know many."}
    await import_text(page, "sample.json", answer_file(SAMPLE, **thoughts))
    await page.wait_for_selector(".katex-display")
    await page.wait_for_selector(".hljs-keyword")
    seen.found["tasks"] = await page.locator("#transcript [type=checkbox]:checked:disabled").count()
    seen.found["formulas"] = await page.locator("#transcript .katex").count()
    seen.found["links"] = await page.evaluate(LINKS)
    await look(page, "markdown", seen)
    seen.found["growth"] = await page.evaluate(GROWTH, SAMPLE)
    await import_text(page, "hostile.json", answer_file(HOSTILE))
    await page.wait_for_selector("#transcript .image")
    await page.wait_for_timeout(300)
    seen.found["hostile"] = await page.evaluate(REMAINS)
    seen.found["attributes"] = await page.evaluate(ATTRIBUTES)
    seen.found["hostile links"] = await page.evaluate(LINKS)
    seen.found["hit"] = await page.evaluate("() => window.hit ?? null")
    seen.words["hostile"] = await page.inner_text("#transcript .assistant")
    await look(page, "hostile", seen)
    started = time.perf_counter()
    await import_text(page, "nested.json", answer_file(NESTED))
    await page.wait_for_function(
        "() => document.querySelector('.assistant .text')?.textContent.includes('((((')"
    )
    seen.found["seconds"] = time.perf_counter() - started


async def call_tools(page: Page, seen: Visit) -> None:
    """Runs tools alone, then lets the model call one."""
    for name, code in PROGRAMS.items():
        seen.tools[name] = await page.evaluate(TOOL, ["javascript", {"code": code}])
    seen.tools["sum"] = await page.evaluate(TOOL, ["calculator", {"expression": "0.1 + 2 * (3 - 1) ^ 2"}])
    seen.tools["absent"] = await page.evaluate(TOOL, ["current_time", {}])
    await page.click("#clear")
    await page.click("#open-tools")
    await page.check("#tools [value=calculator]")
    await look(page, "tools", seen)
    await page.keyboard.press("Escape")
    forced = {"tool_choice": {"type": "function", "function": {"name": "calculator"}}}
    await page.evaluate("(how) => window.camelid.say('What is 12 plus 30?', how)", forced)
    seen.tools["called"] = await page.inner_text("#transcript .tool pre")
    seen.turns["called"] = await turns(page)
    await look(page, "called", seen)
    await page.click("#open-tools")
    await page.uncheck("#tools [value=calculator]")
    await page.keyboard.press("Escape")


async def constrain(page: Page, seen: Visit) -> None:
    """Constrains an answer by a schema."""
    await page.click("#clear")
    await page.click("#open-schema")
    await page.fill("#schema-text", '{"type": "object"')
    await page.click("#schema [type=submit]")
    seen.faults["schema"] = await page.inner_text("#schema-text-about")
    await look(page, "schema", seen)
    await page.fill(
        "#schema-text",
        '{"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, '
        '"required": ["n"], "additionalProperties": false}',
    )
    await page.click("#schema [type=submit]")
    await say(page, "Give me a number.")
    seen.words["schema"] = (await turns(page))[-1]
    await page.click("#open-schema")
    await page.fill("#schema-text", "")
    await page.click("#schema [type=submit]")


async def dialogs(page: Page, seen: Visit) -> None:
    """Opens the sheets by keys, changes settings and the language."""
    await page.keyboard.press("Alt+h")
    await look(page, "help", seen)
    await page.keyboard.press("Escape")
    await page.keyboard.press("Alt+m")
    await page.wait_for_selector("#models[open] #models-address")
    await look(page, "models", seen)
    await page.keyboard.press("Escape")
    await page.keyboard.press("Alt+,")
    await page.fill("#temperature", "-1")
    seen.faults["temperature"] = await page.inner_text("#temperature-about")
    await look(page, "settings", seen)
    await page.fill("#top_p", "0.5")
    await page.fill("#system", "You are brief.")
    for name, title in (("de", "Einstellungen"), ("fr", "Réglages")):
        await page.select_option("#language", name)
        await page.wait_for_selector(f"#settings-title:text-is('{title}')")  # words are fetched
        seen.words[name] = await page.inner_text("#settings-title")
        await look(page, f"settings-{name}", seen)
    await page.keyboard.press("Escape")
    await look(page, "french", seen)
    await page.reload()
    await wait_ready(page)
    await page.evaluate(AXE.read_text("utf-8"))
    seen.words["kept"] = await page.inner_text("#open-settings span")
    await page.click("#open-settings")
    seen.words["top_p"] = await page.input_value("#top_p")
    seen.words["system"] = await page.input_value("#system")
    await page.select_option("#language", "en")
    await page.wait_for_function("() => document.documentElement.lang === 'en'")
    await page.keyboard.press("Escape")


async def drawer(page: Page, seen: Visit) -> None:
    """Opens the drawer of a phone by keyboard, and renames a conversation there."""
    await narrowed(page, **PHONE)
    await page.focus("#open-sidebar")
    await page.keyboard.press("Enter")
    await page.wait_for_timeout(300)
    await look(page, "drawer", seen)
    await page.hover("#conversations .open >> nth=0")
    await page.click("[data-act=rename] >> nth=0")
    await look(page, "rename", seen)
    await page.fill("#question-field", "Named by hand")
    await page.keyboard.press("Enter")
    await page.wait_for_function(
        "() => document.querySelector('#conversations .open').textContent === 'Named by hand'"
    )
    await page.keyboard.press("Escape")
    await page.wait_for_function("() => !document.body.classList.contains('drawer')")
    await look(page, "phone", seen)


@asynccontextmanager
async def opened(browser: Browser, address: str, seen: Visit) -> AsyncIterator[Page]:
    how = {"locale": "en-US", "reduced_motion": "reduce"}  # axe would see colours of a fading line
    page, seen.notes = await open_page(browser, f"{address}?{QUERY}", **how)
    await page.wait_for_function("() => window.camelid?.state === 'ready'", timeout=60_000)
    await page.evaluate(AXE.read_text("utf-8"))
    yield page
    seen.violations = await page.evaluate("() => window.violations")
    await page.context.close()


async def visit(address: str) -> Visit:
    seen = Visit()
    async with open_browser() as browser, opened(browser, address, seen) as page:
        await look(page, "ready", seen)
        for part in (converse, exchange, render, call_tools, constrain, dialogs, drawer):
            await part(page, seen)
    return seen
