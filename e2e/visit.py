"""A visit to the page as a person would make it, and everything that was noticed on the way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import Browser, Page, Response

from e2e.browser import ROOT

Json = dict[str, Any]
SCREENS = ROOT / "build" / "screens"
LOAD_MS = 240_000
ON_GPU = "adapter=swiftshader"  # a software adapter, which has to be named
WATCH = """
globalThis.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""
READY = "() => ['ready', 'failed'].includes(window.camelid?.state)"
BUSY_WITH_TEXT = "() => document.querySelector('.assistant[aria-busy] .text')?.textContent.length > 2"
LOADING = "() => document.querySelector('progress').value > 0.3"


@dataclass
class Notes:
    """What a page did besides what it showed."""

    errors: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self.note(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("requestfailed", lambda request: self.errors.append(f"{request.url} failed"))
        page.on("response", self.answered)
        # Requests of the worker reach the context, not the page.
        page.context.on("request", lambda request: self.urls.append(request.url))

    def note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.errors.append(text)

    def answered(self, response: Response) -> None:
        self.policies.append(response.headers.get("content-security-policy", ""))


async def open_page(browser: Browser, address: str, **how: Any) -> tuple[Page, Notes]:
    """A page of a new profile, watched from its first request on."""
    context = await browser.new_context(viewport={"width": 900, "height": 760}, **how)
    page = await context.new_page()
    notes = Notes()
    notes.watch(page)
    await page.add_init_script(WATCH)
    await page.goto(address)
    return page, notes


async def wait_ready(page: Page) -> None:
    """Until the model is loaded. AssertionError with the page's own words if that failed."""
    await page.wait_for_function(READY, timeout=LOAD_MS)
    state = await page.evaluate("() => window.camelid.state")
    assert state == "ready", await page.inner_text("#problem")


async def ask(page: Page, prompt: str) -> Json:
    """The answer through the hook for tests: {text, token_ids, finish_reason, ...}."""
    return await page.evaluate("(prompt) => window.camelid.ask(prompt)", prompt)


async def probe(page: Page) -> Json:
    """The worker's own count of what it asked of WebGPU, at this moment."""
    return await page.workers[0].evaluate("() => ({...globalThis.probe})")


async def type_prompt(page: Page, text: str) -> None:
    await page.fill("#prompt", text)
    await page.press("#prompt", "Enter")


async def screen(page: Page, name: str) -> None:
    SCREENS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENS / f"{name}.png")


async def settled(page: Page) -> None:
    """Until the answer has ended."""
    await page.wait_for_function("() => window.camelid.state !== 'busy'", timeout=LOAD_MS)
    await asyncio.sleep(0)


def reference_ids(model: Path, prompts: list[str], max_tokens: int) -> list[list[int]]:
    """Greedy answers of the NumPy backend, one prompt after the other."""
    import camelid

    with camelid.load(str(model), backend="reference") as llm:
        return [
            llm.chat([{"role": "user", "content": p}], max_tokens=max_tokens, temperature=0.0).token_ids
            for p in prompts
        ]


def differences(
    model: Path, prompts: list[str], answers: list[list[int]], wanted: list[list[int]]
) -> list[str]:
    """Where answers leave the reference's, and how close its two best tokens are there."""
    import camelid

    told = []
    with camelid.load(str(model), backend="reference") as llm:
        for prompt, got, want in zip(prompts, answers, wanted, strict=True):
            if got == want:
                continue
            pairs = enumerate(zip(got, want, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(got), len(want)))
            ids = [*llm.render([{"role": "user", "content": prompt}]), *want[:at]]
            second, first = np.sort(np.asarray(llm.logits(ids))[-1])[-2:]
            told.append(
                f"{prompt!r}, position {at}: {got[at : at + 1]}, wanted {want[at : at + 1]}, "
                f"top-2 margin {first - second:.2e}"
            )
    return told
