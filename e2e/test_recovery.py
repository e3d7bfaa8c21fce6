"""A lost device in the page: the answer under way and the conversation go on, with the same tokens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.browser import ROOT, build_site, open_browser, probed_worker, serve_site
from e2e.visit import LOAD_MS, ON_GPU, Notes, ask, open_page, screen, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.faults, pytest.mark.slow]

CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"
PROMPT, NEXT = "What is 12 plus 30?", "What is the capital of France?"
# Ends the device within an answer, however fast: with the sixth of its submissions from now on.
DESTROY = """() => {
  const submit = GPUQueue.prototype.submit;
  let left = 6;
  GPUQueue.prototype.submit = function (...given) {
    submit.apply(this, given);
    left -= 1;
    if (left === 0) globalThis.devices.at(-1).destroy();
  };
}"""
NOTICE = "() => !document.querySelector('#note').hidden"


@dataclass
class Visit:
    """Observations of one visit."""

    notes: Notes = field(default_factory=Notes)
    undisturbed: list[list[int]] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)
    notice: str = ""


async def visit(address: str) -> Visit:
    seen = Visit()
    async with open_browser() as browser:
        page, seen.notes = await open_page(browser, f"{address}?{ON_GPU}&max_tokens=24")
        await wait_ready(page)
        seen.undisturbed = [(await ask(page, text))["token_ids"] for text in (PROMPT, NEXT)]
        await page.workers[0].evaluate(DESTROY)
        seen.answers.append((await ask(page, PROMPT))["token_ids"])
        await page.wait_for_function(NOTICE, timeout=LOAD_MS)
        seen.notice = await page.inner_text("#note")
        await screen(page, "device-lost")
        seen.answers.append((await ask(page, NEXT))["token_ids"])
    return seen


def test_answers_go_on_after_the_loss_of_the_device(tmp_path: Path) -> None:
    build_site(tmp_path / "site", {**probed_worker(), "cria.gguf": CRIA.read_bytes()})
    with serve_site(tmp_path / "site") as address:
        seen = asyncio.run(visit(address))
    assert seen.answers == seen.undisturbed and all(len(ids) > 2 for ids in seen.answers)
    assert "the device was lost" in seen.notice and "running requests: 1" in seen.notice
    assert not seen.notes.errors
