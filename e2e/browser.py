"""Chromium and the page's server, for the tests and `python -m e2e.measure`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, async_playwright

ROOT = Path(__file__).parents[1]
NAMES = ("chromium", "chromium-browser", "google-chrome")
# This list replaces Playwright's list of disabled features: Playwright's names plus the two of the address
# bar, which would start two more renderers per window.
SWITCHED_OFF = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "PaintHolding", "LensOverlay"),
    *("HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable", "ThirdPartyStoragePartitioning", "MediaRouter"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch"),
)
# --enable-unsafe-webgpu offers SwiftShader, the software adapter, on a machine without GPU. With the Vulkan
# extension, SwiftShader zeroes workgroup memory with one instruction per number, which dominates compile
# time.
FLAGS = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension",
    f"--disable-features={','.join(SWITCHED_OFF)}",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
SERVE = """
import json, sys
from pathlib import Path
from camelid.server import static
without, options = map(json.loads, sys.argv[2:])
for name in without: del static.HEADERS[name]
static.serve(Path(sys.argv[1]), **{"port": 0, **options}, ready=lambda url: print(url, flush=True))
"""
ISOLATION = ("cross-origin-opener-policy", "cross-origin-embedder-policy")


def find_chromium() -> str:
    """Path of Chromium; skips the test with a hint if Chromium is not installed."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: run .ci/system-packages test")
    return found


@asynccontextmanager
async def open_browser(*flags: str) -> AsyncIterator[Browser]:
    """A headless Chromium with a profile of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**launch_options(flags))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_profile(folder: Path, *flags: str) -> AsyncIterator[BrowserContext]:
    """A headless Chromium with its profile on disk: other profiles keep their files in memory."""
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(folder, **launch_options(flags))
        try:
            yield context
        finally:
            await context.close()


def launch_options(flags: Sequence[str]) -> dict[str, Any]:
    """Options of Playwright's launch."""
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    # Chromium has its own SwiftShader; VK_* variables select drivers for wgpu in other tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VK_")}
    return {"executable_path": find_chromium(), "args": [*FLAGS, *flags, *as_root], "env": environment}


@contextmanager
def serve_site(site: Path, *, without: Sequence[str] = (), **options: Any) -> Iterator[str]:
    """Serves `site` with Camelid's server in another process, `without` some headers. Yields the address.

    `options` are those of `static.serve`.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT / "core")}
    command = [sys.executable, "-c", SERVE, str(site), json.dumps([*without]), json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def build_site(site: Path, extra: Mapping[str, bytes]) -> None:
    """Builds the page in `site`; `extra` adds or replaces files by name."""
    command = [sys.executable, ROOT / "web" / "build.py", site, "--cache", ROOT / "build" / "web.cache"]
    subprocess.run(command, check=True, capture_output=True)
    add_files(site, extra)


def link_site(source: Path, site: Path, extra: Mapping[str, bytes]) -> None:
    """Copies a site as hard links; `extra` adds or replaces files by name."""
    shutil.copytree(source, site, copy_function=link_or_copy, dirs_exist_ok=True)
    add_files(site, extra)


def add_files(site: Path, extra: Mapping[str, bytes]) -> None:
    """Writes files to a site and removes compressed siblings of files they replace."""
    for name, data in extra.items():
        for suffix in ("", ".br", ".gz"):
            (site / f"{name}{suffix}").unlink(missing_ok=True)
        (site / name).write_bytes(data)


def probed_worker() -> dict[str, bytes]:
    """Files of a page whose worker counts its WebGPU calls, in the worker's global `probe`."""
    worker, probe = ROOT / "web" / "worker.js", ROOT / "e2e" / "probe.js"
    return {"worker.js": b'import "./probe.js";\n' + worker.read_bytes(), "probe.js": probe.read_bytes()}


def link_or_copy(source: str, target: str) -> None:
    """Hard-links a file; copies it if the target is on another file system."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
