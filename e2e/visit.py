"""A user's visit to the page, and a record of the page's requests and errors."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import Browser, Page, Request, Response

from e2e.browser import ROOT

Json = dict[str, Any]
SCREENS = ROOT / "build" / "screens"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
VIOLATIONS = """async (scope) => (await axe.run(scope ?? document)).violations
  .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`)"""
STEP_MS, LOAD_MS = 60_000, 480_000  # a loaded machine may be four times slower than an idle one
ON_GPU = "adapter=swiftshader&temperature=0"  # a software adapter is used only if named
WATCH = """
Object.defineProperty(Navigator.prototype, "serviceWorker", { value: undefined }); // test_offline.py has it
globalThis.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""
READY = "() => ['ready', 'failed'].includes(window.camelid?.state)"
BUSY_WITH_TEXT = "() => document.querySelector('.assistant[aria-busy] .text')?.textContent.length > 2"
LOADING = "() => document.querySelector('progress').value > 0.3"


@dataclass
class Notes:
    """Errors, requested URLs and security policies of a page."""

    errors: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self.note(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("requestfailed", self.failed)
        page.on("response", self.answered)
        # Requests of the worker are events of the context, not of the page.
        page.context.on("request", lambda request: self.urls.append(request.url))

    def note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.errors.append(text)

    def failed(self, request: Request) -> None:
        """Notes a request that failed; a blob is aborted with the worker or document that asked for it."""
        is_aborted = request.url.startswith("blob:") and request.failure == "net::ERR_ABORTED"
        if not is_aborted:
            self.errors.append(f"{request.url} failed")

    def answered(self, response: Response) -> None:
        self.policies.append(response.headers.get("content-security-policy", ""))


async def open_page(browser: Browser, address: str, **how: Any) -> tuple[Page, Notes]:
    """Opens a page in a new profile, with Notes from its first request on."""
    context = await browser.new_context(viewport={"width": 900, "height": 760}, **how)
    context.set_default_timeout(STEP_MS)
    page = await context.new_page()
    notes = Notes()
    notes.watch(page)
    await page.add_init_script(WATCH)
    await page.goto(address)
    return page, notes


async def wait_ready(page: Page) -> None:
    """Waits until the model is loaded. Raises AssertionError with the page's problem if loading failed."""
    await page.wait_for_function(READY, timeout=LOAD_MS)
    state = await page.evaluate("() => window.camelid.state")
    assert state == "ready", await page.inner_text("#problem")


async def ask(page: Page, prompt: str) -> Json:
    """Answer through window.camelid: {text, token_ids, finish_reason, ...}."""
    return await page.evaluate("(prompt) => window.camelid.ask(prompt)", prompt)


async def probe(page: Page) -> Json:
    """Current counts of the worker's WebGPU calls (probe.js)."""
    return await page.workers[0].evaluate("() => ({...globalThis.probe})")


async def hold_answer(page: Page, n_steps: int) -> None:
    """Pauses the next answer after n_steps results of the GPU (probe.js), until release_answer."""
    await page.workers[0].evaluate("(n) => globalThis.holdMaps(n)", n_steps)


async def release_answer(page: Page) -> None:
    """Lets a paused answer go on."""
    await page.workers[0].evaluate("() => globalThis.releaseMaps()")


async def type_prompt(page: Page, text: str) -> None:
    await page.fill("#prompt", text)
    await page.press("#prompt", "Enter")


async def narrowed(page: Page, width: int, height: int) -> None:
    """Gives a wide page the size of a phone, and waits until its sidebar is a closed drawer."""
    await page.set_viewport_size({"width": width, "height": height})
    await page.wait_for_function("() => document.getElementById('sidebar').inert")


async def screen(page: Page, name: str) -> None:
    SCREENS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENS / f"{name}.png")


async def settled(page: Page) -> None:
    """Waits until the answer has ended."""
    await page.wait_for_function("() => window.camelid.state !== 'busy'", timeout=LOAD_MS)
    await asyncio.sleep(0)


def reference_ids(model: Path, prompts: list[str], max_tokens: int) -> list[list[int]]:
    """Greedy answers of the reference backend, one prompt after the other."""
    import camelid

    with camelid.load(str(model), backend="reference") as llm:
        return [
            llm.chat([{"role": "user", "content": p}], max_tokens=max_tokens, temperature=0.0).token_ids
            for p in prompts
        ]


def differences(
    model: Path, prompts: list[str], answers: list[list[int]], wanted: list[list[int]]
) -> list[str]:
    """First difference of each answer from the reference's, with the reference's top-2 margin there."""
    import camelid

    lines = []
    with camelid.load(str(model), backend="reference") as llm:
        for prompt, got, want in zip(prompts, answers, wanted, strict=True):
            if got == want:
                continue
            pairs = enumerate(zip(got, want, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(got), len(want)))
            ids = [*llm.render([{"role": "user", "content": prompt}]), *want[:at]]
            second, first = np.sort(np.asarray(llm.logits(ids))[-1])[-2:]
            lines.append(
                f"{prompt!r}, position {at}: {got[at : at + 1]}, expected {want[at : at + 1]}, "
                f"top-2 margin {first - second:.2e}"
            )
    return lines
