"""The service worker: a second visit without a network, updates by whole builds, ranges of stored files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page

from e2e.browser import build_site, link_site, open_browser, serve_site
from e2e.lone_page import LonePage, lone_pages
from e2e.visit import ask, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUERY = "?backend=cpu&temperature=0&max_tokens=8"
PROMPT = "What is 12 plus 30?"
INSTALLED = "() => navigator.serviceWorker.ready.then(({ active }) => active.scriptURL)"
CACHES = "() => caches.keys()"
NEXT = """async (build) => {
  const registration = await navigator.serviceWorker.getRegistration();
  const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
  while (registration.installing) await pause(); // one that failed
  await registration.update();
  const worker = registration.installing ?? registration.waiting;
  if (!worker) return "no new worker";
  while (worker.state === "installing") await pause();
  return worker.state;
}"""
ICON = "fetch('icon.svg').then((it) => it.text())"
RANGES = """async () => {
  const read = async (range) => {
    const response = await fetch("cria.gguf", { headers: { range } });
    const bytes = new Uint8Array(await response.arrayBuffer());
    return [response.status, response.headers.get("content-range"), [...bytes.subarray(0, 4)], bytes.length];
  };
  return [await read("bytes=0-3"), await read("bytes=4-"), await read("bytes=999999999-")];
}"""


async def visit(context: BrowserContext, address: str) -> tuple[Page, list[int]]:
    """A page of the context, and its answer's token ids."""
    page = await context.new_page()
    await page.goto(address + QUERY)
    await wait_ready(page)
    return page, (await ask(page, PROMPT))["token_ids"]


async def offline(address: str, seen: dict[str, Any]) -> None:
    async with open_browser() as browser:
        context = await browser.new_context()
        page, seen["first"] = await visit(context, address)
        seen["script"] = await page.evaluate(INSTALLED)
        seen["caches"] = await page.evaluate(CACHES)
        devtools = await context.new_cdp_session(page)
        seen["install"] = (await devtools.send("Page.getInstallabilityErrors"))["installabilityErrors"]
        await page.close()
        await context.set_offline(True)
        page, seen["second"] = await visit(context, address)
        seen["isolated"] = await page.evaluate("() => crossOriginIsolated")
        seen["ranges"] = await page.evaluate(RANGES)


async def update(address: str, site: Path, profile: Path, seen: dict[str, Any]) -> None:
    """A new build while a page is open: a broken one is refused, a whole one is used from the next visit."""
    async with lone_pages(profile, 2) as (page, other):
        await loaded(page, address, "first")
        await page.evaluate("import('./offline.js').then(({ keepOffline }) => keepOffline(0))")
        await page.evaluate(f"({INSTALLED})()")
        await loaded(page, address, "controlled")
        change(site, "half", files=("icon.svg",))
        (site / "icon.svg").write_text("<svg/>")  # a file of yet another build
        seen["broken"] = await page.evaluate(f"({NEXT})()")
        change(site, "whole", files=("icon.svg",))
        for _ in range(5):  # Chromium may have looked for updates by itself, between the two changes
            seen["whole"] = await page.evaluate(f"({NEXT})()")
            if seen["whole"] != "redundant":
                break
            await asyncio.sleep(1)
        seen["old"] = await page.evaluate(ICON)
        await loaded(other, address, "other")
        await loaded(page, address, "shared")
        seen["shared"] = await page.evaluate(ICON)
        await other.close()
        await loaded(page, address, "next")
        seen["new"] = await page.evaluate(ICON)
        seen["left"] = await page.evaluate(f"({CACHES})()")


async def loaded(page: LonePage, address: str, visit: str) -> None:
    """Opens the page, whose model is absent, and waits for its end."""
    await page.open(f"{address}?model=absent&{visit}")
    await page.wait(f"location.search.endsWith('{visit}') && window.camelid?.state === 'failed'")


def change(site: Path, build: str, *, files: tuple[str, ...]) -> None:
    """Makes the site another build, in which some files differ."""
    listed = json.loads((site / "files.json").read_text())
    worker = (site / "service_worker.js").read_text().replace(listed["build"], build)
    for name in files:
        write(site / name, f"<svg><!-- {build} --></svg>")
        listed["files"][name] = hashlib.sha256((site / name).read_bytes()).hexdigest()
    write(site / "files.json", json.dumps({**listed, "build": build}))
    write(site / "service_worker.js", worker)  # last: a browser may ask for it at any time


def write(path: Path, text: str) -> None:
    """Replaces a file, which may be a hard link, and its compressed siblings."""
    for suffix in ("", ".br", ".gz"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site(folder, {})
    return folder


@pytest.fixture(scope="module")
def seen(site: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with serve_site(site) as address:
        found["address"] = address
        asyncio.run(offline(address, found))
    return found


@pytest.fixture(scope="module")
def updated(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    copy = tmp_path_factory.mktemp("copy") / "site"
    link_site(site, copy, {})
    found: dict[str, Any] = {}
    with serve_site(copy) as address:
        asyncio.run(update(address, copy, copy.with_name("profile"), found))
    yield found
    shutil.rmtree(copy)


def test_second_visit_needs_no_network(seen: dict[str, Any]) -> None:
    assert seen["script"] == f"{seen['address']}service_worker.js"
    assert len(seen["first"]) > 1 and seen["second"] == seen["first"]
    assert seen["isolated"], "the stored responses lack the server's headers"


def test_stored_files_have_ranges(seen: dict[str, Any]) -> None:
    head, rest, beyond = seen["ranges"]
    assert head[0] == 206 and head[2:] == [[*b"GGUF"], 4]
    assert rest[0] == 206 and rest[3] == int(rest[1].split("/")[1]) - 4
    assert beyond[0] == 416


def test_the_page_can_be_installed(seen: dict[str, Any]) -> None:
    # Incognito, as which every new context counts, never installs.
    assert [error["errorId"] for error in seen["install"]] in ([], ["in-incognito"])


def test_a_build_is_used_as_a_whole_from_the_next_visit(updated: dict[str, Any]) -> None:
    assert updated["broken"] == "redundant", "files of two builds were installed together"
    assert updated["whole"] == "installed"
    assert "whole" not in updated["old"], "a page got files of a newer build"
    assert updated["shared"] == updated["old"], "the build changed under another tab"
    assert updated["new"] == "<svg><!-- whole --></svg>"
    assert len(updated["left"]) == 1
