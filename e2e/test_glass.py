"""The glass box on the processor, on SwiftShader and in Firefox: numbers, reports, axe, a race in Chromium.

Ordinary runs hold the processor, which has the race.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.exhaustive import share_of

import camelid
from e2e.browser import ROOT, build_site, serve_site
from e2e.glass_visit import QUESTION, TABS, Seen, look, look_in_firefox

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CRIA = ROOT / "core" / "camelid" / "data" / "cria.gguf"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site") / "web"
    build_site(made, {})
    return made


@pytest.fixture(scope="module", params=share_of(["cpu", "webgpu", "firefox"]))
def visit(request: pytest.FixtureRequest, site: Path) -> tuple[str, Seen]:
    """The backend, and what was seen."""
    with serve_site(site) as address:
        if request.param == "firefox":
            return "cpu", look_in_firefox(address)
        return request.param, asyncio.run(look(address, request.param))


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    with camelid.load(str(CRIA), backend="reference") as llm:
        yield llm


def test_a_first_visit_loads_nothing_of_it(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    assert seen.first_urls
    assert not [url for url in seen.first_urls if "/glass/" in url or "wllama" in url]


def test_nothing_fails_and_axe_is_clean(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    assert seen.notes.errors == []
    assert seen.axe == {name: [] for name in TABS}
    assert int(seen.words["phone"]) <= 0


def test_the_plan_is_that_of_the_program(visit: tuple[str, Seen]) -> None:
    backend, seen = visit
    rows, n = seen.rows["plan"], len(seen.rows["plan"])
    dispatches = sum(int(row[5]) for row in rows)
    assert f"{n} ops, {dispatches} dispatches" in seen.words["plan"]
    assert any("blk.0.ffn_" in row[3] for row in rows)
    assert ("@compute" in seen.words["source"]) == (backend == "webgpu")
    assert sorted(seen.rows["sorted"]) == sorted(rows) != seen.rows["sorted"]


def test_times_are_of_the_plans_ops(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    assert [row[1] for row in seen.rows["times"]] == [row[1] for row in seen.rows["plan"]]
    assert sum(row[3] != "–" for row in seen.rows["times"]) > 3
    assert "Clock: " in seen.words["times"]


def test_pages_of_the_cache_add_up(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    for _, _, _, held, shared, cached, free, total, _ in seen.rows["cache"]:
        assert int(held) + int(shared) + int(cached) + int(free) == int(total)
    assert int(seen.rows["cache"][0][5]) > 0
    assert "Conversation: " in seen.words["cache"]


def test_candidates_are_those_of_the_reference(visit: tuple[str, Seen], reference: Any) -> None:
    _, seen = visit
    prompt = [{"role": "user", "content": QUESTION}]
    how: dict[str, Any] = {"temperature": 0.0, "max_tokens": 256, "logprobs": 8}
    wanted = [e for e in reference.stream(prompt, **how) if e.token_id is not None]
    assert [i for i, _ in seen.tokens] == [event.token_id for event in wanted]
    for (_, logprob), event in zip(seen.tokens, wanted, strict=True):
        assert logprob == pytest.approx(event.logprob, abs=2e-2)
    top = wanted[0].top_logprobs
    assert int(seen.rows["tokens"][0][1]) == top[0][0]
    shown = float(seen.rows["tokens"][0][2].split()[0]) / 100
    assert shown == pytest.approx(math.exp(top[0][1]), rel=2e-2)


def test_parity_passes_on_this_device(visit: tuple[str, Seen]) -> None:
    backend, seen = visit
    assert len(seen.rows["parity"]) >= 13
    assert {row[1] for row in seen.rows["parity"]} == {"passed"}
    report = seen.reports["parity"]
    for words in (f"- backend: {backend}", "- browser: ", "- Camelid: ", "cria.gguf", "- date: 20"):
        assert words in report


def test_a_race_has_both_sides(visit: tuple[str, Seen]) -> None:
    _, seen = visit
    if "race" not in seen.reports:
        return
    assert "- prompt: 2" in seen.reports["race"]  # tokens, of 24 that were asked
    lines = [line for line in seen.reports["race"].splitlines() if line.startswith("| ")][2:]
    assert [line.split()[1] for line in lines] == ["Camelid", "wllama"]
    assert all(float(cell) > 0 for line in lines for cell in line.split("|")[2:4])
