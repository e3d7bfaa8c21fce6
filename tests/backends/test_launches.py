"""Dispatches are counted as they are launched: those with an empty grid are not."""

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
def test_a_grid_with_a_zero_counts_nothing(words: Sequence[int], want: int) -> None:
    section = Section("counted", "program")
    for grid in GRIDS:
        section.dispatch(0, 0, grid)
    assert launched(section.launches, struct.pack("<3I", *words)) == want
