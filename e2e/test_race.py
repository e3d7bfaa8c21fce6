"""The race in Firefox: a model in parts, a frame without its script, a dialog that is closed at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.split_gguf import split

from e2e.browser import ROOT, build_site, link_site, serve_site
from e2e.firefox import Firefox, open_firefox
from e2e.glass_visit import DONE, PUSH

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"
# Starts a race and closes the dialog; notes each frame from then on.
PUSH_AND_CLOSE = f"""(given) => {{
  window.frames_made = 0;
  const isFrame = ({{ tagName }}) => tagName === "IFRAME";
  const count = (records) => records.forEach(({{ addedNodes }}) =>
    (window.frames_made += [...addedNodes].filter(isFrame).length));
  new MutationObserver(count).observe(document.body, {{ childList: true }});
  ({PUSH})(given);
  document.querySelector("#glass").close();
}}"""
QUERY = "?backend=cpu&threads=1&temperature=0&max_tokens=12"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("race")
    build_site(folder / "site", {})
    split(CRIA, folder / "site")
    return folder / "site"


@pytest.fixture
def firefox() -> Iterator[Firefox]:
    with open_firefox() as firefox:
        yield firefox


def start(firefox: Firefox, address: str, push: str = PUSH) -> None:
    """Opens the race of the glass box and starts it."""
    firefox.open(address)
    firefox.ready()
    firefox("click", "#open-menu")
    firefox("click", "#open-glass")
    firefox.wait("() => document.querySelector('#glass-plan tbody tr')")
    firefox("click", "#glass-tab-race")
    for name, value in {"prompt": 24, "tokens": 6}.items():
        firefox.evaluate(
            "([id, n]) => (document.getElementById(id).value = n)", [f"glass-race-{name}", value]
        )
    firefox.evaluate(push, ["race", "Start"])


# On a loaded machine wllama at times does not load in Firefox; test_glass.py has a race in Chromium.
@pytest.mark.exhaustive
@pytest.mark.parametrize("part", [1, 3])
def test_a_model_in_parts_races_by_the_address_of_any(firefox: Firefox, site: Path, part: int) -> None:
    with serve_site(site) as address:
        start(firefox, f"{address}{QUERY}&model=m-0000{part}-of-00003.gguf")
        problem = firefox.wait(DONE, ["race", ".report"], 120)
        assert problem is True, problem
    assert "| wllama" in firefox.text("#glass-race .report")


@pytest.mark.exhaustive
def test_a_frame_without_its_script_is_told(firefox: Firefox, site: Path, tmp_path: Path) -> None:
    link_site(site, tmp_path / "site", {"glass/rival_frame.js": b"// nothing"})
    with serve_site(tmp_path / "site") as address:
        start(firefox, f"{address}{QUERY}")
        problem = firefox.wait(DONE, ["race", ".report"], 60)
    assert problem == (
        "wllama's frame does not answer: its script could not be loaded. Reload the page and try again."
    )
    assert firefox.evaluate("() => document.querySelectorAll('iframe').length") == 0


@pytest.mark.exhaustive
def test_a_race_that_is_closed_at_once_opens_no_frame(firefox: Firefox, site: Path) -> None:
    with serve_site(site) as address:
        start(firefox, f"{address}{QUERY}", PUSH_AND_CLOSE)
        firefox.wait("() => new Promise((resolve) => setTimeout(resolve, 3000, true))")
        assert firefox.evaluate("() => window.frames_made") == 0
    assert firefox("notes")["errors"] == []
