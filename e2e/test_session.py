"""Sessions between the terminal and the page: each continues a session that the other saved."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page
from tests.support.gguf_files import write_tiny_llama

import camelid
from camelid.api.llm import LLM
from camelid.api.sessions.file import HEAD
from camelid.api.sessions.session import Session
from e2e.browser import ROOT, build_site, open_browser, serve_site
from e2e.visit import ON_GPU, Json, Notes, open_page, screen, settled, type_prompt, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = Path(os.environ.get("CAMELID_CRIA") or ROOT / "core" / "camelid" / "data" / "cria.gguf")
TEXTS = ("What is 12 plus 30?", "What is the capital of France?")
NEXT, LAST = "Who are you?", "What is 3 plus 4?"
OPTIONS: dict[str, Any] = {"temperature": 0.0, "max_tokens": 32}
HAS_FIGURES = "() => document.querySelector('#figures').innerText !== ''"
STARTED = "(n) => document.querySelectorAll('#transcript > li').length === n"


@dataclass
class Visit:
    """Observations of one visit."""

    notes: Notes = field(default_factory=Notes)
    opened: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    answer: Json = field(default_factory=dict)
    typed: list[str] = field(default_factory=list)
    fresh: Json = field(default_factory=dict)
    refused: str = ""
    damaged: str = ""
    keyless: str = ""
    after_refusal: list[str] = field(default_factory=list)


def load(model: Path) -> LLM:
    return camelid.load(model, backend="reference")


def talk(llm: LLM) -> Session:
    session = llm.session("terminal")
    session.options = dict(OPTIONS)
    for text in TEXTS:
        session.generate(text)
    return session


async def turns(page: Page) -> list[str]:
    return await page.locator("#transcript .text").all_inner_texts()


async def open_session(page: Page, file: Path, n_turns: int) -> None:
    await page.set_input_files("#session", file)
    await page.wait_for_function(STARTED, arg=n_turns)


async def visit(address: str, folder: Path) -> Visit:
    seen = Visit()
    async with open_browser() as browser:
        page, seen.notes = await open_page(browser, f"{address}?{ON_GPU}")
        await wait_ready(page)
        await small_screen(page, "session-ready")
        await open_session(page, folder / "terminal.camelid", 4)
        seen.opened = await turns(page)
        await page.wait_for_function(HAS_FIGURES)
        seen.figures.append(await page.inner_text("#figures"))
        await screen(page, "session-opened")
        await small_screen(page, "session-opened")
        seen.answer = await page.evaluate("(text) => window.camelid.say(text)", NEXT)
        seen.figures.append(await page.inner_text("#figures"))
        async with page.expect_download() as download:
            await page.click("#open-menu")
            await page.click("#save")
        await (await download.value).save_as(folder / "page.camelid")
        assert (await download.value).suggested_filename == "session.camelid"
        await type_prompt(page, LAST)
        await page.wait_for_function(STARTED, arg=8)
        await settled(page)
        seen.typed = await turns(page)
        await page.click("#clear")
        seen.fresh = await page.evaluate("(text) => window.camelid.say(text)", TEXTS[0])
        await refuse(page, folder, seen)
    return seen


async def refuse(page: Page, folder: Path, seen: Visit) -> None:
    """Opens unusable session files, which must leave the conversation unchanged."""
    for name in ("other", "damaged", "keyless"):
        await page.set_input_files("#session", folder / f"{name}.camelid")
        await page.wait_for_selector("#problem:not([hidden])")
        setattr(seen, "refused" if name == "other" else name, await page.inner_text("#problem"))
        await screen(page, f"session-{name}")
        await page.evaluate("() => document.getElementById('problem').hidden = true")
    seen.after_refusal = await turns(page)


def without(key: str, data: bytes) -> bytes:
    """A session file whose header lacks a key."""
    magic, version, length, _ = HEAD.unpack_from(data)
    header = json.loads(data[HEAD.size :][:length])
    del header[key]
    text = json.dumps(header).encode()
    head = HEAD.pack(magic, version, len(text), hashlib.sha256(text).digest())
    return head + text + data[HEAD.size + length :]


async def small_screen(page: Page, name: str) -> None:
    """Takes a screenshot in dark mode at the width of a telephone."""
    usual = page.viewport_size
    assert usual
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size({"width": 390, "height": 760})
    await screen(page, f"{name}-mobile-dark")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(usual)


@dataclass(frozen=True)
class Terminal:
    """The same session on the reference backend."""

    token_ids: list[int]
    messages: list[Any]
    next_ids: list[int]
    n_cached: int


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of cria, so that page and reference read the same file even if the original is replaced."""
    return Path(shutil.copy(CRIA, tmp_path_factory.mktemp("cria") / "cria.gguf"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sessions")


@pytest.fixture(scope="module")
def terminal(model: Path, folder: Path) -> Terminal:
    with load(model) as llm:
        session = talk(llm)
        session.save(folder / "terminal.camelid")
        data = bytearray((folder / "terminal.camelid").read_bytes())
        data[len(data) // 2] ^= 1
        (folder / "damaged.camelid").write_bytes(data)
        (folder / "keyless.camelid").write_bytes(without("drawn", (folder / "terminal.camelid").read_bytes()))
        ids, messages = session.token_ids, list(session.messages)
        done = session.generate(NEXT)
    write_tiny_llama(folder / "tiny.gguf", seed=7)
    with load(folder / "tiny.gguf") as llm:
        llm.session().save(folder / "other.camelid")
    return Terminal(ids, messages, done.token_ids, done.usage.cached_tokens)


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory, model: Path, folder: Path, terminal: Terminal
) -> Iterator[str]:
    site = tmp_path_factory.mktemp("page") / "site"
    build_site(site, {"cria.gguf": model.read_bytes()})
    with serve_site(site) as url:
        yield url


@pytest.fixture(scope="module")
def seen(address: str, terminal: Terminal, folder: Path) -> Visit:
    return asyncio.run(visit(address, folder))


def test_the_page_shows_the_conversation(seen: Visit, terminal: Terminal) -> None:
    assert seen.opened == [message["content"] for message in terminal.messages]
    assert f"session of {len(terminal.token_ids)} tokens, {len(terminal.token_ids)} cached" in seen.figures[0]


def test_the_page_goes_on_without_a_prefill(seen: Visit, terminal: Terminal) -> None:
    assert seen.answer["token_ids"] == terminal.next_ids
    assert seen.answer["cached_tokens"] == terminal.n_cached >= len(terminal.token_ids) - 1
    assert f", {terminal.n_cached} cached" in seen.figures[1]


def test_the_terminal_goes_on_with_the_pages_session(seen: Visit, model: Path, folder: Path) -> None:
    with load(model) as llm:
        session = llm.restore(folder / "page.camelid")
        assert session.note == ""
        assert [message["content"] for message in session.messages][-2:] == [NEXT, seen.answer["text"]]
        n_old = len(session.token_ids)
        done = session.generate(LAST)
        assert done.usage.cached_tokens >= n_old - 1
        assert done.text == seen.typed[-1]


def test_typed_turns_belong_to_the_session(seen: Visit) -> None:
    assert seen.typed[:4] == seen.opened and seen.typed[4:7] == [NEXT, seen.answer["text"], LAST]


def test_a_new_chat_forgets(seen: Visit) -> None:
    assert seen.fresh["prompt_tokens"] < seen.answer["prompt_tokens"]
    assert seen.fresh["text"] == seen.opened[1]


def test_files_that_cannot_be_used_change_nothing(seen: Visit) -> None:
    assert "was saved with tiny.gguf" in seen.refused and "cria.gguf" in seen.refused
    assert "damaged" in seen.damaged
    assert "drawn" in seen.keyless  # the error's key is no text of the page
    assert seen.after_refusal == [TEXTS[0], seen.fresh["text"]]
    assert seen.notes.errors == []
