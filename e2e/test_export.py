"""The page of one file, from disk and from a plain server; the page and its export from an installation."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.async_api import Browser, Page
from tests.support.exhaustive import requested, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.test_packaging import install, make_environment, run

from camelid.loading.model_file import open_model
from camelid.server.one_file import export
from e2e.browser import ROOT, build_site, open_browser
from e2e.chat_visit import SAMPLE, answer_file, import_text
from e2e.firefox import open_firefox
from e2e.visit import ON_GPU, READY, Notes, ask, open_page, reference_ids, screen, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
PROMPT, ANSWER, MAX_TOKENS = "What is 12 plus 30?", "12 + 30 = 42.", 16
ON_CPU = "backend=cpu&temperature=0"
OWN = re.compile(r"(blob|data):.*")
SANDBOX = """(code) => new Promise((resolve, reject) => {
  const worker = new Worker(camelidFiles.at("chat/javascript_worker.js"), { type: "module" });
  worker.onmessage = ({ data }) => (data.isLoaded ? worker.postMessage(code) : resolve(data.output));
  worker.onerror = () => reject(new Error("the worker did not start"));
})"""
NAMED = "(name) => document.querySelector('#status-text').textContent.includes(name)"
FETCH = "(url) => fetch(url).then(() => 'answered', (error) => error.name)"


@dataclass
class Visit:
    """Observations of one visit to the file."""

    notes: Notes = field(default_factory=Notes)
    status: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)

    def requests(self) -> list[str]:
        """Addresses outside the page."""
        return [url for url in self.notes.urls if not OWN.fullmatch(url)]


@contextmanager
def served(folder: Path, log: list[str]) -> Iterator[str]:
    """Serves a folder without any of Camelid's headers; notes the paths of requests."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(folder))

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            log.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


async def visit(browser: Browser, address: str, name: str) -> Visit:
    page, notes = await open_page(browser, f"{address}&max_tokens={MAX_TOKENS}")
    await wait_ready(page)
    seen = Visit(notes, await page.inner_text("#status-text"), await ask(page, PROMPT))
    if name == "disk, processor":
        await use_all(page, seen)
    await screen(page, f"one file, {name}")
    await page.context.close()
    return seen


async def use_all(page: Page, seen: Visit) -> None:
    """The page's libraries and its sandbox."""
    await import_text(page, "sample.json", answer_file(SAMPLE))
    await page.wait_for_selector(".katex-display")
    await page.wait_for_selector(".hljs-keyword")
    await page.wait_for_function("() => document.fonts.check('16px KaTeX_Main')")
    seen.found["sandbox"] = await page.evaluate(SANDBOX, "[1, 2, 3].map((x) => 2 * x).join()")
    seen.found["models"] = await page.is_visible("#open-models")
    seen.found["note"] = await page.inner_text("#note")


async def open_other(browser: Browser, address: str, model: Path, seen: Seen) -> None:
    """Opens another model from disk; then tries a request, which the policy refuses."""
    page, _ = await open_page(browser, address)
    await wait_ready(page)
    await page.set_input_files("#file", [str(model)])
    await page.wait_for_function(NAMED, arg=model.name)
    await wait_ready(page)
    seen.other = await page.inner_text("#status-text")
    seen.refused = await page.evaluate(FETCH, "http://127.0.0.1:9/")
    seen.violations = await page.evaluate("() => window.violations")
    await page.context.close()


async def problem_of(browser: Browser, address: str) -> str:
    page, _ = await open_page(browser, address)
    await page.wait_for_function(READY, timeout=60_000)
    text = await page.inner_text("#problem-text")
    await page.context.close()
    return text


@dataclass
class Seen:
    """Observations of all visits, by name."""

    visits: dict[str, Visit] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    cut: dict[str, str] = field(default_factory=dict)
    other: str = ""
    refused: str = ""
    violations: list[str] = field(default_factory=list)


async def look(names: Container[object], file: Path, seen: Seen, cut: dict[str, Path], other: Path) -> None:
    """The visits of these names."""
    from_disk = {"disk, processor": ON_CPU, "disk, WebGPU": ON_GPU}
    async with open_browser() as browser:
        for name in (name for name in from_disk if name in names):
            settings = from_disk[name]
            seen.visits[name] = await visit(browser, f"{file.as_uri()}?{settings}", name)
        with served(file.parent, seen.log) as address:
            place = f"{address}{file.name}?{ON_CPU}"
            seen.visits["server, processor"] = await visit(browser, place, "server, processor")
        for language, path in cut.items():
            seen.cut[language] = await problem_of(browser, path.as_uri())
        await open_other(browser, f"{file.as_uri()}?{ON_CPU}", other, seen)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("one-file") / "site"
    build_site(site, {})
    return site


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, site: Path) -> Seen:
    folder = site.parent
    file, other = folder / "chat.html", folder / "other.gguf"
    assert export(site, asyncio.run(open_model(str(CRIA))), file) == file.stat().st_size
    write_tiny_llama(other, seed=5, hidden=64, head_dim=16, ffn=96, context=512)
    shares = {"in the model": 0.99, "in the runtime": 0.5}
    cut = {name: folder / f"{name}.html" for name in shares if name in requested(request, "name")}
    data = file.read_bytes()
    for name, path in cut.items():
        path.write_bytes(data[: int(shares[name] * len(data))])
    seen = Seen()
    asyncio.run(look({"disk, processor", *requested(request, "name")}, file, seen, cut, other))
    return seen


@pytest.mark.parametrize("name", share_of(["disk, processor", "server, processor", "disk, WebGPU"], 2))
def test_the_file_answers_as_the_host_without_any_request(name: str, seen: Seen) -> None:
    visit = seen.visits[name]
    assert visit.answer["text"] == ANSWER
    assert [visit.answer["token_ids"]] == reference_ids(CRIA, [PROMPT], MAX_TOKENS)
    assert ("swiftshader" if "WebGPU" in name else "1 thread") in visit.status
    assert visit.notes.errors == []
    assert len(visit.requests()) == 1, "the file itself alone"
    assert len(seen.log) == 1


def test_all_parts_of_the_page_are_inside(seen: Seen) -> None:
    """Formulas with their fonts, highlighted code, the sandbox; no models dialog, which needs a store."""
    found = seen.visits["disk, processor"].found
    assert found == {"sandbox": "2,4,6", "models": False, "note": ""}


def test_another_model_opens_from_disk(seen: Seen) -> None:
    assert seen.other.startswith("other.gguf")


def test_the_policy_refuses_requests(seen: Seen) -> None:
    assert seen.refused == "TypeError"
    assert seen.violations == ["connect-src"]


@pytest.mark.parametrize("name", share_of(["in the model", "in the runtime"]))
def test_a_cut_file_is_told(name: str, seen: Seen) -> None:
    assert re.fullmatch(r"This page's file ends after [\d.]+ of [\d.]+ MB: .*", seen.cut[name])


@pytest.mark.exhaustive
def test_firefox_answers_alike(seen: Seen, site: Path) -> None:
    address = f"{(site.parent / 'chat.html').as_uri()}?{ON_CPU}&max_tokens={MAX_TOKENS}"
    with open_firefox() as firefox:
        firefox.open(address)
        firefox.ready()
        answer, notes = firefox.ask(PROMPT), firefox("notes")
    assert answer["token_ids"] == seen.visits["disk, processor"].answer["token_ids"]
    assert notes["errors"] == []
    assert {url for url in notes["urls"] if not OWN.fullmatch(url)} <= {address}


@pytest.fixture(scope="module")
def installed(site: Path) -> Path:
    """The Python of an environment with the two wheels of a release."""
    wheels = site.parent / "wheels"
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels)
    run(*build, cwd=ROOT, CAMELID_NO_NATIVE="1")
    run(*build, cwd=ROOT / "web" / "wheel", CAMELID_SITE=str(site))
    python = make_environment(site.parent / "venv")
    install(python, *wheels.glob("*.whl"))
    return python


@pytest.mark.exhaustive
def test_an_installation_serves_the_page(installed: Path) -> None:
    command = (installed.parent / "camelid", "web", "--port", "0")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", env=environment) as server:
        assert server.stdout
        try:
            address = server.stdout.readline().split()[1]
            answered = asyncio.run(answer_at(f"{address}?{ON_CPU}"))
        finally:
            server.terminate()
    assert answered.answer["text"] == ANSWER
    assert answered.notes.errors == []


async def answer_at(address: str) -> Visit:
    async with open_browser() as browser:
        return await visit(browser, address, "installed")


@pytest.mark.exhaustive
def test_an_installation_exports_the_same_file(installed: Path, site: Path, seen: Seen) -> None:
    file = site.parent / "again.html"
    run(installed.parent / "camelid", "web", "--export", file)
    assert file.read_bytes() == (site.parent / "chat.html").read_bytes()
