"""The page in Chromium: the reference's tokens, no request to another host, no object created per step."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page
from tests.support.gguf_files import write_tiny_llama

from cria.graded_items import first_prompts
from e2e.browser import ROOT, build_site, open_browser, probed_worker, serve_site
from e2e.visit import (
    BUSY_WITH_TEXT,
    LOADING,
    ON_GPU,
    Json,
    Notes,
    ask,
    differences,
    hold_answer,
    open_page,
    probe,
    reference_ids,
    release_answer,
    screen,
    settled,
    type_prompt,
    wait_ready,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
FEW, ALL, SEED, MAX_TOKENS = 3, 50, 0, 32  # number of prompts: few, all; tokens per answer
BAD_SETTINGS = (
    *("tempperature=1", "max_tokens=abc", "max_tokens=0", "temperature=", "seed=9007199254740993"),
    *("backend=gpu", "backend=", "threads=0", "threads=two"),
)


@dataclass
class Visit:
    """Observations of one visit."""

    notes: Notes = field(default_factory=Notes)
    status: str = ""
    answers: list[list[int]] = field(default_factory=list)
    before: Json = field(default_factory=dict)
    after: Json = field(default_factory=dict)
    typed: str = ""
    stopped: Json = field(default_factory=dict)
    after_stop: Json = field(default_factory=dict)
    opened: str = ""
    violations: list[str] = field(default_factory=list)
    no_model: list[str] = field(default_factory=list)
    bad_settings: list[str] = field(default_factory=list)


async def visit(address: str, prompts: list[str], file: Path) -> Visit:
    seen = Visit()
    async with open_browser() as browser:
        page, seen.notes = await open_page(browser, f"{address}?{ON_GPU}&max_tokens={MAX_TOKENS}")
        await page.wait_for_function(LOADING, timeout=60_000)
        await screen(page, "loading")
        await wait_ready(page)
        await screen(page, "ready")
        seen.status = await page.inner_text("#status-text")
        await ask(page, prompts[0])  # warm-up
        seen.before = await probe(page)
        seen.answers = [(await ask(page, prompt))["token_ids"] for prompt in prompts]
        seen.after = await probe(page)
        seen.violations = await page.evaluate("() => window.violations")
        seen.violations += await page.workers[0].evaluate("() => globalThis.violations")
        await screen(page, "done")
        await page.context.close()
        await open_file(browser, address, file, seen)
        await refuse_settings(browser, address, seen)
    return seen


async def open_file(browser: Browser, address: str, file: Path, seen: Visit) -> None:
    """Visits the page with a missing model, then opens a model file from disk and asks it."""
    query = f"{ON_GPU}&model=absent.gguf&max_tokens=96"
    page, _ = await open_page(browser, f"{address}?{query}", color_scheme="dark")
    seen.no_model.append(await problem(page))
    await screen(page, "no-model-dark")
    await page.set_input_files("#file", file)
    await page.wait_for_function("() => window.camelid.state !== 'failed'")
    await wait_ready(page)
    await talk(page, seen)
    seen.opened = await page.inner_text("#status-text")
    await page.context.close()


async def talk(page: Page, seen: Visit) -> None:
    """Types a prompt, stops the answer, asks again; the last answer at the width of a telephone.

    The random model generates at least 96 tokens for this prompt; the answers pause at 24, until they are
    stopped.
    """
    await hold_answer(page, n_steps=24)
    await type_prompt(page, "What is 12 plus 30?")
    await page.wait_for_function(BUSY_WITH_TEXT)
    await screen(page, "streaming-dark")
    await page.click("#send")  # the button's label is Stop now
    await release_answer(page)
    await settled(page)
    seen.typed = await page.inner_text(".transcript .assistant")
    await screen(page, "stopped-dark")
    await hold_answer(page, n_steps=24)
    asked = asyncio.create_task(ask(page, "What is 12 plus 30?"))
    await page.wait_for_function("() => document.querySelectorAll('#transcript > li').length === 2")
    await page.wait_for_function(BUSY_WITH_TEXT)
    await page.evaluate("() => window.camelid.stop()")
    await release_answer(page)
    seen.stopped = await asked
    await page.set_viewport_size({"width": 390, "height": 760})
    await screen(page, "done-mobile-dark")
    seen.after_stop = await ask(page, "What is 12 plus 30?")


async def refuse_settings(browser: Browser, address: str, seen: Visit) -> None:
    """Visits the page with a missing model on the default backend, then with invalid settings."""
    page, _ = await open_page(browser, f"{address}?model=absent.gguf")
    seen.no_model.append(await problem(page))
    await page.context.close()
    page, _ = await open_page(browser, "about:blank")
    for setting in BAD_SETTINGS:
        await page.goto(f"{address}?model=cria.gguf&{setting}")
        seen.bad_settings.append(await problem(page))
        assert not page.workers, "nothing is loaded"
        assert await page.is_disabled("#file"), "nor can be"


async def problem(page: Page) -> str:
    """Text of the problem that the page shows."""
    await page.wait_for_selector("#problem:not([hidden])", timeout=60_000)
    return await page.inner_text("#problem")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_llama(path, seed=7, context=1024)
    return path


@pytest.fixture(scope="module")
def cria(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of cria, so that page and reference read the same file even if the original is replaced."""
    return Path(shutil.copy(CRIA, tmp_path_factory.mktemp("cria")))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, cria: Path) -> Iterator[str]:
    site = tmp_path_factory.mktemp("page") / "site"
    build_site(site, {**probed_worker(), "cria.gguf": cria.read_bytes()})
    with serve_site(site) as url:
        yield url


@pytest.fixture(scope="module")
def seen(address: str, tiny: Path) -> Visit:
    return asyncio.run(visit(address, first_prompts(SEED, FEW), tiny))


def test_backend_and_adapter_are_named(seen: Visit) -> None:
    assert "webgpu" in seen.status and "swiftshader" in seen.status.lower()


def check_answers(answers: list[list[int]], cria: Path, n_prompts: int) -> None:
    prompts = first_prompts(SEED, n_prompts)
    wanted = reference_ids(cria, prompts, MAX_TOKENS)
    assert len(answers) == n_prompts and all(wanted)
    assert not differences(cria, prompts, answers, wanted)


def test_token_ids_equal_the_reference(seen: Visit, cria: Path) -> None:
    check_answers(seen.answers, cria, FEW)


@pytest.mark.exhaustive
def test_token_ids_of_many_answers_equal_the_reference(address: str, cria: Path) -> None:
    async def answers() -> list[list[int]]:
        async with open_browser() as browser:
            page, _ = await open_page(browser, f"{address}?{ON_GPU}&max_tokens={MAX_TOKENS}")
            await wait_ready(page)
            return [(await ask(page, prompt))["token_ids"] for prompt in first_prompts(SEED, ALL)]

    check_answers(asyncio.run(answers()), cria, ALL)


def test_no_other_host_is_asked(seen: Visit, address: str) -> None:
    hosts = {urlsplit(url).netloc for url in seen.notes.urls if not url.startswith(("data:", "blob:"))}
    assert hosts == {urlsplit(address).netloc}
    assert any(url.endswith("cria.gguf") for url in seen.notes.urls), "the worker's requests are seen too"


def test_policy_is_sent_and_kept(seen: Visit) -> None:
    assert seen.notes.policies
    assert all("script-src 'self' 'wasm-unsafe-eval'" in policy for policy in seen.notes.policies)
    assert seen.violations == []


def test_console_is_clean(seen: Visit) -> None:
    assert seen.notes.errors == []


def test_nothing_is_created_after_warm_up(seen: Visit) -> None:
    assert seen.before["created"] > 0
    assert seen.after["created"] == seen.before["created"]
    assert seen.after["submits"] - seen.before["submits"] >= sum(map(len, seen.answers))


def test_two_steps_are_in_flight(seen: Visit) -> None:
    assert seen.after["mapsOpenAtMost"] >= 2


def test_at_most_64_bytes_a_token_come_back(seen: Visit) -> None:
    n_tokens = sum(map(len, seen.answers))
    assert 0 < seen.after["bytesMapped"] - seen.before["bytesMapped"] <= 64 * n_tokens


def test_stop_ends_the_answer_and_the_next_one_is_whole(seen: Visit) -> None:
    assert "Stopped." in seen.typed
    assert seen.stopped["finish_reason"] == "cancelled"
    assert len(seen.stopped["token_ids"]) < len(seen.after_stop["token_ids"])
    assert seen.after_stop["finish_reason"] in {"stop", "length"}
    shared = len(seen.stopped["token_ids"])
    assert seen.after_stop["token_ids"][:shared] == seen.stopped["token_ids"]


def test_file_from_disk_is_opened(seen: Visit) -> None:
    assert seen.opened.startswith("tiny.gguf")


def test_problems_are_told_in_words(seen: Visit) -> None:
    assert len(seen.no_model) == 2
    for told in seen.no_model:
        assert "absent.gguf" in told and "404" in told
    for setting, told in zip(BAD_SETTINGS, seen.bad_settings, strict=True):
        name, value = setting.split("=")
        assert name in told and (name == "tempperature" or f"'{value}'" in told)
    assert "backend, adapter, threads, activations, temperature, top_k" in seen.bad_settings[0]
