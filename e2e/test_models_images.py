"""The models dialog and vision towers: a hub id brings its model's mmproj file, unless a box is cleared."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect
from tests.support.hub_server import Hub, serve_hub

from e2e.browser import ROOT, build_site, open_browser, serve_site
from e2e.model_stage import BIG, NAMES, SMALL, Stage, facts, get, opened

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MODEL, TOWER = "m-Q4_K_M.gguf", "mmproj-m-F16.gguf"
BOX = "With the vision tower"


async def play(address: str, hub: Hub, folder: Path) -> None:
    """Downloads the pair, opens it from the list and without its tower, then downloads the model alone."""
    async with open_browser() as browser:
        page = await Stage(browser, address, hub, folder).open()
        await get(page, "owner/sees")
        pair = {"name": MODEL, "files": [facts(MODEL, BIG), facts(TOWER, SMALL)]}
        assert await opened(page) == pair
        assert hub.n_sent == len(BIG) + len(SMALL)
        for n, files in ((2, pair["files"]), (3, [facts(MODEL, BIG)])):
            await page.click("#show")
            await page.get_by_label(BOX).set_checked(n == 2)
            await page.get_by_role("button", name=f"Open {MODEL}").click()
            assert await opened(page, n) == {"name": MODEL, "files": files}
        await page.click("#show")
        await expect(page.get_by_label(BOX)).to_be_checked()
        await page.get_by_label(BOX).uncheck()
        await get(page, "owner/also")
        assert (await opened(page, 4))["files"] == [facts("n.gguf", SMALL[1:])]
        assert hub.n_sent == len(BIG) + len(SMALL) + len(SMALL) - 1


def test_a_hub_id_brings_its_tower(tmp_path: Path) -> None:
    build_site(tmp_path / "site", {name: (ROOT / "e2e" / name).read_bytes() for name in NAMES})
    with serve_hub() as hub, serve_site(tmp_path / "site", hub=hub.url, connect=[hub.cdn]) as address:
        hub.add("owner/sees", {MODEL: BIG, TOWER: SMALL, "mmproj-m-BF16.gguf": SMALL[2:]})
        hub.add("owner/also", {"n.gguf": SMALL[1:], "mmproj-n.gguf": SMALL[3:]})
        asyncio.run(play(address, hub, tmp_path))
