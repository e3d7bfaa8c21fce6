"""The npm package, packed, in Chromium and Firefox: plain, through Vite and webpack; and in Node.js."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from e2e.browser import ROOT, open_browser, serve_site
from e2e.firefox import open_firefox
from e2e.visit import open_page, reference_ids
from tests.support.exhaustive import exhaustive, requested
from tests.support.vision_chat import write_chat_ggufs
from tests.support.vision_models import image_of, png_of

import camelid
from camelid.page.answer import WINDOW
from camelid.version import __version__

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

Json = dict[str, Any]
HERE = Path(__file__).parent
CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"
MOST_BYTES = 12 << 20  # of the tarball
SITES = ("plain", "vite", "webpack")
IN_FIREFOX = tuple(f"{site} in Firefox" for site in SITES)
HOSTS = (*SITES, *IN_FIREFOX, "node")
ORDINARY = ("plain", "vite", "plain in Firefox", "node")
some_hosts = pytest.mark.parametrize("host", [one if one in ORDINARY else exhaustive(one) for one in HOSTS])
OPTIONS = {"backend": "cpu", "parallel": 2}
VISIT = "(given) => visit(...given)"
BOUNDED_VISIT = f"""(given) => Promise.race([
  ({VISIT})(given),
  new Promise((_, reject) => setTimeout(reject, 300_000, new Error("no end within 300 s"))),
])"""
READY = "() => globalThis.visit !== undefined"
EXAMPLE_IS_DONE = "() => document.body.innerText.endsWith('.')"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Standard output of a command; fails with both outputs if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("npm")


@pytest.fixture(scope="module")
def tarball(folder: Path) -> Path:
    if not (HERE / "node_modules").exists():
        pytest.skip("no Vite and webpack: run .ci/setup test")
    command = [sys.executable, ROOT / "web" / "build.py", folder / "package", "--package"]
    run(*command, "--cache", ROOT / "build" / "web.cache")
    return folder / run("npm", "pack", "--silent", folder / "package", cwd=folder).strip()


@pytest.fixture(scope="module")
def app(folder: Path, tarball: Path) -> Path:
    """The application with the packed package installed."""
    shutil.copytree(HERE / "app", folder / "app")
    (folder / "app" / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", "--offline", "--silent", tarball, cwd=folder / "app")
    return folder / "app"


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest, folder: Path, app: Path) -> Iterator[str]:
    """A server with the sites of this run and the model."""
    site, hosts = folder / "site", requested(request, "host")
    page = (app / "index.html").read_text()
    for bundler in ("vite", "webpack"):
        if hosts & {bundler, f"{bundler} in Firefox"}:
            run("node", HERE / "bundle.mjs", bundler, app, site / bundler)
    if (site / "webpack").exists():
        (site / "webpack" / "index.html").write_text(page)
    shutil.copytree(app / "node_modules" / "camelid", site / "plain" / "camelid")
    (site / "plain" / "index.html").write_text(page)
    (site / "plain" / "main.js").write_text(without_bundler((app / "main.js").read_text()))
    (site / "example").mkdir()
    (site / "example" / "index.html").write_text(page)
    (site / "example" / "main.js").write_text(without_bundler(readme_example()))
    shutil.copy(CRIA, site / "model.gguf")
    with serve_site(site) as url:
        yield url


def without_bundler(code: str) -> str:
    """A module for a plain page, which knows no packages."""
    return code.replace('from "camelid"', 'from "/plain/camelid/browser.js"')


def readme_example() -> str:
    """The first example of the package's README."""
    found = re.search(r"```js\n(.*?)```", (ROOT / "web" / "package" / "README.md").read_text(), re.DOTALL)
    assert found
    return found[1]


async def visit_all(address: str, sites: Iterable[str]) -> dict[str, Json]:
    seen: dict[str, Json] = {}
    async with open_browser() as browser:
        for host in sites:
            page, notes = await open_page(browser, f"{address}{host}/index.html")
            await page.wait_for_function(READY, timeout=60_000)
            seen[host] = await page.evaluate(VISIT, ["/model.gguf", OPTIONS])
            seen[host]["elsewhere"] = [url for url in notes.urls if not url.startswith(address)]
            seen[host]["violations"] = await page.evaluate("() => window.violations")
            await page.context.close()
        page, _ = await open_page(browser, f"{address}example/index.html")
        await page.wait_for_function(EXAMPLE_IS_DONE, timeout=60_000)
        seen["example"] = {"text": await page.inner_text("body")}
    return seen


def visit_once(address: str, site: str) -> Json:
    with open_firefox() as firefox:
        firefox.open(f"{address}{site}/index.html")
        firefox.wait(READY)
        seen: Json = firefox.evaluate(BOUNDED_VISIT, ["/model.gguf", OPTIONS])
        seen["elsewhere"] = [url for url in firefox("notes")["urls"] if not url.startswith(address)]
        return seen


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest, address: str, app: Path) -> dict[str, Json]:
    """Answers, events and errors that the application got on each host of this run."""
    hosts = {"plain", *requested(request, "host")}
    found = asyncio.run(visit_all(address, [site for site in SITES if site in hosts]))
    for site, host in zip(SITES, IN_FIREFOX, strict=True):
        if host in hosts:
            found[host] = visit_once(address, site)
    return found | {"node": json.loads(run("node", "node.mjs", CRIA, cwd=app))}


@pytest.fixture(scope="module")
def wanted() -> list[int]:
    return reference_ids(CRIA, ["What is 12 plus 30?"], 24)[0]


def test_the_tarball_has_what_the_package_names(tarball: Path, app: Path) -> None:
    assert tarball.name == f"camelid-{__version__}.tgz" and tarball.stat().st_size < MOST_BYTES
    package = app / "node_modules" / "camelid"
    assert {"README.md", "LICENSE", "camelid.d.ts", "worker.js"} <= {path.name for path in package.iterdir()}
    code = "".join(path.read_text() for path in (package / "browser.js", package / "node_thread.js"))
    named = set(re.findall(r'"(?:\./)?([\w/-][\w/.-]*\.(?:zip|wasm))"', code))
    assert len(named) == 7 and all((package / name).exists() for name in named)


@some_hosts
def test_answers_are_the_references(seen: dict[str, Json], wanted: list[int], host: str) -> None:
    visit = seen[host]
    answer = visit["answer"]
    assert (answer["token_ids"], answer["finish_reason"]) == (wanted, "stop")
    assert "".join(event["text"] for event in visit["events"]) == answer["text"]
    assert visit["openai"]["texts"] == [answer["text"]] * 2
    scored = visit["openai"]["logprobs"]
    assert bytes(chain.from_iterable(one["bytes"] for one in scored)).startswith(answer["text"].encode())
    assert all(one["top_logprobs"][0]["bytes"] == one["bytes"] for one in scored)
    assert sorted(visit["progress"]) == ["model", "python", "stages"]
    info = visit["info"]
    assert (info["model"].rpartition("/")[2], info["backend"]) in {
        ("model.gguf", "cpu"),
        ("cria.gguf", "cpu"),
    }
    assert re.match(r"wasm(_relaxed)?, \d+ threads", info["device"])


@some_hosts
def test_requests_are_cancelled_within_a_step(seen: dict[str, Json], host: str) -> None:
    left, aborted = seen[host]["cancelled"]
    assert left["finish_reason"] == aborted["finish_reason"] == "cancelled"
    # Until the message comes, the engine is ahead by the window and the steps in flight at most.
    most = WINDOW + 4
    assert 3 <= len(left["token_ids"]) <= most and 1 <= len(aborted["token_ids"]) <= most


@some_hosts
def test_failures_say_what_is_wrong(seen: dict[str, Json], host: str) -> None:
    unknown, absent, aborted = seen[host]["failures"]
    assert unknown[:2] == [True, "RequestError"] and "'temperatur' is unknown; known: " in unknown[2]
    assert absent[:2] == [True, "FetchError"] and "404" in absent[2]
    assert aborted == [False, "Error", "no longer wanted"]


@some_hosts
def test_a_saved_session_continues(seen: dict[str, Json], host: str) -> None:
    session = seen[host]["session"]
    assert session["roles"][:3] == ["system", "user", "assistant"]
    first, second = session["answers"]
    assert first["token_ids"] == second["token_ids"] and session["cached"] > 20


def test_node_takes_pixels_and_refuses_files(app: Path, folder: Path) -> None:
    """The library's tokens for the same pixels; a file is one error, since Node.js has no decoder."""
    text, mmproj = write_chat_ggufs(folder)
    pixels = image_of(5031, 0, [40, 56])
    (folder / "image.rgb").write_bytes(pixels.tobytes())
    found = json.loads(run("node", "images.mjs", text, mmproj, folder / "image.rgb", "56", "40", cwd=app))
    parts = [{"type": "image", "image": png_of(pixels)}, {"type": "text", "text": "What is this?"}]
    with camelid.load(text, mmproj=mmproj, backend="cpu") as llm:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
        want = llm.chat([{"role": "user", "content": parts}], **options).token_ids
    assert found["takes_images"] is True and found["pixels"] == want
    name, message = found["file"]
    assert name == "RequestError" and message.startswith(
        "Node.js has no decoder of image files: give the pixels"
    )


@some_hosts
def test_nothing_comes_from_elsewhere(seen: dict[str, Json], host: str) -> None:
    assert seen[host].get("elsewhere", []) == seen[host].get("violations", []) == []
    assert ("elsewhere" in seen[host]) == (host != "node") and ("violations" in seen[host]) == (host in SITES)


def test_the_readmes_example_runs(seen: dict[str, Json], address: str) -> None:
    assert seen["example"]["text"] == seen["plain"]["answer"]["text"]


def test_types_fit_their_use(app: Path) -> None:
    options = "--noEmit --strict --skipDefaultLibCheck --target es2022 --module nodenext"
    options += " --lib es2022,dom,dom.asynciterable,esnext"
    run("node", HERE / "node_modules" / "typescript" / "bin" / "tsc", *options.split(), "types.ts", cwd=app)
