"""The page's start: Python from the site's memory snapshot; from the archives if there is none of use; on a
returning visit, the last visit's pipelines.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser
from tests.support.exhaustive import requested, share_of
from tests.support.gguf_files import write_tiny_llama

from e2e.browser import ROOT, build_site, link_site, open_browser, probed_worker, serve_site
from e2e.visit import ON_GPU, Notes, ask, open_page, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
SNAPSHOT, WARNING = "snapshot.bin", "Python starts without its memory snapshot, more slowly: "
ARCHIVES = {"camelid.zip", "python_stdlib.zip"}
BUILD_ID_AT = 16  # in a snapshot
GREEDY = "backend=cpu&threads=1&temperature=0&max_tokens=12"
DRAWN = f"{GREEDY}&temperature=1&model=random.gguf"  # cria is too sure of its answers
PROMPT = "What is 12 plus 30?"
# The part of the warning that gives the reason, by the snapshot's damage.
REASONS = {"cut": "truncated", "of another Pyodide": "build id mismatch", "absent": "the server answered 404"}


@dataclass
class Seen:
    """Observations of one page, with its answer."""

    token_ids: list[int] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def fetched(self) -> set[str]:
        return {url.rpartition("/")[2] for url in self.notes.urls}


async def look(browser: Browser, address: str, settings: str) -> Seen:
    page, notes = await open_page(browser, f"{address}?{settings}")
    await wait_ready(page)
    answer = await ask(page, PROMPT)
    await page.context.close()
    return Seen(answer["token_ids"], notes)


async def look_at_all(visits: dict[str, tuple[Path, str]]) -> dict[str, Seen]:
    seen = dict[str, Seen]()
    async with open_browser() as browser:
        for name, (site, settings) in visits.items():
            with serve_site(site) as address:
                seen[name] = await look(browser, address, settings)
    return seen


def damage(source: Path, folder: Path) -> dict[str, Path]:
    """Copies of a site whose snapshot is of no use, by its damage."""
    whole = (source / SNAPSHOT).read_bytes()
    other = bytearray(whole)
    other[BUILD_ID_AT] ^= 1
    sites = {name: folder / name for name in REASONS}
    for (name, site), data in zip(sites.items(), (whole[:-1000], bytes(other), b""), strict=True):
        link_site(source, site, {SNAPSHOT: data})
        if name == "absent":
            (site / SNAPSHOT).unlink()
    return sites


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a built site."""
    folder = tmp_path_factory.mktemp("start")
    build_site(folder / "site", {"cria.gguf": CRIA.read_bytes()})
    return folder


@pytest.fixture(scope="module")
def visits(request: pytest.FixtureRequest, folder: Path) -> dict[str, Seen]:
    write_tiny_llama(folder / "site" / "random.gguf", seed=5, hidden=64, head_dim=16, ffn=96, context=512)
    broken = damage(folder / "site", folder)
    pages = {"whole": (folder / "site", GREEDY)}
    pages |= {name: (broken[name], GREEDY) for name in broken if name in requested(request, "damage")}
    pages |= dict.fromkeys(("drawn", "drawn again"), (folder / "site", DRAWN))
    return asyncio.run(look_at_all(pages))


def test_a_page_starts_from_the_snapshot_alone(visits: dict[str, Seen]) -> None:
    seen = visits["whole"]
    assert seen.notes.errors == []
    assert SNAPSHOT in seen.fetched()
    assert not ARCHIVES & seen.fetched(), "modules of a plain visit must be in the snapshot"


@pytest.mark.parametrize("damage", share_of(REASONS))
def test_without_a_snapshot_of_use_a_page_warns_and_answers_alike(
    damage: str, visits: dict[str, Seen]
) -> None:
    seen = visits[damage]
    warnings = [error for error in seen.notes.errors if error.startswith(WARNING)]
    assert len(warnings) == 1 and REASONS[damage] in warnings[0]
    assert seen.fetched() >= ARCHIVES
    assert seen.token_ids == visits["whole"].token_ids != []


def test_pages_from_one_snapshot_draw_different_tokens(visits: dict[str, Seen]) -> None:
    assert visits["drawn"].token_ids != visits["drawn again"].token_ids


# Another spec in the kept record, so that the executor opens another device.
CHANGE_RECORD = """async () => {
  const cache = await caches.open("camelid-pipelines");
  const [place] = await cache.keys();
  const record = await (await cache.match(place)).json();
  record.spec.limits.maxBindGroups = 4;
  await cache.put(place, new Response(JSON.stringify(record)));
}"""
RECORDS = "() => caches.open('camelid-pipelines').then((cache) => cache.keys()).then((keys) => keys.length)"


async def visit_again(address: str) -> list[tuple[int, list[int]]]:
    """Devices of the worker and the answer in three visits of a browser, the last with another record."""
    found = list[tuple[int, list[int]]]()
    async with open_browser() as browser:
        context = await browser.new_context()
        for is_changed in (False, False, True):
            page = await context.new_page()
            if is_changed:
                await page.goto(f"{address}icon.svg")
                await page.evaluate(CHANGE_RECORD)
            await page.goto(f"{address}?{ON_GPU}&max_tokens=12")
            await wait_ready(page)
            answer = await ask(page, PROMPT)
            await page.wait_for_function(RECORDS)
            found.append((await page.workers[0].evaluate("() => devices.length"), answer["token_ids"]))
            await page.close()
    return found


@pytest.mark.exhaustive
def test_a_returning_visit_compiles_pipelines_before_python_needs_them(folder: Path) -> None:
    """A device is opened for the kept record; the executor takes it, unless it needs another one."""
    link_site(folder / "site", folder / "probed", probed_worker())
    with serve_site(folder / "probed") as address:
        (first, *_), (again, *_), (changed, *_) = found = asyncio.run(visit_again(address))
    assert (first, again, changed) == (1, 1, 2)
    assert found[0][1] == found[1][1] == found[2][1] != []
