"""Dispatch counts: a dispatch with an empty grid is not launched and not counted."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from camelid.backends.webgpu.backend import launched
from camelid.backends.webgpu.tape import GridEntry, Section

GRIDS: tuple[tuple[GridEntry, ...], ...] = ((1, 2, 3), ((0, 4), 1, 1), ((1, 2), (0, 1), 1), (7, (2, 64), 1))


@pytest.mark.parametrize(
    ("words", "want"),
    [((0, 0, 0), 1), ((5, 0, 0), 2), ((0, 5, 0), 1), ((1, 1, 0), 3), ((0, 0, 1), 2), ((9, 9, 9), 4)],
)
def test_an_empty_grid_is_not_counted(words: Sequence[int], want: int) -> None:
    section = Section("counted", "program")
    for grid in GRIDS:
        section.dispatch(0, 0, grid)
    assert launched(section.launches, struct.pack("<3I", *words)) == want
