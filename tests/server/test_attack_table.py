"""The table of attacks names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMES = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", Path(__file__).with_name("attacks.md").read_text("utf-8"))


@pytest.mark.parametrize(("file", "name"), sorted({*NAMES}))
def test_a_named_test_exists(file: str, name: str) -> None:
    assert f"def {name or 'test_'}" in (TESTS / file).read_text("utf-8")
