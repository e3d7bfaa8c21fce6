"""wllama beside Camelid's page on cpu, in headless Chromium: the same file, in turns.

python -m tests.rivals.wllama [--shape 135m-q4_0] [--threads 2] [--prompt 512] [--tokens 64] [--runs 5]

Both pages are cross-origin isolated. wllama's figures are llama.cpp's own, without the cost of its messages;
Camelid's are its engine's, from the request to the token in Python. No two prompts share a prefix.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

from e2e.browser import ROOT, build_site, link_or_copy, open_browser, serve_site
from e2e.visit import wait_ready
from playwright.async_api import Browser, Page
from tests.perf.shapes import SHAPES, write
from tests.rivals.letters import write_with_letters

from camelid.cli.doctor_machine import read_machine

NAMES = {"135m": "SmolLM2-135M", "06b": "Qwen3-0.6B", "1b": "Llama-3.2-1B"}
PACKAGE = ROOT / "node_modules" / "@wllama" / "wllama"
ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
WORDS = " the llama and the alpaca walked over the mountain to the other side of the river"
MODEL = "model.gguf"


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of one answer."""

    prefill: float
    decode: float


class Isolated(SimpleHTTPRequestHandler):
    """Serves a folder with the headers that enable shared memory."""

    def end_headers(self) -> None:
        for name, value in ISOLATION.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
        """Writes no log."""


@contextmanager
def serve_isolated(site: Path) -> Iterator[str]:
    """The address of a folder served without a content policy, which wllama's worker would violate."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Isolated, directory=site)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def shape_file(shape: str, folder: Path) -> Path:
    """The file of a shape and type, made once, with a vocabulary for both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    name, _, kind = shape.partition("-")
    bare, target = folder / f"{shape}.gguf", folder / f"{shape}-letters.gguf"
    if not bare.exists():
        write(NAMES[name], SHAPES[NAMES[name]], kind, bare)
    if not target.exists():
        write_with_letters(bare, target)
    return target


def prompt_of(length: int, turn: int) -> str:
    """A prompt of `length` bytes; its first letter differs by turn."""
    text = WORDS * (length // len(WORDS) + 1)
    return f"{chr(ord('a') + turn)}{text}"[:length]


def write_rival_site(site: Path, model: Path) -> None:
    shutil.copytree(PACKAGE / "esm", site / "wllama", ignore=shutil.ignore_patterns("*.d.ts", "*.map"))
    here = Path(__file__).parent
    shutil.copyfile(here / "wllama.html", site / "index.html")
    shutil.copyfile(here / "wllama_page.js", site / "wllama_page.js")
    link_or_copy(str(model), str(site / MODEL))


async def open_rival(browser: Browser, address: str, how: Mapping[str, Any]) -> tuple[Page, str]:
    """wllama with the model loaded, and its version."""
    page = await browser.new_page()
    await page.goto(address)
    assert await page.evaluate("() => crossOriginIsolated")
    await page.wait_for_function("() => globalThis.rival")
    asked = {"model": MODEL, "threads": how["threads"], "context": how["prompt"] + how["tokens"] + 16}
    told = await page.evaluate("(asked) => rival.load(asked)", asked)
    version = json.loads((PACKAGE / "package.json").read_text())["version"]
    return page, f"wllama {version} (llama.cpp {told['build']}), threads {told['threads']}"


async def ask_rival(page: Page, prompt: str, tokens: int) -> Speed:
    asked = {"prompt": prompt, "tokens": tokens}
    told = await page.evaluate("(asked) => rival.ask(asked)", asked)
    got = {"cache_n": told["cache_n"], "prompt_n": told["prompt_n"], "predicted_n": told["predicted_n"]}
    check(got, {"cache_n": 0, "prompt_n": len(prompt), "predicted_n": tokens})
    return Speed(told["prompt_per_second"], told["predicted_per_second"])


async def open_camelid(browser: Browser, address: str, how: Mapping[str, Any]) -> tuple[Page, str]:
    """Camelid's page with the model loaded, and its version."""
    page = await browser.new_page()
    settings = f"model={MODEL}&backend=cpu&threads={how['threads']}&max_tokens={how['tokens']}"
    await page.goto(f"{address}?{settings}")
    await wait_ready(page)
    return page, f"Camelid: {await page.inner_text('#status-text')}"


async def ask_camelid(page: Page, prompt: str, tokens: int) -> Speed:
    told = await page.evaluate("(prompt) => window.camelid.ask(prompt)", prompt)
    got = {"cached": told["cached_tokens"], "prompt": told["prompt_tokens"], "made": len(told["token_ids"])}
    check(got, {"cached": 0, "prompt": len(prompt), "made": tokens})
    return Speed(told["prompt_tokens"] / told["ttft_s"], told["decode_tps"])


def check(got: Mapping[str, int], want: Mapping[str, int]) -> None:
    """Checks that both sides did equal work."""
    if got != want:
        raise SystemExit(f"an answer differs from what was asked: {got}, expected {want}")


async def compare(model: Path, how: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours", Path(folder) / "theirs"
        build_site(ours, {})
        link_or_copy(str(model), str(ours / MODEL))
        write_rival_site(theirs, model)
        with serve_site(ours) as our_address, serve_isolated(theirs) as their_address:
            async with open_browser() as browser:
                rival, rival_is = await open_rival(browser, their_address, how)
                page, camelid_is = await open_camelid(browser, our_address, how)
                print(f"{model.name} · Chromium {browser.version} · {read_machine().processor}")
                print(f"{camelid_is}\n{rival_is}", flush=True)
                report(await in_turns(page, rival, how), how)


async def in_turns(page: Page, rival: Page, how: Mapping[str, Any]) -> list[tuple[Speed, Speed]]:
    """(Camelid, wllama) of each run, after one uncounted run."""
    found: list[tuple[Speed, Speed]] = []
    for turn in range(how["runs"] + 1):
        prompt = prompt_of(how["prompt"], turn)
        ours = await ask_camelid(page, prompt, how["tokens"])
        found.append((ours, await ask_rival(rival, prompt, how["tokens"])))
    return found[1:]


def report(pairs: list[tuple[Speed, Speed]], how: Mapping[str, Any], rival: str = "wllama") -> None:
    """Prints median tokens a second, their range in brackets, and the ratio of the medians."""
    print(f"{'':22}{'Camelid':>26}{rival:>26}{'ratio':>8}")
    for name, words in (("prefill", f"prefill of {how['prompt']}"), ("decode", f"decode of {how['tokens']}")):
        sides = [[getattr(pair[side], name) for pair in pairs] for side in (0, 1)]
        ratio = median(sides[0]) / median(sides[1])
        print(f"{words:22}{''.join(f'{spread(side):>26}' for side in sides)}{ratio:>7.2f}x")


def spread(values: list[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    kinds = [f"{short}-{kind}" for short in NAMES for kind in ("q4_0", "q4_k_m", "q8_0")]
    parser.add_argument("--shape", choices=kinds, default="135m-q4_0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512, metavar="N")
    parser.add_argument("--tokens", type=int, default=64, metavar="N")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "shapes", help="Folder of the model files."
    )
    how = vars(parser.parse_args())
    asyncio.run(compare(shape_file(how["shape"], how["folder"]), how))


if __name__ == "__main__":
    main()
