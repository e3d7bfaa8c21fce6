"""`python -m e2e.measure [MODEL.gguf]`: cost of a first and a returning visit, and host time per step.

Prints one JSON object. `--sites SITE SITE` instead visits built sites in turns, to compare their starts, and
prints one per visit. Chromium runs on SwiftShader, so the tokens per second are no measure of a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Page, Request

from e2e.browser import ROOT, build_site, open_browser, serve_site
from e2e.visit import ON_GPU, ask, wait_ready

CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"
PROMPT, MAX_TOKENS, REPEATS = "What is 12 plus 30?", 16, 10
PATHS = {"webgpu": ON_GPU, "cpu": "backend=cpu&temperature=0"}
VISIT_FIGURES = ("ready_s", "first_token_s")
START_FIGURES = (*VISIT_FIGURES, *(f"second_visit_{name}" for name in VISIT_FIGURES), "wire_bytes")
# Records the worker's executor, and times Python between a result and the next step.
WATCH = """() => {
  const { prototype } = globalThis.camelid.Executor;
  const { run, read } = prototype;
  globalThis.watched = { pythonMs: 0, gaps: 0 };
  let done = 0;
  prototype.run = function (...args) {
    globalThis.watched.executor = this;
    const now = performance.now();
    if (done) (globalThis.watched.pythonMs += now - done), (globalThis.watched.gaps += 1), (done = 0);
    return run.apply(this, args);
  };
  prototype.read = async function (...args) {
    const result = await read.apply(this, args);
    done = performance.now();
    return result;
  };
}"""
COUNTERS = """() => {
  const { executor, ...times } = globalThis.watched;
  return { ...executor.counters, ...times };
}"""


async def measure(address: str) -> dict[str, Any]:
    """Figures of visits on each path, and of steps on WebGPU."""
    async with open_browser() as browser:
        context = await browser.new_context()
        page, figures = await first_visit(context, f"{address}?{PATHS['webgpu']}")
        figures |= await per_token(page)
        return {"webgpu": figures, "cpu": await visits(address, PATHS["cpu"])}


async def visits(address: str, settings: str) -> dict[str, Any]:
    """Figures of a first visit and of a returning one, in a new browser.

    The returning visitor has closed the first tab; while it is open, its worker would serve the second one.
    """
    async with open_browser() as browser:
        context = await browser.new_context()
        page, figures = await first_visit(context, f"{address}?{settings}")
        await close_with_worker(page)
        again = await context.new_page()
        seconds = await start(again, f"{address}?{settings}&max_tokens={MAX_TOKENS}")
        assert again.workers, "the returning visit must start a worker of its own"
        return figures | {f"second_visit_{name}": value for name, value in seconds.items()}


async def close_with_worker(page: Page) -> None:
    """Closes a page, and waits until its worker is gone."""
    async with page.workers[0].expect_event("close"):
        await page.close()


async def start(page: Page, address: str) -> dict[str, float]:
    """Seconds until a page can take a prompt, and until the first token of an answer that begins then."""
    begun = time.perf_counter()
    await page.goto(address)
    await wait_ready(page)
    ready_s = time.perf_counter() - begun
    answer = await ask(page, PROMPT)
    seconds = (ready_s, ready_s + answer["ttft_s"])
    return {name: round(value, 2) for name, value in zip(VISIT_FIGURES, seconds, strict=True)}


async def first_visit(context: BrowserContext, address: str) -> tuple[Page, dict[str, Any]]:
    """A page that has answered once; its seconds, and the bytes over the wire."""
    page = await context.new_page()
    finished: list[Request] = []
    context.on("requestfinished", lambda request: finished.append(request))
    seconds = await start(page, f"{address}&max_tokens={MAX_TOKENS}")
    sizes = {request.url: await request.sizes() for request in finished}
    return page, {
        "device": (await page.inner_text("#status-text")).split(" · ")[1],
        **seconds,
        "wire_bytes": sum(s["responseBodySize"] + s["responseHeadersSize"] for s in sizes.values()),
        "wire_bytes_by_file": {u.rpartition("/")[2]: s["responseBodySize"] for u, s in sizes.items()},
    }


async def in_turns(sites: Sequence[Path], rounds: int, paths: Sequence[str]) -> None:
    """Prints a line of JSON per visit: `rounds` to each built site on each path, in turns."""
    for _ in range(rounds):
        for site, path in product(sites, paths):
            with serve_site(site) as address:
                figures = await visits(address, PATHS[path])
            line = {"site": str(site), "path": path} | {name: figures[name] for name in START_FIGURES}
            print(json.dumps(line), flush=True)


async def per_token(page: Page) -> dict[str, Any]:
    """Figures per step and per token of REPEATS answers."""
    worker = page.workers[0]
    await worker.evaluate(WATCH)
    await ask(page, PROMPT)
    before = await worker.evaluate(COUNTERS)
    answers = [await ask(page, PROMPT) for _ in range(REPEATS)]
    after = await worker.evaluate(COUNTERS)
    moved = {name: after[name] - before[name] for name in before}
    n_tokens = sum(len(answer["token_ids"]) for answer in answers)
    return {
        "tokens": n_tokens,
        "steps": moved["runs"],
        "executor_us_per_step": round(1000 * moved["runMs"] / moved["runs"], 1),
        "python_us_per_step": round(1000 * moved["pythonMs"] / moved["gaps"], 1),
        "dispatches_per_step": round(moved["dispatches"] / moved["runs"], 1),
        "bytes_read_back_per_token": round(moved["bytesReadBack"] / n_tokens, 1),
        "objects_created": moved["objects"],
        "steps_in_flight": after["maxInFlight"],
        "decode_tps_swiftshader": round(sum(a["decode_tps"] for a in answers) / len(answers), 1),
    }


def main() -> None:
    """Prints figures of a site built with the model, or of the sites that --sites names."""
    parser = argparse.ArgumentParser(prog="python -m e2e.measure", description="Cost of a visit.")
    parser.add_argument("model", nargs="?", type=Path, default=CRIA, help="a .gguf file (default: cria)")
    parser.add_argument("--sites", nargs="+", type=Path, metavar="SITE", help="built sites, visited in turns")
    parser.add_argument("--rounds", type=int, default=5, help="visits to each of --sites (default: 5)")
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=[*PATHS], help="default: all")
    options = parser.parse_args()
    if options.sites:
        asyncio.run(in_turns(options.sites, options.rounds, options.paths))
        return
    if not options.model.exists():
        sys.exit(f"no file {options.model}; expected the path of a .gguf file")
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        build_site(site, {"cria.gguf": options.model.read_bytes()})
        with serve_site(site) as address:
            print(json.dumps(asyncio.run(measure(address)), indent=2))


if __name__ == "__main__":
    main()
