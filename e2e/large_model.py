"""`python -m e2e.large_model [--browser firefox] [--layers 19]`: a model of 600 MB opened in the page.

It comes from a hub on loopback. The connection is cut once, and the page is reloaded in the middle of the
download; the profile is on disk. Prints one JSON object: seconds, bytes that the hub sent, and the peak
memory of all processes of the browser on this machine, so that no other may run.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Page
from tests.support.gguf_files import write_tiny_llama
from tests.support.hub_server import Hub, serve_hub

from e2e.browser import build_site, open_profile, serve_site
from e2e.firefox import Firefox, open_firefox
from e2e.visit import ask, wait_ready

SHAPE: dict[str, Any] = {"hidden": 1024, "n_heads": 16, "n_kv_heads": 8, "ffn": 4096, "type": "f16"}
NAME = "owner/large"
PROMPT = "What is 12 plus 30?"
QUERY = "?backend=cpu&max_tokens=8&model=absent"
CUT_AFTER = 1 << 20  # bytes of the first chunk that arrive before the cut
STEP_S = 0.1
MOST_S = 600
MARKS = ("start", "reloaded", "stored", "ready")
PROGRAMS = {"chromium": "chrom", "firefox": "firefox"}  # part of the name of a browser's program


@dataclass
class Course:
    """One run in either browser: the hub, the model's size, and times and bytes at its marks."""

    hub: Hub
    n_bytes: int
    marks: dict[str, tuple[float, int]] = field(default_factory=dict)  # seconds, bytes sent so far

    def mark(self, name: str) -> None:
        self.marks[name] = time.perf_counter(), self.hub.n_sent

    def wait_for_half(self) -> None:
        """Returns when the hub has sent half of the model. Raises TimeoutError after MOST_S seconds."""
        end = time.monotonic() + MOST_S
        while self.hub.n_sent < self.n_bytes // 2:
            if time.monotonic() > end:
                raise TimeoutError(f"the hub sent {self.hub.n_sent:,} of {self.n_bytes:,} bytes")
            time.sleep(STEP_S)  # the hub runs in threads of its own, and signals no progress

    def figures(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Figures of the whole run."""
        (start, _), (_, sent), (stored, _), (ready, _) = (self.marks[name] for name in MARKS)
        return {
            "bytes": self.n_bytes,
            "download_s": round(stored - start, 1),
            "load_s": round(ready - stored, 1),
            "tokens": len(answer["token_ids"]),
            "sent_before_reload": sent,
            "sent": self.hub.n_sent,
            "sent_twice": self.hub.n_sent - self.n_bytes,
        }


async def in_chromium(address: str, course: Course, profile: Path) -> dict[str, Any]:
    """One run: cut, reload in the middle, resume, load, answer."""
    async with open_profile(profile) as context:
        page = await context.new_page()
        await page.goto(address)
        course.mark("start")
        await open_dialog(page)
        await page.fill("#models-address", NAME)
        await page.press("#models-address", "Enter")
        await asyncio.to_thread(course.wait_for_half)
        await page.reload()
        course.mark("reloaded")
        await open_dialog(page)
        await page.get_by_role("button", name="Resume").click()
        await page.wait_for_selector("#models", state="hidden", timeout=1000 * MOST_S)
        course.mark("stored")
        await wait_ready(page)
        course.mark("ready")
        return await ask(page, PROMPT)


async def open_dialog(page: Page) -> None:
    await page.click("#open-models")
    await page.wait_for_selector("#models[open]")


def in_firefox(address: str, course: Course) -> dict[str, Any]:
    """The run of `in_chromium`."""
    with open_firefox() as firefox:
        firefox.open(address)
        course.mark("start")
        show_dialog(firefox)
        firefox("type", "#models-address", NAME)
        firefox("press", "Enter")
        course.wait_for_half()
        firefox("reload")
        course.mark("reloaded")
        show_dialog(firefox)
        firefox.wait("() => document.querySelector('[aria-label^=Resume]')")
        firefox("click", "[aria-label^=Resume]")
        firefox.wait("() => !document.querySelector('#models').open", seconds=MOST_S)
        course.mark("stored")
        firefox.ready()
        course.mark("ready")
        return firefox.ask(PROMPT)


def show_dialog(firefox: Firefox) -> None:
    firefox.wait("() => !document.querySelector('#open-models').disabled")
    firefox("click", "#open-models")
    firefox.wait("() => document.querySelector('#models[open] #models-address')")


@contextmanager
def peak_memory(figures: dict[str, Any], browser: str = "chromium") -> Iterator[None]:
    """Adds the peak of the browser's proportional memory, in MB: of all its processes, and of the largest."""
    done = threading.Event()
    peak = {"all_mb": 0, "largest_mb": 0}

    def watch() -> None:
        while not done.wait(5 * STEP_S):
            sizes = [n for path in Path("/proc").glob("[0-9]*") if (n := used_kb(path, browser))]
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


def used_kb(process: Path, browser: str) -> int:
    """Proportional memory in kB of a browser's process; 0 for any other."""
    try:
        if PROGRAMS[browser] not in (process / "exe").readlink().name:
            return 0
        rollup = (process / "smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration):  # it has ended, or is the system's
        return 0


def main() -> None:
    """Command line of `python -m e2e.large_model`."""
    parser = argparse.ArgumentParser(description="Open a large model in the page, interrupted twice.")
    parser.add_argument("--browser", choices=PROGRAMS, default="chromium", help="(default: %(default)s)")
    parser.add_argument("--layers", type=int, default=19, help="31.5 MB each (default: %(default)s)")
    options = parser.parse_args()
    figures: dict[str, Any] = {"browser": options.browser}
    with tempfile.TemporaryDirectory() as folder, serve_hub() as hub:
        site, model = Path(folder, "site"), Path(folder, "large.gguf")
        write_tiny_llama(model, seed=1, n_layers=options.layers, **SHAPE)
        hub.add(NAME, {"large-F16.gguf": model.read_bytes()})
        hub.cut_after = [CUT_AFTER]
        course = Course(hub, model.stat().st_size)
        build_site(site, {})
        with serve_site(site, hub=hub.url, connect=[hub.cdn]) as place, peak_memory(figures, options.browser):
            if options.browser == "firefox":
                answer = in_firefox(place + QUERY, course)
            else:
                answer = asyncio.run(in_chromium(place + QUERY, course, Path(folder, "profile")))
    print(json.dumps(figures | course.figures(answer), indent=2))


if __name__ == "__main__":
    main()
