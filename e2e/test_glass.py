"""The glass box in Chromium: numbers of cria on SwiftShader and on the processor, reports, axe, a race."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, ViewportSize, expect

import camelid
from e2e.browser import ROOT, build_site, open_browser, serve_site
from e2e.visit import Notes, open_page, screen, settled, type_prompt, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
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
VIOLATIONS = """async () => (await axe.run("#glass")).violations
  .map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 160)}`)"""


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
    done = f"""() => document.querySelector("#glass-{tab} [role=alert]").textContent
      || document.querySelector({json.dumps(f"#glass-{tab} {until}")})"""
    await page.wait_for_function(done, timeout=240_000)
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
            seen.axe[name] = await page.evaluate(VIOLATIONS)
            await screen(page, f"glass-{backend}-{name}")
        await page.set_viewport_size(PHONE)
        wide = "() => document.querySelector('#glass').scrollWidth - innerWidth"
        seen.words["phone"] = str(await page.evaluate(wide))
        await screen(page, f"glass-{backend}-phone")
        await page.keyboard.press("Escape")
        await expect(page.locator("#glass")).to_be_hidden()
        return seen


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site") / "web"
    build_site(made, {})
    return made


@pytest.fixture(scope="module", params=[*ADDRESSES])
def visit(request: pytest.FixtureRequest, site: Path) -> Iterator[tuple[str, Seen]]:
    with serve_site(site) as address:
        yield request.param, asyncio.run(look(address, request.param))


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    with camelid.load(str(CRIA), backend="reference") as llm:
        yield llm


def test_a_first_visit_loads_nothing_of_it(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    assert seen.first_urls
    assert not [url for url in seen.first_urls if "/glass/" in url or "wllama" in url]


def test_nothing_fails_and_axe_is_clean(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    assert seen.notes.errors == []
    assert seen.axe == {name: [] for name in TABS}
    assert int(seen.words["phone"]) <= 0


def test_the_plan_is_that_of_the_program(visit: tuple[str, Seen]) -> None:
    backend, seen = visit
    rows, n = seen.rows["plan"], len(seen.rows["plan"])
    dispatches = sum(int(row[5]) for row in rows)
    assert f"{n} ops, {dispatches} dispatches" in seen.words["plan"]
    assert any("blk.0.ffn_" in row[3] for row in rows)
    assert ("@compute" in seen.words["source"]) == (backend == "webgpu")
    assert sorted(seen.rows["sorted"]) == sorted(rows) != seen.rows["sorted"]


def test_times_are_of_the_plans_ops(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    assert [row[1] for row in seen.rows["times"]] == [row[1] for row in seen.rows["plan"]]
    assert sum(row[3] != "–" for row in seen.rows["times"]) > 3
    assert "Clock: " in seen.words["times"]


def test_pages_of_the_cache_add_up(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    for _, _, _, held, shared, cached, free, total, _ in seen.rows["cache"]:
        assert int(held) + int(shared) + int(cached) + int(free) == int(total)
    assert int(seen.rows["cache"][0][5]) > 0
    assert "Conversation: " in seen.words["cache"]


def test_candidates_are_those_of_the_reference(visit: tuple[str, Seen], reference: Any) -> None:
    _, seen = visit
    prompt = [{"role": "user", "content": QUESTION}]
    how: dict[str, Any] = {"temperature": 0.0, "max_tokens": 256, "logprobs": 8}
    wanted = [e for e in reference.stream(prompt, **how) if e.token_id is not None]
    assert [i for i, _ in seen.tokens] == [event.token_id for event in wanted]
    for (_, logprob), event in zip(seen.tokens, wanted, strict=True):
        assert logprob == pytest.approx(event.logprob, abs=2e-2)
    top = wanted[0].top_logprobs
    assert int(seen.rows["tokens"][0][1]) == top[0][0]
    shown = float(seen.rows["tokens"][0][2].split()[0]) / 100
    assert shown == pytest.approx(math.exp(top[0][1]), rel=2e-2)


def test_parity_passes_on_this_device(visit: tuple[str, Seen]) -> None:
    backend, seen = visit
    assert len(seen.rows["parity"]) >= 13
    assert {row[1] for row in seen.rows["parity"]} == {"passed"}
    report = seen.reports["parity"]
    for words in (f"- backend: {backend}", "- browser: ", "- Camelid: ", "cria.gguf", "- date: 20"):
        assert words in report


def test_a_race_has_both_sides(visit: tuple[str, Seen]) -> None:
    backend, seen = visit
    if backend != "cpu":
        return
    assert "- prompt: 2" in seen.reports["race"]  # tokens, of 24 that were asked
    lines = [line for line in seen.reports["race"].splitlines() if line.startswith("| ")][2:]
    assert [line.split()[1] for line in lines] == ["Camelid", "wllama"]
    assert all(float(cell) > 0 for line in lines for cell in line.split("|")[2:4])
