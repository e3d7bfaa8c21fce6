"""The page on the CPU backend: choice of backend and threads, the stated reason, the answers."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page
from tests.support.gguf_files import write_tiny_llama

import camelid
from e2e.browser import ISOLATION, ROOT, build_site, link_site, open_browser, serve_site
from e2e.visit import Json, Notes, ask, open_page, screen

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
QUESTION, NEXT = "What is 12 plus 30?", "Who are you?"
NO_ADAPTER = ("--disable-gpu", "--disable-software-rasterizer")
NO_WEBGPU = b"Object.defineProperty(navigator, 'gpu', { value: undefined });\n"
OPENED = "() => document.getElementById('figures').textContent.startsWith('session of')"


@dataclass
class Seen:
    """Observations of one page. A failed page has a problem and no answer."""

    status: str = ""
    note: str = ""
    problem: str = ""
    answer: Json = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)


@dataclass
class Visits:
    """Observations of all pages by name, of an opened session, and of a session that fills its context."""

    pages: dict[str, Seen] = field(default_factory=dict)
    opened: str = ""  # figures of the opened session
    next: Json = field(default_factory=dict)
    long: list[Json] = field(default_factory=list)
    long_figures: str = ""


@dataclass(frozen=True)
class Terminal:
    """Answers of the native CPU backend: to the first question, by the small model, to the next question."""

    token_ids: list[int]
    small_ids: list[int]  # of the small model
    next_ids: list[int]
    n_cached: int


async def look(browser: Browser, address: str, name: str, visits: Visits, **how: object) -> Page:
    """Opens a page and, unless it failed, asks a question."""
    page, notes = await open_page(browser, address, **how)
    seen = visits.pages[name] = Seen(notes=notes)
    await page.wait_for_function("() => ['ready', 'failed'].includes(window.camelid?.state)", timeout=120_000)
    seen.status = await page.inner_text("#status-text")
    seen.note = await page.inner_text("#note") if await page.is_visible("#note") else ""
    if await page.evaluate("() => window.camelid.state") == "failed":
        seen.problem = await page.inner_text("#problem")
    else:
        seen.answer = await ask(page, QUESTION)
    await screen(page, f"processor-{name.replace(' ', '-')}")
    seen.fetched = [url.rpartition("/")[2] for url in notes.urls if url.endswith(".wasm")]
    return page


async def visit(addresses: dict[str, str], session: Path) -> Visits:
    visits, isolated = Visits(), addresses["isolated"]
    async with open_browser(*NO_ADAPTER) as browser:
        page = await look(browser, isolated, "no adapter", visits)
        await page.set_input_files("#session", session)
        await page.wait_for_function(OPENED)
        visits.opened = await page.inner_text("#figures")
        visits.next = await page.evaluate("(text) => window.camelid.say(text)", NEXT)
        await page.context.close()
        dark = {"color_scheme": "dark"}
        page = await look(browser, addresses["bare"], "not isolated", visits, **dark)
        await page.set_viewport_size({"width": 390, "height": 760})
        await screen(page, "processor-mobile-dark")
        await page.context.close()
        await look(browser, addresses["no kernels"], "no kernels", visits)
    async with open_browser() as browser:
        await look(browser, isolated, "software", visits)
        await overflow(browser, isolated, visits)
    return visits


async def overflow(browser: Browser, address: str, visits: Visits) -> None:
    """Talks to a small model on the CPU, as set in the address, until its context is full."""
    query = "backend=cpu&threads=1&model=tiny.gguf&max_tokens=60&temperature=0"
    page = await look(browser, f"{address}?{query}", "asked", visits)
    for _ in range(4):
        visits.long.append(await page.evaluate("() => window.camelid.say('the llama')"))
    visits.long_figures = await page.inner_text("#figures")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processor")


@pytest.fixture(scope="module")
def terminal(folder: Path) -> Terminal:
    model = shutil.copy(CRIA, folder / "cria.gguf")
    with camelid.load(model, backend="cpu", parallel=1) as llm:
        session = llm.session("terminal")
        session.options = {"temperature": 0.0, "max_tokens": 32}
        first = session.generate(QUESTION)
        session.save(folder / "terminal.camelid")
        done = session.generate(NEXT)
    # f32: the rounding of int8 activations may differ by variant, and a random model has near ties.
    write_tiny_llama(folder / "tiny.gguf", seed=7, type="f32")
    with camelid.load(folder / "tiny.gguf", backend="cpu") as llm:
        turn = [{"role": "user", "content": QUESTION}]
        small = llm.chat(turn, max_tokens=60, temperature=0.0)
    return Terminal(first.token_ids, small.token_ids, done.token_ids, done.usage.cached_tokens)


@pytest.fixture(scope="module")
def addresses(folder: Path, terminal: Terminal) -> Iterator[dict[str, str]]:
    """Addresses of three sites: isolated; without isolation headers and WebGPU; without the WASM kernels."""
    models = {name: (folder / name).read_bytes() for name in ("cria.gguf", "tiny.gguf")}
    worker = (ROOT / "web" / "worker.js").read_bytes()
    build_site(folder / "whole", models)
    link_site(folder / "whole", folder / "bare", {"worker.js": NO_WEBGPU + worker})
    link_site(folder / "whole", folder / "empty", {})
    for kernels in (folder / "empty").glob("wasm-*"):
        shutil.rmtree(kernels)
    with (
        serve_site(folder / "whole") as isolated,
        serve_site(folder / "bare", without=ISOLATION) as bare,
        serve_site(folder / "empty") as empty,
    ):
        yield {"isolated": isolated, "bare": bare, "no kernels": empty}


@pytest.fixture(scope="module")
def seen(addresses: dict[str, str], folder: Path) -> Visits:
    return asyncio.run(visit(addresses, folder / "terminal.camelid"))


ANSWERED = ("no adapter", "not isolated", "software", "asked")


@pytest.mark.parametrize("name", ANSWERED)
def test_answers_are_those_of_the_terminal(name: str, seen: Visits, terminal: Terminal) -> None:
    page = seen.pages[name]
    wanted = terminal.small_ids if name == "asked" else terminal.token_ids
    assert page.answer["token_ids"] == wanted
    assert "cpu on wasm_relaxed" in page.status
    assert page.notes.errors == []


def test_the_reason_is_shown(seen: Visits) -> None:
    begins = "The model runs on the CPU, not on WebGPU: "
    for name, reason in (
        ("no adapter", "this browser has WebGPU, but it offers no adapter; switch on hardware acceleration"),
        ("not isolated", "this browser offers no WebGPU; use a current Chrome"),
        ("software", "google swiftshader is a software adapter"),
    ):
        assert seen.pages[name].note.startswith(begins + reason)
    assert seen.pages["asked"].note == ""


def test_threads_share_memory_where_the_page_is_isolated(seen: Visits) -> None:
    threads = f"{os.cpu_count()} threads" if (os.cpu_count() or 1) > 1 else "1 thread"
    for name in ("no adapter", "software"):
        assert threads in seen.pages[name].status
    assert "1 thread (this page is not cross-origin isolated" in seen.pages["not isolated"].status
    assert "1 thread ·" in seen.pages["asked"].status


def test_one_module_is_fetched(seen: Visits) -> None:
    kernels = {name: [f for f in page.fetched if "camelid" in f] for name, page in seen.pages.items()}
    assert kernels["no adapter"] == kernels["software"] == ["camelid_cpu_threads.wasm"]
    assert kernels["not isolated"] == kernels["asked"] == ["camelid_cpu.wasm"]


def test_a_session_of_the_terminal_goes_on(seen: Visits, terminal: Terminal) -> None:
    assert seen.opened.endswith(f" tokens, {terminal.n_cached} cached")
    assert seen.next["token_ids"] == terminal.next_ids
    assert seen.next["cached_tokens"] == terminal.n_cached > len(terminal.token_ids)


def test_a_full_context_forgets_the_first_turns(seen: Visits) -> None:
    """The random model gives long answers, and its context length is 256 tokens."""
    assert sum(len(answer["token_ids"]) for answer in seen.long) > 150
    assert seen.long[0]["n_forgotten"] == 0 < seen.long[-1]["n_forgotten"]
    assert f"the first {seen.long[-1]['n_forgotten']} messages no longer fit" in seen.long_figures


def test_problems_are_told_in_words(seen: Visits) -> None:
    neither = seen.pages["no kernels"].problem
    assert "no backend can run this model here" in neither and "reload the page" in neither.lower()
    assert "not webgpu" in neither and "not cpu" in neither
    assert "camelid_cpu" in neither and "`make web`" in neither
