"""The text layer inside Pyodide under Node returns the oracles' answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.exhaustive import share_of
from tests.vectors import replay
from tests.vectors.__main__ import shared_material
from tests.vectors.inside import ROOT, inside_pyodide
from tests.vectors.subjects import SHARE, vectors

KINDS = {"splitter", "family", "tokenizer", "schema"}


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize(("share", "n_texts"), share_of([(SHARE / 2, 30), (1.0, 150)]))
def test_pyodide_gives_the_oracles_answers(share: float, n_texts: int, tmp_path: Path) -> None:
    assert shutil.which("node"), "Node.js is missing; .ci/setup test installs it"
    assert (ROOT / "node_modules" / "pyodide").is_dir(), "no Pyodide; npm ci --ignore-scripts installs it"
    path = tmp_path / "vectors.gz"
    replay.write(str(path), vectors(share, shared_material(), n_texts))
    rows = inside_pyodide("replay.py", "report_json", path)
    assert {row["kind"] for row in rows} >= KINDS
    assert sum(row["inputs"] for row in rows) > 50 * n_texts
    assert [row for row in rows if row["wrong"]] == []


def test_a_wrong_answer_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "vectors.gz"
    right = {
        "kind": "splitter",
        "name": "x",
        "facts": "gpt-2",
        "inputs": ["a b", "c"],
        "answers": [[1, 2], [1]],
    }
    replay.write(str(path), iter([right, {**right, "answers": [[1, 2], [2]]}]))
    assert [(row["wrong"], row["first"]) for row in replay.report(str(path))] == [(0, None), (1, "c")]
