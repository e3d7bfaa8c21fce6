"""The chat: kept conversations, branches, export, safe rendering, tools, languages, accessibility."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from e2e.browser import build_site, serve_site
from e2e.chat_visit import CRIA, EDITED, QUESTIONS, Visit, visit

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = tmp_path_factory.mktemp("chat") / "site"
    build_site(site, {"cria.gguf": CRIA.read_bytes()})
    with serve_site(site) as url:
        yield url


@pytest.fixture(scope="module")
def seen(address: str) -> Visit:
    return asyncio.run(visit(address))


def test_a_conversation_survives_a_reload(seen: Visit) -> None:
    said = seen.turns["said"]
    assert (said[0], said[2]) == QUESTIONS and "42" in said[1] and "Paris" in said[3]
    assert seen.turns["reloaded"] == said
    assert seen.listed["reloaded"] == [QUESTIONS[0]]


def test_edits_and_new_answers_are_branches(seen: Visit) -> None:
    question, answer = seen.turns["edited"]
    assert question == EDITED and "Rome" in answer
    assert seen.turns["back"] == seen.turns["said"]
    assert seen.turns["regenerated"] == seen.turns["said"], "greedy"
    assert seen.words["place"] == "2/2"


def test_export_and_import_are_inverse(seen: Visit) -> None:
    assert seen.turns["deleted"] == []
    assert seen.turns["json"] == seen.turns["markdown"] == seen.turns["said"]
    assert (seen.words["json branches"], seen.words["markdown branches"]) == ("2", "0")
    assert seen.listed["found"] == [QUESTIONS[0]] * 2 and seen.listed["not found"] == []
    for name, words in {"cut": "JSON", "other": "exported", "orphan": "nodes[1]", "prose": "marked"}.items():
        assert name in seen.faults[name] and words in seen.faults[name]


def test_markdown_is_rendered_block_by_block(seen: Visit) -> None:
    assert (seen.found["formulas"], seen.found["tasks"]) == (2, 1)
    assert seen.found["links"] == [["https://example.org/a?b=c", "noopener noreferrer", "_blank"]]
    assert seen.found["growth"] == {"firsts": 1, "isEqual": True}


def test_hostile_markdown_is_text(seen: Visit) -> None:
    assert seen.found["hit"] is None
    assert seen.found["hostile"] == [] and seen.found["attributes"] == []
    assert seen.found["hostile links"] == []
    assert "<script>" in seen.words["hostile"] and "pixel (evil.example)" in seen.words["hostile"]
    assert seen.found["seconds"] < 5
    assert not [url for url in seen.notes.urls if "evil" in url or "example.org" in url]


def test_tools_run_in_bounds(seen: Visit) -> None:
    assert seen.tools["value"] == "sum\n6"
    assert seen.tools["sum"] == "8.1"
    assert "longer than 2 s" in seen.tools["endless"]
    assert "memory" in seen.tools["memory"] and "stack" in seen.tools["stack"].lower()
    assert set(seen.tools["network"].split(",")) == {"undefined"}
    assert "SyntaxError" in seen.tools["fault"] and "no tool 'current_time'" in seen.tools["absent"]
    assert seen.tools["called"] and seen.turns["called"][-1], "the model answers after the tool's result"


def test_a_schema_constrains_the_answer(seen: Visit) -> None:
    assert "no valid JSON" in seen.faults["schema"]
    assert json.loads(seen.words["schema"])["n"] <= 9


def test_settings_and_language_are_kept(seen: Visit) -> None:
    assert "0 to 100" in seen.faults["temperature"]
    assert (seen.words["de"], seen.words["fr"], seen.words["kept"]) == (
        "Einstellungen",
        "Réglages",
        "Réglages",
    )
    assert (seen.words["top_p"], seen.words["system"]) == ("0.5", "You are brief.")


def test_axe_finds_nothing(seen: Visit) -> None:
    assert len(seen.axe) > 40
    assert {state: found for state, found in seen.axe.items() if found} == {}


def test_policy_and_console_are_clean(seen: Visit) -> None:
    assert seen.violations == [] and seen.notes.errors == []
