"""The printed plans of the stress shapes: a change shows as a diff of the files."""

from __future__ import annotations

import pytest
from tests.support.model.stress_goldens import FOLDER, PLANS, path_of


@pytest.mark.parametrize("name", PLANS)
def test_plan_text_is_golden(name: str) -> None:
    assert PLANS[name]() == path_of(name).read_text()


def test_every_golden_plan_has_a_shape() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(map(path_of, PLANS))
