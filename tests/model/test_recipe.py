"""The README's recipe for an architecture works: its code block replaces the shipped rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.hf_models import load_case, nmse, write_hf
from tests.support.model.file_runs import load_hf, reference_logits

from camelid.errors import CamelidError
from camelid.model import archs
from camelid.model.families import gpt

PAGE = Path(__file__).parents[2] / "core/camelid/model/ARCHITECTURES.md"
MAX_LINES = 15


def recipe() -> str:
    match = re.search(r"<!-- recipe -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match, "ARCHITECTURES.md has no recipe"
    return match[1]


def test_the_recipe_is_short() -> None:
    assert len(recipe().splitlines()) <= MAX_LINES


def test_the_recipe_implements_the_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = load_case("stablelm")
    folder = write_hf(tmp_path / "m", case)
    monkeypatch.delitem(archs.ARCHS, "stablelm")
    monkeypatch.delitem(archs.HF_ROWS, "stablelm")
    with pytest.raises(CamelidError, match="'stablelm' is not supported"):
        load_hf(folder)
    module = dict(vars(gpt))
    exec(recipe(), module)  # noqa: S102 - our own README
    monkeypatch.setitem(archs.ARCHS, "stablelm", module["ARCHS"]["stablelm"])
    monkeypatch.setitem(archs.HF_ROWS, "stablelm", module["HF_ROWS"]["stablelm"])
    got = [reference_logits(load_hf(folder), [ids])[0] for ids in case.token_ids]
    assert nmse(got, case.logits) <= 1e-10
