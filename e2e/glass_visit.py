"""A visit to the glass box, in Chromium and in Firefox, for test_glass.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.async_api import Page, ViewportSize, expect

from e2e.browser import open_browser
from e2e.firefox import Firefox, open_firefox
from e2e.visit import AXE, LOAD_MS, VIOLATIONS, Notes, open_page, screen, settled, type_prompt, wait_ready

ADDRESSES = {
    "webgpu": "adapter=swiftshader&temperature=0&max_tokens=12",
    "cpu": "backend=cpu&threads=1&temperature=0&max_tokens=12",
}
QUESTION = "What is 12 plus 30?"
PHONE: ViewportSize = {"width": 390, "height": 760}
TABS = ("plan", "times", "cache", "tokens", "parity", "race")
ROWS = """(tab) => [...document.querySelectorAll(`#glass-${tab} tbody tr`)]
  .map((row) => [...row.children].map((cell) => cell.textContent))"""
TOKENS = """() => [...document.querySelectorAll("#glass-tokens .token")]
  .map(({ dataset }) => [Number(dataset.id), Number(dataset.logprob)])"""
WIDE = "() => document.querySelector('#glass').scrollWidth - innerWidth"
PUSH = """([tab, label]) => [...document.querySelectorAll(`#glass-${tab} button`)]
  .find(({ textContent }) => textContent === label).click()"""
DONE = """([tab, until]) => document.querySelector(`#glass-${tab} [role=alert]`).textContent
  || document.querySelector(`#glass-${tab} ${until}`)"""


@dataclass
class Seen:
    """Observations of one backend."""

    notes: Notes = field(default_factory=Notes)
    rows: dict[str, list[list[str]]] = field(default_factory=dict)
    axe: dict[str, list[str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    reports: dict[str, str] = field(default_factory=dict)
    tokens: list[tuple[int, float]] = field(default_factory=list)
    first_urls: list[str] = field(default_factory=list)


async def open_tab(page: Page, name: str) -> None:
    await page.click(f"#glass-tab-{name}")
    await expect(page.locator(f"#glass-{name}")).to_be_visible()


async def press(page: Page, tab: str, label: str, until: str) -> None:
    """Presses a button of a tab and waits for its result, or fails with the tab's problem."""
    await page.get_by_role("button", name=label).click()
    await page.wait_for_function(DONE, arg=[tab, until], timeout=LOAD_MS)
    assert await page.inner_text(f"#glass-{tab} [role=alert]") == ""


async def look(address: str, backend: str) -> Seen:
    async with open_browser() as browser:
        page, notes = await open_page(browser, f"{address}?{ADDRESSES[backend]}")
        await wait_ready(page)
        seen = Seen(notes=notes, first_urls=[*notes.urls])
        await page.evaluate(AXE.read_text())
        await type_prompt(page, QUESTION)
        await settled(page)
        await page.click("#open-menu")
        await page.click("#open-glass")
        await expect(page.locator("#glass-plan tbody tr").first).to_be_visible()
        seen.rows["plan"] = await page.evaluate(ROWS, "plan")
        seen.words["plan"] = await page.inner_text("#glass-plan .quiet")
        await page.locator("#glass-plan tbody .link").nth(3).click()
        await expect(page.locator("#glass-plan h4").first).to_be_visible()
        seen.words["source"] = await page.inner_text("#glass-plan h3 ~ *:last-child")
        await page.locator("#glass-plan th .sort").nth(4).click()
        seen.rows["sorted"] = await page.evaluate(ROWS, "plan")
        await page.focus("#glass-tab-plan")
        await page.keyboard.press("ArrowRight")
        await expect(page.locator("#glass-times")).to_be_visible()
        await press(page, "times", "Measure", "tbody tr")
        seen.rows["times"] = await page.evaluate(ROWS, "times")
        seen.words["times"] = await page.inner_text("#glass-times [aria-live]")
        await open_tab(page, "cache")
        await expect(page.locator("#glass-cache tbody tr").first).to_be_visible()
        seen.rows["cache"] = await page.evaluate(ROWS, "cache")
        seen.words["cache"] = await page.inner_text("#glass-cache")
        await open_tab(page, "tokens")
        await press(page, "tokens", "Answer with candidates", ".primary:not(:disabled)")
        await expect(page.locator("#glass-tokens .primary")).to_be_enabled(timeout=120_000)
        seen.tokens = [tuple(pair) for pair in await page.evaluate(TOKENS)]
        await page.locator("#glass-tokens .token").first.focus()
        seen.rows["tokens"] = await page.evaluate(ROWS, "tokens")
        await open_tab(page, "parity")
        await press(page, "parity", "Check this device", ".report")
        seen.rows["parity"] = await page.evaluate(ROWS, "parity")
        seen.reports["parity"] = await page.inner_text("#glass-parity .report")
        await open_tab(page, "race")
        if backend == "cpu":
            await page.fill("#glass-race-prompt", "24")
            await page.fill("#glass-race-tokens", "6")
            await press(page, "race", "Start", ".report")
            seen.reports["race"] = await page.inner_text("#glass-race .report")
            assert await page.locator("iframe").count() == 0
        for name in TABS:
            await open_tab(page, name)
            seen.axe[name] = await page.evaluate(VIOLATIONS, "#glass")
            await screen(page, f"glass-{backend}-{name}")
        await page.set_viewport_size(PHONE)
        seen.words["phone"] = str(await page.evaluate(WIDE))
        await screen(page, f"glass-{backend}-phone")
        await page.keyboard.press("Escape")
        await expect(page.locator("#glass")).to_be_hidden()
        return seen


def look_in_firefox(address: str) -> Seen:
    """The visit of `look` on the processor, in Firefox."""
    with open_firefox() as firefox:
        firefox.open(f"{address}?{ADDRESSES['cpu']}")
        firefox.ready()
        seen = Seen(first_urls=firefox("notes")["urls"])
        firefox.evaluate("(code) => (0, eval)(code)", AXE.read_text())
        firefox("type", "#prompt", QUESTION)
        firefox("press", "Enter")
        firefox.wait("() => document.querySelectorAll('#transcript > li').length === 2")
        firefox.wait("() => window.camelid.state === 'ready'")
        firefox("click", "#open-menu")
        firefox("click", "#open-glass")
        examine(firefox, seen)
        for name in TABS:
            firefox("click", f"#glass-tab-{name}")
            firefox.wait("(name) => document.getElementById(`glass-${name}`).checkVisibility()", name)
            seen.axe[name] = firefox.evaluate(VIOLATIONS, "#glass")
            firefox.screen(f"glass-{name}")
        firefox("resize", PHONE["width"], PHONE["height"])
        seen.words["phone"] = str(firefox.evaluate(WIDE))
        firefox("press", "Escape")
        firefox.wait("() => !document.querySelector('#glass').open")
        seen.notes.errors = firefox("notes")["errors"]
        return seen


def examine(firefox: Firefox, seen: Seen) -> None:
    """Each tab of the glass box, with its buttons, but no race: test_race.py has those."""
    firefox.wait("() => document.querySelector('#glass-plan tbody tr')")
    seen.rows["plan"] = firefox.evaluate(ROWS, "plan")
    seen.words["plan"] = firefox.text("#glass-plan .quiet")
    firefox.evaluate("() => document.querySelectorAll('#glass-plan tbody .link')[3].click()")
    firefox.wait("() => document.querySelector('#glass-plan h4')")
    seen.words["source"] = firefox.text("#glass-plan h3 ~ *:last-child")
    firefox.evaluate("() => document.querySelectorAll('#glass-plan th .sort')[4].click()")
    seen.rows["sorted"] = firefox.evaluate(ROWS, "plan")
    firefox.evaluate("() => document.querySelector('#glass-tab-plan').focus()")
    firefox("press", "ArrowRight")
    push(firefox, "times", "Measure", "tbody tr")
    seen.rows["times"] = firefox.evaluate(ROWS, "times")
    seen.words["times"] = firefox.text("#glass-times [aria-live]")
    firefox("click", "#glass-tab-cache")
    firefox.wait("() => document.querySelector('#glass-cache tbody tr')")
    seen.rows["cache"] = firefox.evaluate(ROWS, "cache")
    seen.words["cache"] = firefox.text("#glass-cache")
    firefox("click", "#glass-tab-tokens")
    push(firefox, "tokens", "Answer with candidates", ".primary:not(:disabled)")
    seen.tokens = [(i, logprob) for i, logprob in firefox.evaluate(TOKENS)]
    firefox.evaluate("() => document.querySelector('#glass-tokens .token').focus()")
    seen.rows["tokens"] = firefox.evaluate(ROWS, "tokens")
    firefox("click", "#glass-tab-parity")
    push(firefox, "parity", "Check this device", ".report")
    seen.rows["parity"] = firefox.evaluate(ROWS, "parity")
    seen.reports["parity"] = firefox.text("#glass-parity .report")


def push(firefox: Firefox, tab: str, label: str, until: str) -> None:
    """Does `press` in Firefox, in the tab that is shown."""
    firefox.wait("(tab) => document.getElementById(`glass-${tab}`).checkVisibility()", tab)
    firefox.evaluate(PUSH, [tab, label])
    problem = firefox.wait(DONE, [tab, until], 480)
    assert problem is True, problem
