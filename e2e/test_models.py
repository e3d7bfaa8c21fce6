"""The models dialog against a hub on loopback: downloads cut, resumed, shared, damaged, refused; files."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect
from tests.support.exhaustive import requested, share_of
from tests.support.gguf_files import write_tiny_llama
from tests.support.hub_server import Hub, serve_hub, sha256
from tests.support.split_gguf import split

from e2e.browser import ROOT, build_site, open_browser, open_profile, serve_site
from e2e.model_stage import (
    BIG,
    CHUNK,
    CLICKED_TWICE,
    IDLE,
    NAMES,
    PARTIAL,
    PROMPT,
    SMALL,
    WAITING,
    Stage,
    facts,
    fill,
    get,
    opened,
    problem,
    until,
)
from e2e.visit import WATCH, ask, screen, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def hub_id(stage: Stage) -> None:
    """A hub id is downloaded once, checked, and opened again without the hub: from the list, by its id."""
    page = await stage.open()
    await get(page, "owner/big")
    assert await opened(page) == {"name": "big-Q4_K_M.gguf", "files": [facts("big-Q4_K_M.gguf", BIG)]}
    assert stage.hub.n_sent == len(BIG)
    assert sorted(stage.starts()) == [n * CHUNK for n in range(6)]
    stage.hub.is_down = True
    await page.click("#show")
    await page.get_by_role("button", name="Open big-Q4_K_M.gguf").click()
    assert (await opened(page, 2))["files"] == [facts("big-Q4_K_M.gguf", BIG)]
    await page.context.set_offline(True)
    await page.click("#show")
    await get(page, "owner/big")
    assert (await opened(page, 3))["name"] == "big-Q4_K_M.gguf"
    assert stage.hub.n_sent == len(BIG)


async def cut(stage: Stage) -> None:
    """A cut connection costs one chunk more at most."""
    stage.hub.cut_after = [100_000, 2 << 20]
    page = await stage.open()
    await get(page, "owner/big")
    assert (await opened(page))["files"] == [facts("big-Q4_K_M.gguf", BIG)]
    assert stage.hub.n_sent == len(BIG) + 100_000 + (2 << 20)


async def reload(stage: Stage) -> None:
    """After a reload, the download goes on behind the last stored chunk."""
    stage.hub.delay_s = 0.01
    page = await stage.open()
    await get(page, "owner/big")
    await until(page, PARTIAL)
    await page.reload()
    before = len(stage.starts())
    stage.hub.delay_s = 0
    await page.get_by_role("button", name="Resume the download of big").click()
    assert (await opened(page))["files"] == [facts("big-Q4_K_M.gguf", BIG)]
    assert min(stage.starts()[before:]) >= CHUNK


async def closed(stage: Stage) -> None:
    """A download goes on while the dialog is closed, and is stored without being opened."""
    stage.hub.delay_s = 0.01
    page = await stage.open()
    await get(page, "owner/big")
    await expect(page.locator(".jobs small")).to_contain_text("/s")
    await page.keyboard.press("Escape")
    await page.click("#show")
    await expect(page.locator(".jobs strong")).to_have_text("big-Q4_K_M.gguf")
    await expect(page.get_by_role("button", name="Open big")).to_be_visible(timeout=30_000)
    await expect(page.locator(".jobs li")).to_have_count(0)
    assert await page.evaluate("() => [opened.length, notices.length]") == [0, 0]


async def notices(stage: Stage) -> None:
    """The page hears of a download that ends or fails while the dialog is closed, once."""
    stage.hub.delay_s = 0.01
    page = await stage.open()
    for address, flip in (("owner/big", len(BIG) - 1), ("owner/moving", -1)):
        stage.hub.flip = flip
        await get(page, address)
        await expect(page.locator(".jobs small")).to_contain_text("/s")
        await page.keyboard.press("Escape")
        await until(page, f"async () => notices.length === {1 if flip >= 0 else 2}")
        await page.click("#show")
    failed, stored = await page.evaluate("() => notices")
    assert failed["isFailure"] and failed["text"].startswith("The download of big-Q4_K_M.gguf failed. big-")
    assert stored == {"text": "moving.gguf is downloaded; Models opens it.", "isFailure": False}
    assert await page.evaluate("() => opened.length") == 0


async def late(stage: Stage) -> None:
    """The first request of a hub id and of an address is tried again, too."""
    page = await stage.open()
    for n, address in enumerate(("owner/small", f"{stage.hub.url}/owner/big/resolve/main/big-Q4_K_M.gguf")):
        stage.hub.is_down = True
        await get(page, address)
        asked = len(stage.hub.asked)
        async with asyncio.timeout(10):
            while len(stage.hub.asked) < asked + 2:
                await asyncio.sleep(0.02)
        stage.hub.is_down = False
        assert (await opened(page, n + 1))["files"][0]["size"] == (len(SMALL), len(BIG))[n]
        await page.click("#show")


async def languages(stage: Stage) -> None:
    """The dialog and its errors are in the page's language; English where it has no table."""
    page = await stage.open()
    for language, title, words in (
        ("de", "Modelle", "„nonsense“ ist weder Hub-Kennung noch Adresse"),
        ("fr", "Modèles", "«\u202fnonsense\u202f» n’est ni un identifiant"),
        ("es", "Models", "'nonsense' is neither a hub id nor an address"),
    ):
        await page.keyboard.press("Escape")
        await page.evaluate("(name) => (document.documentElement.lang = name)", language)
        await page.click("#show")
        await expect(page.locator("#models-title")).to_have_text(title)
        await get(page, "nonsense")
        assert words in await problem(page)
        await get(page, "owner/holes")
        await expect(page.locator(".problem")).to_contain_text("m-00002-of-00002.gguf")
        await screen(page, f"models-{language}")


async def cancel(stage: Stage) -> None:
    """Cancelling keeps what has arrived; the model can be deleted then."""
    stage.hub.delay_s = 0.01
    page = await stage.open()
    await get(page, "owner/big")
    await until(page, PARTIAL)
    await page.get_by_role("button", name="Cancel the download of big").click()
    await expect(page.locator(".note")).to_contain_text("was stopped")
    await until(page, IDLE)
    await page.get_by_role("button", name="Delete big").click()
    await page.get_by_role("button", name="Delete big").click()
    await expect(page.get_by_role("button", name="Delete big")).to_have_count(0)
    assert await page.evaluate("() => stored()") == []


async def wrong_hash(stage: Stage) -> None:
    """A damaged file is deleted, and the next download starts afresh."""
    stage.hub.flip = len(BIG) - 1
    page = await stage.open()
    await get(page, "owner/big")
    assert f"expected {sha256(BIG)}" in await problem(page)
    assert await page.evaluate("() => stored()") == []
    stage.hub.flip = -1
    await get(page, "owner/big")
    assert (await opened(page))["files"] == [facts("big-Q4_K_M.gguf", BIG)]


async def changed(stage: Stage) -> None:
    """A file that changes between two parts of a download is not pieced together."""
    stage.hub.delay_s = 0.01
    page = await stage.open()
    address = f"{stage.hub.url}/owner/moving/resolve/main/moving.gguf"
    await get(page, address)
    await until(page, PARTIAL)
    await page.get_by_role("button", name="Cancel").click()
    await until(page, IDLE)
    stage.hub.add("owner/moving", {"moving.gguf": BIG[::-1]})
    stage.hub.delay_s = 0
    await get(page, address)
    assert "moving.gguf changed on the server" in await problem(page)
    await get(page, address)
    assert (await opened(page))["files"] == [facts("moving.gguf", BIG[::-1])]


async def no_ranges(stage: Stage) -> None:
    """A server without ranges sends the whole file, once."""
    stage.hub.ignores_range = True
    page = await stage.open()
    await get(page, "owner/big")
    assert (await opened(page))["files"] == [facts("big-Q4_K_M.gguf", BIG)]
    assert stage.hub.n_sent == len(BIG)


async def refusals(stage: Stage) -> None:
    """Each wrong address gets its own message."""
    page = await stage.open()
    other = stage.hub.cdn.replace("localhost", "127.0.0.1")
    for address, words in {
        "owner/absent": "There is no repository owner/absent",
        "owner/big@v9": "owner/big has no revision 'v9'",
        "owner/big:Q2_K": "owner/big has no Q2_K; it has Q4_K_M",
        "owner/text": "owner/text has no .gguf file",
        "owner/holes": "owner/holes lacks m-00002-of-00002.gguf of the model's 2 files",
        "nonsense": "'nonsense' is neither a hub id nor an address",
        f"{stage.hub.url}/owner/big/resolve/main/absent.gguf": "the server answered 404. Check the address.",
        f"{other}/x.gguf": f"This page's policy does not allow {other}",
    }.items():
        await page.evaluate("() => (document.querySelector('.problem').textContent = '')")
        await get(page, address)
        assert words in await problem(page)
    stage.hub.is_down = True
    await get(page, "owner/big")
    await expect(page.locator(".problem")).to_contain_text(
        "the server answered 503. Try again later.", timeout=30_000
    )


async def quota(stage: Stage) -> None:
    """A storage that is too small is told in numbers, before the download."""
    async with open_profile(stage.folder / "profile") as context:
        await fill_up(stage, await stage.open(context))


async def fill_up(stage: Stage, page: Page) -> None:
    devtools = await page.context.new_cdp_session(page)
    override = {"origin": stage.address.rstrip("/"), "quotaSize": len(BIG) // 2}
    await devtools.send("Storage.overrideQuotaForOrigin", override)
    await get(page, "owner/big")
    told = await problem(page)
    assert "big-Q4_K_M.gguf needs 21.0 MB more than the 0.0 MB that are stored" in told, told
    assert stage.hub.n_sent <= CHUNK
    assert await page.evaluate("() => stored()") == [], "a model of which nothing is stored"
    await devtools.send("Storage.overrideQuotaForOrigin", {**override, "quotaSize": 4 * len(BIG)})
    await get(page, "owner/big")
    assert (await opened(page))["files"] == [facts("big-Q4_K_M.gguf", BIG)]


async def two_tabs(stage: Stage) -> None:
    """Two tabs share one download and its progress."""
    stage.hub.delay_s = 0.01
    first = await stage.open()
    second = await stage.open(first.context)
    await get(first, "owner/big")
    await get(second, "owner/big")
    await expect(second.locator(".jobs small")).to_contain_text("/s")
    both = await asyncio.gather(opened(first), opened(second))
    assert [it["files"] for it in both] == 2 * [[facts("big-Q4_K_M.gguf", BIG)]]
    assert stage.hub.n_sent == len(BIG)


async def tab_closes(stage: Stage) -> None:
    """When the downloading tab closes, the other one goes on where it stopped."""
    stage.hub.delay_s = 0.01
    first = await stage.open()
    second = await stage.open(first.context)
    await get(first, "owner/big")
    await until(first, PARTIAL)
    await get(second, "owner/big")
    await until(second, WAITING)
    before = len(stage.starts())
    await first.close()
    assert (await opened(second))["files"] == [facts("big-Q4_K_M.gguf", BIG)]
    assert min(stage.starts()[before:]) >= CHUNK


async def files(stage: Stage) -> None:
    """A chosen file, parts in any order, a dropped folder; an absent part is named."""
    page = await stage.open()
    parts = [stage.folder / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    for part in parts:
        part.write_bytes(part.name.encode())
    choose = page.locator("input[type=file][multiple]")
    await choose.set_input_files(parts[1:])
    assert "is one of 2 parts; missing: m-00001-of-00002.gguf" in await problem(page)
    await choose.set_input_files(parts[::-1])
    assert [file["name"] for file in (await opened(page))["files"]] == [part.name for part in parts]
    await page.click("#show")
    await page.locator("input[type=file][webkitdirectory]").set_input_files(stage.folder)
    assert (await opened(page, 2))["name"] == "m-00001-of-00002.gguf"


async def parts(stage: Stage) -> None:
    """A model in parts, from the hub or by the address of one of them, answers as the whole."""
    whole, pieces = stage.folder / "whole.gguf", stage.folder / "parts"
    pieces.mkdir()
    write_tiny_llama(whole, seed=5, hidden=64, head_dim=16, ffn=96)
    split(whole, pieces)
    stage.hub.add("owner/whole", {"whole.gguf": whole.read_bytes()})
    stage.hub.add("owner/parts", {path.name: path.read_bytes() for path in pieces.iterdir()})
    page = await stage.browser.new_page()
    await page.add_init_script(WATCH)
    await page.goto(f"{stage.address}?backend=cpu&temperature=0&max_tokens=12&model=absent")
    asked = [await ask_model(page, f"owner/{name}") for name in ("whole", "parts")]
    url = f"{stage.hub.url}/owner/parts/resolve/main/m-00002-of-00003.gguf"
    await page.goto(f"{stage.address}?backend=cpu&temperature=0&max_tokens=12&model={url}")
    await wait_ready(page)
    asked.append((await ask(page, PROMPT))["token_ids"])
    await page.set_input_files("#file", [*sorted(pieces.iterdir())[:2], whole])
    await expect(page.locator("#problem-text")).to_contain_text("Several models at once")
    await page.set_input_files("#file", sorted(pieces.iterdir(), reverse=True))
    await page.wait_for_function("() => window.camelid.state === 'loading'")
    await wait_ready(page)
    asked.append((await ask(page, PROMPT))["token_ids"])
    assert len(asked[0]) > 4 and asked[1:] == 3 * asked[:1]


async def ask_model(page: Page, address: str) -> list[int]:
    """Token ids of an answer of a model that the dialog opens in the chat page."""
    await page.click("#open-models")
    await get(page, address)
    await expect(page.locator("#models")).to_be_hidden()
    await wait_ready(page)
    return (await ask(page, PROMPT))["token_ids"]


async def twice(stage: Stage) -> None:
    """A double click opens the dialog once."""
    page = await stage.open()
    await page.keyboard.press("Escape")
    assert await page.evaluate(CLICKED_TWICE) == 1


async def keyboard(stage: Stage) -> None:
    """The dialog works by keyboard alone, and Escape closes it."""
    page = await stage.open()
    assert await page.evaluate("() => document.activeElement.ariaLabel") == "Close"
    await page.keyboard.press("Tab")
    await page.keyboard.type("owner/small")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert (await opened(page))["files"] == [facts("small.gguf", SMALL)]
    await page.focus("#show")
    await page.keyboard.press("Enter")
    await expect(page.locator("#models")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("#models")).to_be_hidden()


async def looks(stage: Stage) -> None:
    """Screenshots: light, dark and phone, with a stored, a partial and a running model."""
    page = await stage.open(color_scheme="light")
    await get(page, "owner/small")
    await opened(page)
    await page.click("#show")
    stage.hub.delay_s = 0.01
    await get(page, "owner/big")
    await expect(page.locator(".jobs small")).to_contain_text("left")
    await screen(page, "models-light")
    await page.emulate_media(color_scheme="dark")
    await screen(page, "models-dark")
    await page.set_viewport_size({"width": 390, "height": 844})
    await screen(page, "models-phone-dark")
    assert await page.evaluate("() => document.querySelector('dialog').scrollWidth <= innerWidth")


SCENES = (
    hub_id, cut, reload, notices, wrong_hash, changed, refusals, quota, two_tabs, languages, files, parts,
    keyboard, late, closed, cancel, no_ranges, tab_closes, twice, looks,
)  # fmt: skip
ORDINARY = 13


async def play(
    names: Container[str], address: str, hub: Hub, folder: Path
) -> dict[str, BaseException | None]:
    """Each scene of these names in a profile of its own: its error, or None."""
    ends: dict[str, BaseException | None] = {}
    async with open_browser() as browser:
        for scene in (scene for scene in SCENES if scene.__name__ in names):
            fill(hub)
            place = folder / scene.__name__
            place.mkdir()
            try:
                await scene(Stage(browser, address, hub, place))
                ends[scene.__name__] = None
            except Exception as error:
                ends[scene.__name__] = error
            for context in browser.contexts:
                await context.close()
    return ends


@pytest.fixture(scope="module")
def ends(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, BaseException | None]]:
    names = requested(request, "scene")
    site = tmp_path_factory.mktemp("site")
    build_site(site, {name: (ROOT / "e2e" / name).read_bytes() for name in NAMES})
    with serve_hub() as hub, serve_site(site, hub=hub.url, connect=[hub.cdn]) as address:
        yield asyncio.run(play(names, address, hub, tmp_path_factory.mktemp("files")))


@pytest.mark.parametrize("scene", share_of([scene.__name__ for scene in SCENES], ORDINARY))
def test_scene(scene: str, ends: dict[str, BaseException | None]) -> None:
    if error := ends[scene]:
        raise error
