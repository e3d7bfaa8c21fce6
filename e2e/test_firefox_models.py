"""The models dialog in Firefox: a cut and a reload, a storage that is too small or is filled meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.hub_server import Hub, serve_hub

from e2e.browser import ROOT, build_site, link_site, serve_site
from e2e.firefox import Firefox, open_firefox
from e2e.model_stage import BIG, CHUNK, NAMES, facts, fill

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GRANTED = 31_457_280  # bytes: a fifth of the storage of all sites is one site's
LIMIT_KB = 5 * GRANTED >> 10
PARTS = 13 << 20, 8 << 20  # bytes of a model's files; the first has one request behind the three at once
ENDED = "(n) => opened.length >= n || document.querySelector('#models .problem').innerText"
FILLER = """async (size) => {
  const file = await (await navigator.storage.getDirectory()).getFileHandle("other", { create: true });
  const stream = await file.createWritable();
  await stream.write(new Uint8Array(size));
  await stream.close();
}"""
RESUME = '[aria-label="Resume the download of big-Q4_K_M.gguf"]'
REMOVE = "async () => (await navigator.storage.getDirectory()).removeEntry('other')"
CUT_AFTER = 100_000
BEGUN = "async () => (await stored()).some(({ done }) => done > 0)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("models") / "site"
    build_site(site, {name: (ROOT / "e2e" / name).read_bytes() for name in NAMES})
    return site


@pytest.fixture(scope="module")
def stage(site: Path) -> Iterator[tuple[str, Hub]]:
    with serve_hub() as hub, serve_site(site, hub=hub.url, connect=[hub.cdn]) as address:
        yield f"{address}models.html", hub


@pytest.fixture
def firefox() -> Iterator[Firefox]:
    """A Firefox that grants a site `GRANTED` bytes."""
    with open_firefox(dom__quotaManager__temporaryStorage__fixedLimit=LIMIT_KB) as firefox:
        yield firefox


@pytest.fixture
def page(firefox: Firefox, stage: tuple[str, Hub]) -> Firefox:
    """The dialog."""
    address, hub = stage
    fill(hub)
    show(firefox, address)
    return firefox


def show(page: Firefox, address: str) -> None:
    page.open(address)
    page.wait("() => document.querySelector('#models[open] #models-address')")


def get(page: Firefox, address: str) -> None:
    page.evaluate("() => document.querySelector('#models').open || document.querySelector('#show').click()")
    page.wait("() => document.querySelector('#models[open] #models-address')")
    page.evaluate("() => (document.querySelector('#models-address').value = '')")
    page("type", "#models-address", address)
    page("press", "Enter")


def opened(page: Firefox, n: int) -> dict[str, Any]:
    """{name, files} of the n-th model that was opened; fails with the dialog's problem."""
    problem = page.wait(ENDED, n, 60)
    assert problem is True, problem
    return page.evaluate("() => lastOpened()")


def stored(page: Firefox) -> list[tuple[str, int, bool]]:
    found = page.evaluate("() => stored()")
    return [(one["model"]["name"], one["done"], one["isComplete"]) for one in found]


def test_a_model_without_room_is_refused_in_numbers_and_fits_after_a_deletion(
    page: Firefox, stage: tuple[str, Hub]
) -> None:
    get(page, "owner/big")
    opened(page, 1)
    sent = stage[1].n_sent
    get(page, "owner/moving")
    told = page.wait(ENDED, 2, 60)
    assert told == (
        "moving.gguf needs 21.0 MB more, but this browser gives this site 10.0 MB (of 31.5 MB). Delete a "
        "stored model, or free space on the disk."
    )
    assert stored(page) == [("big-Q4_K_M.gguf", len(BIG), True)]
    assert stage[1].n_sent <= sent + (4 << 20)
    page.screen("models-full")
    for _ in range(2):  # the second press confirms
        page("click", '[aria-label="Delete big-Q4_K_M.gguf"]')
    page.wait("async () => !(await stored()).length")
    get(page, "owner/moving")
    assert opened(page, 2)["files"] == [facts("moving.gguf", BIG)]
    assert page("notes")["errors"] == []


@pytest.mark.exhaustive
def test_a_download_goes_on_after_a_cut_and_a_reload(page: Firefox, stage: tuple[str, Hub]) -> None:
    """In the room that it has reserved, whatever else is stored meanwhile."""
    hub = stage[1]
    hub.cut_after = [CUT_AFTER]
    hub.delay_s = 0.02
    get(page, "owner/big")
    page.wait(BEGUN)
    page("reload")
    page.evaluate(FILLER, GRANTED - len(BIG) - (3 << 20))
    before = len(hub.downloads())
    hub.delay_s = 0
    page.wait(f"() => document.querySelector('{RESUME}')")
    page("click", RESUME)
    assert opened(page, 1)["files"] == [facts("big-Q4_K_M.gguf", BIG)]
    assert min(firsts(hub)[before:]) >= CHUNK, "a stored part was sent again"
    assert hub.n_sent <= len(BIG) + CUT_AFTER + 3 * CHUNK


def firsts(hub: Hub) -> list[int]:
    """First byte of each request for a model's bytes."""
    return [int(headers["range"][6:].split("-")[0]) for headers in hub.downloads()]


@pytest.mark.exhaustive
def test_a_storage_that_is_filled_during_a_download_keeps_what_can_go_on(
    page: Firefox, stage: tuple[str, Hub]
) -> None:
    """A model in parts, the second without room: what is there is no model, and is resumed later."""
    names, hub = [f"m-0000{i}-of-00002.gguf" for i in (1, 2)], stage[1]
    parts = dict(zip(names, (BIG[: PARTS[0]], BIG[-PARTS[1] :]), strict=True))
    hub.add("owner/pair", parts)
    hub.delay_s = 0.03
    get(page, "owner/pair")
    page.wait(BEGUN)
    page.evaluate(FILLER, GRANTED - sum(PARTS) + (4 << 20))
    hub.delay_s = 0
    told = page.wait(ENDED, 1, 60)
    assert told is not True
    assert told.startswith(f"{names[0]} needs 8.4 MB more, but this browser gives this site 3."), told
    assert stored(page) == [(names[0], PARTS[0], False)]
    assert page.evaluate("() => document.querySelectorAll('[aria-label^=Open]').length") == 0
    page.evaluate(REMOVE)
    before = hub.n_sent
    page("click", f'[aria-label="Resume the download of {names[0]}"]')
    assert opened(page, 1)["files"] == [facts(name, data) for name, data in parts.items()]
    assert hub.n_sent - before == PARTS[1]
    assert page("notes")["errors"] == []


@pytest.mark.exhaustive
def test_a_model_of_unknown_size_that_does_not_fit_leaves_nothing(
    page: Firefox, stage: tuple[str, Hub]
) -> None:
    """The browser refuses a write, without an estimate before it."""
    hub = stage[1]
    hub.ignores_range = hub.hides_size = True
    page.evaluate(FILLER, GRANTED - len(BIG) + PARTS[1])
    address = f"{hub.url}/owner/moving/resolve/main/moving.gguf"
    get(page, address)
    told = page.wait(ENDED, 1, 60)
    assert told is not True
    assert told.startswith("moving.gguf does not fit: the browser's storage or the disk is full after 8."), (
        told
    )
    assert stored(page) == []
    used = page.evaluate("() => navigator.storage.estimate().then(({ usage }) => usage)")
    assert used < GRANTED - len(BIG) + PARTS[1] + (1 << 20), "bytes of the model are left"
    page.evaluate(REMOVE)
    get(page, address)
    assert opened(page, 1)["files"] == [facts("moving.gguf", BIG)]
    assert page("notes")["errors"] == []


@pytest.mark.exhaustive
def test_a_reservation_that_the_browser_refuses_is_told_in_numbers(
    firefox: Firefox, site: Path, tmp_path: Path
) -> None:
    """As on a full disk, which no estimate tells."""
    store = (site / "models" / "store.js").read_bytes()
    blind = store.replace(b"await navigator.storage.estimate()", b"{}")
    assert blind != store
    link_site(site, tmp_path / "blind", {"models/store.js": blind})
    with serve_hub() as hub, serve_site(tmp_path / "blind", hub=hub.url, connect=[hub.cdn]) as address:
        fill(hub)
        show(firefox, f"{address}models.html")
        firefox.evaluate(FILLER, GRANTED - len(BIG))
        get(firefox, "owner/big")
        told = firefox.wait(ENDED, 1, 60)
        assert told is not True
        assert told.startswith("big-Q4_K_M.gguf needs 21.0 MB more than the 0.0 MB that are stored"), told
        assert stored(firefox) == []
