"""The memory snapshot of the page's Python: its content, and the random state that a restored page renews."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from camelid.page import snapshot


def test_a_restored_page_has_its_files_and_its_own_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "frozen_package"
    (folder / "data").mkdir(parents=True)
    (folder / "__init__.py").write_text("from pathlib import Path\n")
    (folder / "inner.py").write_text("VALUE = 7\n")
    (folder / "data" / "table.txt").write_text("rows")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(snapshot.SEED, "0")

    snapshot.freeze(tmp_path)
    (folder / "data" / "table.txt").unlink()
    (folder / "data").rmdir()
    state = random.getstate()
    drawn = random.random()
    random.setstate(state)  # as in every page that restores the snapshot
    snapshot.thaw()

    assert sys.modules["frozen_package.inner"].VALUE == 7
    assert snapshot.SEED not in os.environ
    assert (folder / "data" / "table.txt").read_text() == "rows"
    assert random.random() != drawn
