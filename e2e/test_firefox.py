"""The page in Firefox: answers on the CPU, the chat, models in OPFS, a visit without a server, WebGPU.

Ordinary runs hold what differs most between browsers: an answer on the processor, and the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.gguf_files import write_tiny_llama
from tests.support.hub_server import Hub, serve_hub
from tests.support.split_gguf import split

from e2e.browser import ROOT, build_site, serve_site
from e2e.firefox import Firefox, open_firefox, software_vulkan
from e2e.visit import AXE, reference_ids

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"
PROMPT = "What is 12 plus 30?"
QUERY = "?temperature=0&max_tokens=48"
TURNS = "() => [...document.querySelectorAll('#transcript > li > .text')].map((it) => it.innerText)"
IDLE = "() => window.camelid?.state === 'ready'"
FORCED = """() => window.camelid.say('What is 12 plus 30?',
  { tool_choice: { type: 'function', function: { name: 'calculator' } } })"""
PROBLEM = "#models .problem"
GOT = f"() => !document.querySelector('#models').open || document.querySelector('{PROBLEM}').innerText"
INSTALLED = "() => navigator.serviceWorker.ready.then(({ active }) => active.scriptURL)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("firefox") / "site"
    build_site(site, {})
    return site


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serve_hub() as hub:
        yield hub


@pytest.fixture(scope="module")
def address(site: Path, hub: Hub) -> Iterator[str]:
    with serve_site(site, hub=hub.url, connect=[hub.cdn]) as url:
        yield url


@pytest.fixture
def firefox() -> Iterator[Firefox]:
    with open_firefox() as firefox:
        yield firefox


@pytest.fixture(scope="module")
def wanted() -> list[int]:
    return reference_ids(CRIA, [PROMPT], 48)[0]


def test_answers_on_the_cpu_and_states_why(firefox: Firefox, address: str, wanted: list[int]) -> None:
    firefox.open(address + QUERY)
    firefox.ready()
    answer = firefox.ask(PROMPT)
    assert (answer["text"], answer["token_ids"]) == ("12 + 30 = 42.", wanted)
    assert firefox.evaluate("() => crossOriginIsolated")
    assert "this browser offers no WebGPU" in firefox.text("#note")
    assert "cpu on wasm" in firefox.text("#status-text")
    firefox.evaluate("(code) => (0, eval)(code)", AXE.read_text("utf-8"))
    assert firefox.evaluate("async () => (await axe.run()).violations.map(({ id }) => id)") == []
    firefox.screen("ready")
    notes = firefox("notes")
    assert notes["errors"] == []
    assert {url for url in notes["urls"] if not url.startswith(address)} == set()


def say(firefox: Firefox, text: str) -> list[str]:
    """The turns after another prompt's answer."""
    n = len(firefox.evaluate(TURNS))
    firefox("type", "#prompt", text)
    firefox("press", "Enter")
    return settled(firefox, n + 2)


def settled(firefox: Firefox, n: int) -> list[str]:
    """The turns, once there are `n` and no answer is under way."""
    done = f"(n) => ({IDLE})() && ({TURNS})().length === n && ({TURNS})().at(-1) !== ''"
    firefox.wait(done, n)
    return firefox.evaluate(TURNS)


def act(firefox: Firefox, role: str, action: str) -> None:
    """Presses a button of the first message of a role."""
    press = "(button) => document.querySelector(button).click()"
    firefox.evaluate(press, f"#transcript > .{role} [data-act={action}]")


@pytest.mark.exhaustive
def test_a_conversation_is_kept_edited_and_answered_again(firefox: Firefox, address: str) -> None:
    firefox.open(address + QUERY)
    firefox.ready()
    said = say(firefox, PROMPT)
    assert said == [PROMPT, "12 + 30 = 42."]
    firefox("reload")
    firefox.ready()
    assert firefox.evaluate(TURNS) == said
    act(firefox, "user", "edit")
    firefox.evaluate("() => (document.querySelector('.edit textarea').value = '')")
    firefox("type", ".edit textarea", "What is the capital of Italy?")
    firefox("click", ".edit [type=submit]")
    firefox.wait(f"() => ({TURNS})()[0].endsWith('Italy?')")
    assert "Rome" in settled(firefox, 2)[1]
    act(firefox, "user", "before")
    assert firefox.evaluate(TURNS) == said
    act(firefox, "assistant", "regenerate")
    firefox.wait("() => document.querySelector('.assistant .branches')")
    assert settled(firefox, 2) == said
    firefox.screen("branches")
    assert firefox("notes")["errors"] == []


@pytest.mark.exhaustive
def test_the_model_calls_a_tool(firefox: Firefox, address: str) -> None:
    firefox.open(address + QUERY)
    firefox.ready()
    firefox("click", "#open-tools")
    firefox("click", "#tools [value=calculator]")
    firefox("press", "Escape")
    firefox.evaluate(FORCED)
    assert firefox.text("#transcript .tool pre") and firefox.evaluate(TURNS)[-1]
    firefox.screen("tool")
    run = """async ([name, given]) => {
      const { runCall } = await import(new URL("chat/tools.js", location.href));
      return runCall({ function: { name, arguments: JSON.stringify(given) } }, [name]);
    }"""
    for code, want in {
        "[1, 2, 3].map((n) => n * n).join()": "1,4,9",
        "[typeof fetch, typeof self].join()": "undefined,undefined",
        "while (true) {}": "ran longer than 2 s",
    }.items():
        assert want in firefox.evaluate(run, ["javascript", {"code": code}])


def test_models_are_downloaded_to_opfs_and_chosen(
    firefox: Firefox, address: str, hub: Hub, tmp_path: Path
) -> None:
    """A cut download is resumed, and its model opened again without the hub; parts in any order."""
    whole, pieces = tmp_path / "whole.gguf", tmp_path / "parts"
    pieces.mkdir()
    write_tiny_llama(whole, seed=5, hidden=64, head_dim=16, ffn=96)
    split(whole, pieces)
    hub.add("owner/whole", {"whole.gguf": whole.read_bytes()})
    hub.cut_after = [10_000]
    firefox.open(f"{address}{QUERY}&model=absent")
    firefox.wait("() => window.camelid?.state === 'failed'")
    get(firefox, "owner/whole")
    asked = [answer(firefox)]
    assert hub.n_sent == len(whole.read_bytes()) + 10_000
    hub.is_down = True
    firefox("reload")
    firefox.wait("() => window.camelid?.state === 'failed'")
    firefox("click", "#open-models")
    firefox.wait("() => document.querySelector('[aria-label=\"Open whole.gguf\"]')")
    firefox.screen("models")
    firefox("click", '[aria-label="Open whole.gguf"]')
    asked.append(answer(firefox))
    hub.is_down = False
    firefox("choose", "#file", [str(path) for path in sorted(pieces.iterdir(), reverse=True)])
    asked.append(answer(firefox))
    assert len(asked[0]) > 4 and asked[1:] == 2 * asked[:1]


def get(firefox: Firefox, name: str) -> None:
    """Downloads a model by the dialog, which closes at the end."""
    firefox("click", "#open-models")
    firefox.wait("() => document.querySelector('#models[open] #models-address')")
    firefox("type", "#models-address", name)
    firefox("press", "Enter")
    firefox.wait(GOT)
    assert not firefox.evaluate("() => document.querySelector('#models').open"), firefox.text(PROBLEM)


def answer(firefox: Firefox) -> list[int]:
    """Token ids of the model that is being opened."""
    firefox.wait("() => window.camelid?.state === 'loading'")
    firefox.ready()
    return firefox.ask(PROMPT)["token_ids"]


@pytest.mark.exhaustive
def test_tabs_run_a_model_once(firefox: Firefox, address: str, wanted: list[int]) -> None:
    workers = []
    for is_second in (False, True):
        firefox.open(address + QUERY, same=is_second)
        firefox.ready()
        workers.append([url for url in firefox("notes")["urls"] if url.endswith("/worker.js")])
        assert firefox.ask(PROMPT)["token_ids"] == wanted
    assert workers[0] and not workers[1]
    firefox("alone")
    firefox.wait("() => document.querySelector('#note').innerText.includes('it is loaded again')")
    assert firefox.ask(PROMPT)["token_ids"] == wanted


@pytest.mark.exhaustive
def test_a_second_visit_needs_no_server(firefox: Firefox, site: Path) -> None:
    with ExitStack() as server:
        address = server.enter_context(serve_site(site))
        firefox.open(address + QUERY)
        firefox.ready()
        assert firefox.wait(INSTALLED) == f"{address}service_worker.js"
        firefox.wait("() => caches.keys().then((names) => names.length)")
    firefox("reload")
    firefox.ready()
    assert firefox.ask(PROMPT)["text"] == "12 + 30 = 42."
    assert firefox.evaluate("() => crossOriginIsolated")


@pytest.mark.exhaustive
@pytest.mark.skipif(not software_vulkan(), reason="no driver for llvmpipe: run .ci/system-packages test")
def test_webgpu_by_preferences(address: str, wanted: list[int]) -> None:
    """With WebGPU switched on, a software adapter is not taken by itself, and answers alike when named."""
    with open_firefox(dom__webgpu__enabled=True, gfx__webgpu__ignore_blocklist=True) as firefox:
        firefox.open(address + QUERY)
        firefox.ready()
        assert "is a software adapter" in firefox.text("#note")
        firefox.open(f"{address}{QUERY}&adapter=software")
        firefox.ready()
        assert "webgpu on software adapter" in firefox.text("#status-text")
        assert firefox.ask(PROMPT)["token_ids"] == wanted
        assert firefox("notes")["errors"] == []
