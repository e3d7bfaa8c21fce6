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
START_FIGURES = ("first_token_s", "second_visit_ready_s", "wire_bytes")
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
    """Figures of a first visit and of a returning one, in a new browser."""
    async with open_browser() as browser:
        context = await browser.new_context()
        _, figures = await first_visit(context, f"{address}?{settings}")
        start = time.perf_counter()
        again = await context.new_page()
        await again.goto(f"{address}?{settings}")
        await wait_ready(again)
        return figures | {"second_visit_ready_s": round(time.perf_counter() - start, 2)}


async def first_visit(context: BrowserContext, address: str) -> tuple[Page, dict[str, Any]]:
    """A page that has answered once; its seconds, and the bytes over the wire."""
    page = await context.new_page()
    finished: list[Request] = []
    context.on("requestfinished", lambda request: finished.append(request))
    start = time.perf_counter()
    await page.goto(f"{address}&max_tokens={MAX_TOKENS}")
    await wait_ready(page)
    ready_s = time.perf_counter() - start
    first = await ask(page, PROMPT)
    sizes = {request.url: await request.sizes() for request in finished}
    return page, {
        "device": (await page.inner_text("#status-text")).split(" · ")[1],
        "ready_s": round(ready_s, 2),
        "first_token_s": round(ready_s + first["ttft_s"], 2),
        "wire_bytes": sum(s["responseBodySize"] + s["responseHeadersSize"] for s in sizes.values()),
        "wire_bytes_by_file": {u.rpartition("/")[2]: s["responseBodySize"] for u, s in sizes.items()},
    }


async def in_turns(sites: Sequence[Path], rounds: int) -> None:
    """Prints a line of JSON per visit: `rounds` to each built site on each path, in turns."""
    for _ in range(rounds):
        for site, path in product(sites, PATHS):
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
    options = parser.parse_args()
    if options.sites:
        asyncio.run(in_turns(options.sites, options.rounds))
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
