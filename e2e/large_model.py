"""`python -m e2e.large_model [--layers 19]`: a model of 600 MB opened in the page from a hub on loopback.

The connection is cut once, and the page is reloaded in the middle of the download; the profile is on disk.
Prints one JSON object: seconds, bytes that the hub sent, and the peak memory of this machine's
Chromium processes, so that no other may run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Page
from tests.support.gguf_files import write_tiny_llama
from tests.support.hub_server import Hub, serve_hub

from e2e.browser import build_site, open_profile, serve_site
from e2e.visit import ask, wait_ready

SHAPE: dict[str, Any] = {"hidden": 1024, "n_heads": 16, "n_kv_heads": 8, "ffn": 4096, "type": "f16"}
QUERY = "?backend=cpu&max_tokens=8&model=absent"
CUT_AFTER = 1 << 20  # bytes of the first chunk that arrive before the cut
STEP_S = 0.1


async def run(address: str, hub: Hub, n_bytes: int, profile: Path) -> dict[str, Any]:
    """Figures of one run: cut, reload in the middle, resume, load, answer."""
    hub.cut_after = [CUT_AFTER]
    async with open_profile(profile) as context:
        page = await context.new_page()
        await page.goto(address + QUERY)
        start = time.perf_counter()
        await open_dialog(page)
        await page.fill("#models-address", "owner/large")
        await page.press("#models-address", "Enter")
        while hub.n_sent < n_bytes // 2:
            await asyncio.sleep(STEP_S)
        await page.reload()
        sent = hub.n_sent
        await open_dialog(page)
        await page.get_by_role("button", name="Resume").click()
        await page.wait_for_selector("#models", state="hidden", timeout=600_000)
        stored = time.perf_counter()
        await wait_ready(page)
        ready = time.perf_counter()
        answer = await ask(page, "What is 12 plus 30?")
    return {
        "bytes": n_bytes,
        "download_s": round(stored - start, 1),
        "load_s": round(ready - stored, 1),
        "tokens": len(answer["token_ids"]),
        "sent_before_reload": sent,
        "sent": hub.n_sent,
        "sent_twice": hub.n_sent - n_bytes,
    }


async def open_dialog(page: Page) -> None:
    await page.click("#open-models")
    await page.wait_for_selector("#models[open]")


@contextmanager
def peak_memory(figures: dict[str, Any]) -> Iterator[None]:
    """Adds the peak of the processes' proportional memory, in MB: of all, and of the largest."""
    done = threading.Event()
    peak = {"all_mb": 0, "largest_mb": 0}

    def watch() -> None:
        while not done.wait(5 * STEP_S):
            sizes = [n for path in Path("/proc").glob("[0-9]*") if (n := chromium_kb(path))]
            peak["all_mb"] = max(peak["all_mb"], sum(sizes) // 1000)
            peak["largest_mb"] = max(peak["largest_mb"], max(sizes, default=0) // 1000)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        figures["peak_memory"] = peak


def chromium_kb(process: Path) -> int:
    """Proportional memory in kB of a Chromium process; 0 for any other."""
    try:
        if "chrom" not in (process / "comm").read_text():
            return 0
        rollup = (process / "smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration):  # it has ended
        return 0


def main() -> None:
    """Command line of `python -m e2e.large_model`."""
    parser = argparse.ArgumentParser(description="Open a large model in the page, interrupted twice.")
    parser.add_argument("--layers", type=int, default=19, help="31.5 MB each (default: %(default)s)")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, serve_hub() as hub:
        site, model = Path(folder, "site"), Path(folder, "large.gguf")
        write_tiny_llama(model, seed=1, n_layers=options.layers, **SHAPE)
        hub.add("owner/large", {"large-F16.gguf": model.read_bytes()})
        build_site(site, {})
        with serve_site(site, hub=hub.url, connect=[hub.cdn]) as address, peak_memory(figures):
            size = model.stat().st_size
            figures |= asyncio.run(run(address, hub, size, Path(folder, "profile")))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
